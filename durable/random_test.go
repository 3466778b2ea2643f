package durable_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
	"github.com/timingwheel-go/timingwheel/internal/testscale"
)

// Consumers start and end, half of them by force, calls to Take give up, handlers end in every
// possible way, and messages are cancelled, interrupted and rescheduled, with a store that has
// latency. Some messages are recurring, and their series change. No message is lost, early, or
// delivered after it was cancelled. No run is repeated after it was handled. No message counts a
// crash, and nothing is left over.
func TestRandomEndsLoseNothing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(max(4, testscale.Size(20))) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := &randomEnds{t: t, random: rand.New(rand.NewPCG(seed, 1)), messages: make(map[string]*randomMessage)}
				store := memstore.New(memstore.Options{})
				options := durable.Options{Partitions: 1 + r.n(4)}
				if r.forced = seed%2 == 1; r.forced {
					options.OnError = func(err error) {
						if !strings.Contains(err.Error(), "released because") && !strings.Contains(err.Error(), "panic at") {
							assert.ErrorIs(t, err, durable.ErrLeaseLost, "background error")
						}
					}
				}
				r.q = open(t, far(store), options)
				options.Queue = "other"
				r.other = open(t, far(store), options)
				r.run()
				r.other.Close()
				if r.n(2) == 0 {
					assert.NoError(t, r.q.Shutdown(t.Context()))
				}
				r.q.Close()
				time.Sleep(5 * time.Second)
				assert.NoError(t, store.Close())
				synctest.Wait()
			})
		})
	}
}

const randomMessages = 300

type randomEnds struct {
	t        *testing.T
	q        *durable.Queue
	other    *durable.Queue // its messages share handlers with q's messages
	forced   bool           // consumers end without waiting for their handlers
	receiver *durable.Receiver

	mu       sync.Mutex
	random   *rand.Rand
	messages map[string]*randomMessage
	replaced uint64
}

// randomMessage is what is known of a message.
type randomMessage struct {
	token   uint64    // of the last delivery
	handled time.Time // the due time of the last delivery that was handled
	ends    bool      // it was cancelled, and at most left deliveries follow
	left    int
	over    bool // its series was ended
}

// n returns a random number below most.
func (r *randomEnds) n(most int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.random.IntN(most)
}

func (r *randomEnds) pause(most time.Duration) {
	r.mu.Lock()
	d := r.random.Int64N(int64(most))
	r.mu.Unlock()
	time.Sleep(time.Duration(d))
}

func (r *randomEnds) run() {
	r.receiver = receiver(r.t, r.q, durable.ConsumerOptions{Visibility: time.Duration(1+r.n(20)) * time.Second, Membership: 500 * time.Millisecond})
	enqueueAll(r.t, r.other, "m", randomMessages, 0)
	var all sync.WaitGroup
	for _, f := range []func(){r.enqueue, r.consumers, r.consumers, r.takes, r.changes} {
		all.Go(f)
	}
	all.Wait()
	time.Sleep(3 * time.Second)
	s, err := r.q.Stats(r.t.Context())
	assert.NoError(r.t, err)
	assert.Zero(r.t, s.InFlight, "messages in flight without a consumer: %+v", s)
	assert.Zero(r.t, s.Crashed)
	stop := consumeSources(r.t, []durable.Source{
		{Queue: r.q, Handler: func(_ context.Context, d *durable.Delivery) error { r.see(d); return nil }},
		{Queue: r.other, Handler: sleeps(50*time.Millisecond, new(atomic.Int64))},
	}, durable.ConsumerOptions{})
	time.Sleep(5 * time.Second)
	for i := 0; i < randomMessages; i += seriesEvery {
		r.cancel(fmt.Sprint(i), durable.Interrupt)
	}
	time.Sleep(10 * time.Second)
	s, err = r.q.Stats(r.t.Context())
	assert.NoError(r.t, err)
	assert.Zero(r.t, s.InFlight+s.Scheduled+s.Dead+int64(s.Prefetched+s.Firing), "%+v", s)
	assert.Equal(r.t, s.Enqueued, s.Acked+s.Cancelled+r.replaced)
	s, err = r.other.Stats(r.t.Context())
	assert.NoError(r.t, err)
	assert.EqualValues(r.t, randomMessages, s.Acked, "%+v", s)
	assert.Zero(r.t, s.Crashed)
	stop()
	for i := range randomMessages {
		m := r.message(fmt.Sprint(i))
		assert.True(r.t, m.token > 0 || m.ends, "%d is lost", i)
		assert.True(r.t, m.ends || m.over || !recurring(i), "the series %d is lost", i)
	}
}

// recurring reports whether the message with a number is recurring.
func recurring(i int) bool { return i%seriesEvery == 0 }

const seriesEvery = 4

// repeat returns a random series. Its interval is longer than two calls to the store take.
func (r *randomEnds) repeat() string { return fmt.Sprintf("@every %dms", 10+r.n(1000)) }

func (r *randomEnds) enqueue() {
	for i := range randomMessages {
		m := durable.Message{ID: fmt.Sprint(i), Delay: time.Duration(r.n(4000)) * time.Millisecond}
		if recurring(i) {
			m.Repeat = r.repeat()
		}
		_, err := r.q.Enqueue(r.t.Context(), m)
		assert.NoError(r.t, err)
	}
}

// message returns what is known of a message. The caller holds mu, or no other goroutine runs.
func (r *randomEnds) message(id string) *randomMessage {
	m := r.messages[id]
	if m == nil {
		m = new(randomMessage)
		r.messages[id] = m
	}
	return m
}

