package durable_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
	"github.com/timingwheel-go/timingwheel/internal/testscale"
)

// Consumers start and end, half of them by force, calls to Take give up, handlers end in every
// possible way, and messages are cancelled and rescheduled, with a store that has latency. No
// message is lost, early, or delivered after it was cancelled. No message counts a crash, and
// nothing is left over.
func TestRandomEndsLoseNothing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(max(4, testscale.Size(20))) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := &randomEnds{t: t, random: rand.New(rand.NewPCG(seed, 1)), seen: make(map[string]bool), cancelled: make(map[string]bool)}
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
				r.run()
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
	forced   bool // consumers end without waiting for their handlers
	receiver *durable.Receiver

	mu        sync.Mutex
	random    *rand.Rand
	seen      map[string]bool
	cancelled map[string]bool
}

// n returns a random number below most.
func (r *randomEnds) n(most int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.random.IntN(most)
}

func (r *randomEnds) pause(most time.Duration) { time.Sleep(time.Duration(r.n(int(most)))) }

func (r *randomEnds) run() {
	r.receiver = receiver(r.t, r.q, durable.ConsumerOptions{Visibility: time.Duration(1+r.n(20)) * time.Second, Membership: 500 * time.Millisecond})
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
	stop := consume(r.t, r.q, func(_ context.Context, d *durable.Delivery) error { r.see(d); return nil }, durable.ConsumerOptions{})
	time.Sleep(10 * time.Second)
	s, err = r.q.Stats(r.t.Context())
	assert.NoError(r.t, err)
	assert.Zero(r.t, s.InFlight+s.Scheduled+s.Dead+int64(s.Prefetched+s.Firing), "%+v", s)
	assert.EqualValues(r.t, randomMessages, s.Acked+s.Cancelled)
	stop()
	for i := range randomMessages {
		id := fmt.Sprint(i)
		assert.True(r.t, r.seen[id] || r.cancelled[id], "%s is lost", id)
	}
}

func (r *randomEnds) enqueue() {
	for i := range randomMessages {
		enqueue(r.t, r.q, fmt.Sprint(i), time.Duration(r.n(4000))*time.Millisecond)
	}
}

func (r *randomEnds) see(d *durable.Delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	assert.False(r.t, time.Now().Before(d.Due), "%s is early", d.ID)
	assert.False(r.t, r.cancelled[d.ID], "%s was cancelled and delivered", d.ID)
	r.seen[d.ID] = true
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
		r.settled(d.Ack(ctx))
		return assert.AnError // has no effect
	case 6:
		r.settled(d.NackAfter(ctx, time.Second, nil))
	}
	return nil
}

// settled checks the error of a call that settles a message. If the consumer was forced to end, the
// handler's context may have ended.
func (r *randomEnds) settled(err error) {
	if err != nil && r.forced {
		assert.ErrorIs(r.t, err, durable.ErrClosed)
		return
	}
	assert.NoError(r.t, err)
}

func (r *randomEnds) consumers() {
	for range 5 {
		grace := time.Hour
		if r.forced {
			grace = time.Duration(1+r.n(1000)) * time.Millisecond
		}
		stop := consume(r.t, r.q, r.handle, durable.ConsumerOptions{
			Concurrency: 1 + r.n(8), Visibility: time.Duration(1+r.n(10)) * time.Second, Membership: 500 * time.Millisecond, Prefetch: 1 + r.n(100),
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
			assert.NoError(r.t, d.Ack(r.t.Context()))
		}
		r.pause(100 * time.Millisecond)
	}
}

func (r *randomEnds) changes() {
	for range 100 {
		id := fmt.Sprint(r.n(randomMessages))
		if r.n(2) == 0 {
			_, err := r.q.Reschedule(r.t.Context(), id, time.Duration(r.n(1000))*time.Millisecond)
			assert.NoError(r.t, err)
		} else {
			result, err := r.q.Cancel(r.t.Context(), id)
			assert.NoError(r.t, err)
			if result == durable.ResultCancelled {
				r.mu.Lock()
				r.cancelled[id] = true
				r.mu.Unlock()
			}
		}
		r.pause(50 * time.Millisecond)
	}
}