func (r *randomEnds) see(d *durable.Delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.message(d.ID)
	assert.False(r.t, time.Now().Before(d.Due), "%s is early", d.ID)
	assert.Greater(r.t, d.Token, m.token, d.ID)
	assert.True(r.t, m.over || d.Due.After(m.handled), "%s was handled and is delivered again", d.ID)
	if m.token = d.Token; m.ends {
		m.left--
		assert.GreaterOrEqual(r.t, m.left, 0, "%s was cancelled and delivered", d.ID)
	}
}

// recurs reports whether a message that was delivered is recurring.
func (r *randomEnds) recurs(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, err := strconv.Atoi(id)
	return err == nil && recurring(i) && !r.message(id).over
}

// handled records that a delivery was acknowledged.
func (r *randomEnds) handled(d *durable.Delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.message(d.ID)
	if m.handled.Before(d.Due) {
		m.handled = d.Due
	}
}

// handle ends in one of the ways of handlers, usually by returning nil.
func (r *randomEnds) handle(ctx context.Context, d *durable.Delivery) error {
	r.see(d)
	switch r.n(12) {
	case 0:
		r.pause(3 * time.Second)
	case 1:
		r.pause(30 * time.Millisecond)
	case 2:
		return durable.Fail(assert.AnError, time.Duration(r.n(2000))*time.Millisecond)
	case 3:
		runtime.Goexit()
	case 4:
		panic("for the test")
	case 5:
		if r.settled(d.Ack(ctx)) {
			r.handled(d)
		}
		return assert.AnError // has no effect
	case 6:
		r.settled(d.NackAfter(ctx, time.Second, nil))
		return nil
	case 7:
		if r.recurs(d.ID) {
			return durable.Reject(assert.AnError)
		}
	case 8:
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
	if !r.forced {
		r.handled(d)
	}
	return nil
}

// settled checks the error of a call that settles a message, and reports whether it has succeeded.
// The context of the handler may have ended.
func (r *randomEnds) settled(err error) bool {
	if errors.Is(err, durable.ErrInterrupted) || r.forced && errors.Is(err, durable.ErrClosed) {
		return false
	}
	return assert.NoError(r.t, err)
}

func (r *randomEnds) consumers() {
	for range 5 {
		grace := time.Hour
		if r.forced {
			grace = time.Duration(1+r.n(1000)) * time.Millisecond
		}
		sources := []durable.Source{{Queue: r.q, Handler: r.handle, MaxRunning: r.n(2) * (1 + r.n(8)), Rate: float64(r.n(2) * (20 + r.n(200)))}}
		if r.n(2) == 0 {
			sources = append(sources, durable.Source{Queue: r.other, Handler: sleeps(50*time.Millisecond, new(atomic.Int64)), Weight: 1 + r.n(3)})
		}
		stop := consumeSources(r.t, sources, durable.ConsumerOptions{
			Concurrency: 2 + r.n(8), Visibility: time.Duration(1+r.n(10)) * time.Second, Membership: 500 * time.Millisecond, Prefetch: 1 + r.n(100),
			Backoff: fixed(time.Second), Grace: grace,
		})
		r.pause(2 * time.Second)
		stop()
	}
}

func (r *randomEnds) takes() {
	for range 50 {
		ctx, cancel := context.WithTimeout(r.t.Context(), time.Duration(r.n(int(100*time.Millisecond))))
		d, err := r.receiver.Take(ctx)
		cancel()
		if err == nil {
			r.see(d)
			if assert.NoError(r.t, d.Ack(r.t.Context())) {
				r.handled(d)
			}
		}
		r.pause(100 * time.Millisecond)
	}
}

func (r *randomEnds) changes() {
	for range 200 {
		i := r.n(randomMessages)
		id := fmt.Sprint(i)
		switch change := r.n(4); {
		case change == 0:
			r.cancel(id)
		case change == 1:
			r.cancel(id, durable.Interrupt)
		case change == 2 || !recurring(i):
			_, err := r.q.Reschedule(r.t.Context(), id, time.Duration(1+r.n(1000))*time.Millisecond)
			assert.NoError(r.t, err)
		default:
			r.changeSeries(id)
		}
		r.pause(25 * time.Millisecond)
	}
}

// cancel cancels a message. If it is running and recurring or interrupted, this is its last
// delivery.
func (r *randomEnds) cancel(id string, options ...durable.CancelOption) {
	result, err := r.q.Cancel(r.t.Context(), id, options...)
	assert.NoError(r.t, err)
	last := result == durable.ResultInterrupted || result == durable.ResultFiring && r.recurs(id)
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.message(id); !m.ends && (last || result == durable.ResultCancelled) {
		switch m.ends = true; result {
		case durable.ResultInterrupted:
			m.left = 1
		case durable.ResultFiring:
			m.left = math.MaxInt // its retries
		}
	}
}

// changeSeries changes the series of a recurring message, or ends it.
func (r *randomEnds) changeSeries(id string) {
	repeat := r.repeat()
	r.mu.Lock()
	m := r.message(id)
	if m.over = m.over || r.random.IntN(5) == 0; m.over {
		repeat = ""
	}
	ended := m.ends || m.over
	r.mu.Unlock()
	result, err := r.q.SetRepeat(r.t.Context(), id, repeat)
	assert.NoError(r.t, err)
	if ended {
		return
	}
	assert.Equal(r.t, durable.ResultRescheduled, result, id)
	if r.n(2) == 0 {
		_, err = r.q.Enqueue(r.t.Context(), durable.Message{ID: id, Delay: time.Duration(1+r.n(1000)) * time.Millisecond, Repeat: r.repeat(), Replace: true})
		assert.NoError(r.t, err)
		r.replaced++
	}
}
