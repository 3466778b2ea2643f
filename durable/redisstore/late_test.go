package redisstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/faultproxy"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
)

// heldQueue is a queue in two processes. The connections of one of them go through a proxy.
type heldQueue struct {
	t           *testing.T
	options     redisstore.Options
	proxy       *faultproxy.Proxy
	late, other *durable.Queue
	owns        chan struct{} // a consumer has learned that it owns the partition
}

func newHeldQueue(t *testing.T, addr string) *heldQueue {
	t.Helper()
	return newHeldQueueOf(t, addr, redisstore.Options{})
}

func newHeldQueueOf(t *testing.T, addr string, options redisstore.Options) *heldQueue {
	t.Helper()
	h := &heldQueue{t: t, options: options, proxy: faultproxy.Start(t, addr), owns: make(chan struct{}, 10)}
	h.late, h.other = h.open(h.proxy.Addr()), h.open(addr)
	return h
}

func (h *heldQueue) open(addr string) *durable.Queue {
	h.t.Helper()
	store := newStore(h.t, newClient(h.t, addr), h.options)
	q, err := durable.Open(h.t.Context(), store, durable.Options{
		Logger: slog.New(slog.DiscardHandler), Queue: "held", Partitions: 1, OnEvent: func(e durable.Event) {
			if len(e.Owned) > 0 {
				h.owns <- struct{}{}
			}
		},
	})
	require.NoError(h.t, err)
	h.t.Cleanup(q.Close)
	return q
}

// onServers runs a test on a real server, and on a simulated one.
func onServers(t *testing.T, test func(t *testing.T, addr string)) {
	t.Helper()
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		test(t, redistest.Start(t, redistest.Options{}).Addr())
	})
	t.Run("simulated", func(t *testing.T) {
		t.Parallel()
		test(t, simulated(t).Addr())
	})
}

func (h *heldQueue) enqueue(q *durable.Queue, id, body string, delay time.Duration, replace bool) {
	h.t.Helper()
	_, err := q.Enqueue(h.t.Context(), durable.Message{ID: id, Body: []byte(body), Delay: delay, Replace: replace})
	require.NoError(h.t, err)
}

// deliver takes a message that is due, and ends its delivery.
func (h *heldQueue) deliver(id string, end func(d *durable.Delivery) error) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 20*time.Second)
	defer cancel()
	d, err := h.other.Take(ctx)
	require.NoError(h.t, err)
	require.Equal(h.t, id, d.ID)
	require.NoError(h.t, end(d))
}

func (h *heldQueue) bury(id string) {
	h.t.Helper()
	h.deliver(id, func(d *durable.Delivery) error { return d.Bury(h.t.Context(), "enough") })
}

func (h *heldQueue) ack(id string) {
	h.t.Helper()
	h.deliver(id, func(d *durable.Delivery) error { return d.Ack(h.t.Context()) })
}

// lateCalls are the calls without a token. A process makes the call and gets its result although
// the first copy is held back. Then another process makes the call in then, which leaves the
// message in the given state. The first copy must not change that state when it arrives.
var lateCalls = []struct {
	name           string
	arrange        func(h *heldQueue, id string)
	call           func(h *heldQueue, id string)
	then           func(h *heldQueue, id string)
	state          durable.State // 0: there is no message
	body           string
	earliest, last time.Duration // of the due time, after the start of the test; last 0: any
}{
	{
		name:    "Cancel",
		arrange: func(h *heldQueue, id string) { h.enqueue(h.other, id, "old", time.Hour, false) },
		call: func(h *heldQueue, id string) {
			r, err := h.late.Cancel(h.t.Context(), id)
			require.NoError(h.t, err)
			require.Equal(h.t, durable.ResultCancelled, r)
		},
		then:  func(h *heldQueue, id string) { h.enqueue(h.other, id, "new", time.Hour, false) },
		state: durable.StateScheduled, body: "new",
	},
	{
		name:    "Reschedule",
		arrange: func(h *heldQueue, id string) { h.enqueue(h.other, id, "old", time.Hour, false) },
		call: func(h *heldQueue, id string) {
			r, err := h.late.Reschedule(h.t.Context(), id, 2*time.Hour)
			require.NoError(h.t, err)
			require.Equal(h.t, durable.ResultRescheduled, r)
		},
		then: func(h *heldQueue, id string) {
			r, err := h.other.Reschedule(h.t.Context(), id, 5*time.Hour)
			require.NoError(h.t, err)
			require.Equal(h.t, durable.ResultRescheduled, r)
		},
		state: durable.StateScheduled, body: "old", earliest: 5 * time.Hour, last: 6 * time.Hour,
	},
	{
		name: "Replay",
		arrange: func(h *heldQueue, id string) {
			h.enqueue(h.other, id, "old", 0, false)
			h.bury(id)
		},
		call:  func(h *heldQueue, id string) { require.NoError(h.t, h.late.Replay(h.t.Context(), id, 0)) },
		then:  func(h *heldQueue, id string) { h.bury(id) },
		state: durable.StateDead, body: "old",
	},
	{
		name: "Purge",
		arrange: func(h *heldQueue, id string) {
			h.enqueue(h.other, id, "old", 0, false)
			h.bury(id)
		},
		call: func(h *heldQueue, id string) { require.NoError(h.t, h.late.DeleteDead(h.t.Context(), id)) },
		then: func(h *heldQueue, id string) {
			h.enqueue(h.other, id, "new", 0, false)
			h.bury(id)
		},
		state: durable.StateDead, body: "new",
	},
	{
		name:    "Enqueue",
		arrange: func(*heldQueue, string) {},
		call:    func(h *heldQueue, id string) { h.enqueue(h.late, id, "old", 0, false) },
		then:    func(h *heldQueue, id string) { h.ack(id) },
	},
	{
		name:    "Replace",
		arrange: func(h *heldQueue, id string) { h.enqueue(h.other, id, "oldest", time.Hour, false) },
		call:    func(h *heldQueue, id string) { h.enqueue(h.late, id, "old", time.Hour, true) },
		then:    func(h *heldQueue, id string) { h.enqueue(h.other, id, "new", 2*time.Hour, true) },
		state:   durable.StateScheduled, body: "new", earliest: 2 * time.Hour, last: 3 * time.Hour,
	},
}

// The first copy of a call hangs in a dead connection, and the repetition takes effect. The first
// copy changes nothing when it arrives, before or after the server has forgotten the call.
func TestLateCopyChangesNothing(t *testing.T) {
	t.Parallel()
	for _, c := range lateCalls {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			held := func(t *testing.T, addr string, before func()) {
				h := newHeldQueue(t, addr)
				const id = "the-message"
				start := time.Now().Add(-time.Minute)
				c.arrange(h, id)
				h.proxy.Hold(id)
				c.call(h, id)
				require.True(t, h.proxy.Held(), "the first copy")
				c.then(h, id)
				before()
				_, err := h.proxy.Release()
				require.NoError(t, err)
				r, err := h.other.Get(t.Context(), id)
				if c.state == 0 {
					require.ErrorIs(t, err, durable.ErrNotFound, "the late copy has stored the message again")
					return
				}
				require.NoError(t, err, "the late copy has removed the message")
				assert.Equal(t, c.state, r.State)
				assert.Equal(t, c.body, string(r.Body))
				if c.last > 0 {
					assert.WithinRange(t, r.Due, start.Add(c.earliest), start.Add(c.last))
				}
			}
			onServers(t, func(t *testing.T, addr string) { held(t, addr, func() {}) })
			t.Run("forgotten", func(t *testing.T) {
				t.Parallel()
				m := simulated(t)
				now := time.Now()
				m.SetTime(now)
				held(t, m.Addr(), func() {
					m.SetTime(now.Add(27 * time.Hour))
					q, err := newStore(t, newClient(t, m.Addr()), redisstore.Options{}).Open(t.Context(), driver.Config{Queue: "held"})
					require.NoError(t, err)
					for i := range 40 { // new producers make the server forget old calls
						call := driver.Call{Caller: fmt.Sprint("new", i), Seq: 1, NotAfter: driver.InstantOf(now.Add(27*time.Hour + time.Minute))}
						_, err := q.Put(t.Context(), driver.Put{Call: call, Items: items(call.Caller, 1, 10, 1000*time.Hour)})
						require.NoError(t, err)
					}
				})
			})
		})
	}
}

// The first reply to a call is lost, and the message changes before the repetition. The repetition
// returns the result of the first reply. The proxy loses the reply below the client's own retries,
// so neither the client nor the queue knows which copy has taken effect.
func TestRepeatedCallHasFirstResult(t *testing.T) {
	t.Parallel()
	type outcome struct {
		result durable.Result
		err    error
	}
	ask := map[string]func(q *durable.Queue, t *testing.T, id string) outcome{
		"Cancel": func(q *durable.Queue, t *testing.T, id string) outcome {
			r, err := q.Cancel(t.Context(), id)
			return outcome{r, err}
		},
		"Reschedule": func(q *durable.Queue, t *testing.T, id string) outcome {
			r, err := q.Reschedule(t.Context(), id, 0)
			return outcome{r, err}
		},
		"Replay": func(q *durable.Queue, t *testing.T, id string) outcome {
			return outcome{0, q.Replay(t.Context(), id, 0)}
		},
		"Purge": func(q *durable.Queue, t *testing.T, id string) outcome {
			return outcome{0, q.DeleteDead(t.Context(), id)}
		},
	}
	none := func(*heldQueue, string) {}
	scheduled := func(h *heldQueue, id string) { h.enqueue(h.other, id, "", time.Hour, false) }
	dead := func(h *heldQueue, id string) { h.enqueue(h.other, id, "", 0, false); h.bury(id) }
	for name, c := range map[string]struct {
		call           string
		arrange, while func(h *heldQueue, id string) // before, and between the attempts
		want           outcome
	}{
		"cancelled":                 {"Cancel", scheduled, none, outcome{result: durable.ResultCancelled}},
		"cancelled, enqueued again": {"Cancel", scheduled, scheduled, outcome{result: durable.ResultCancelled}},
		"cancel of none, enqueued":  {"Cancel", none, scheduled, outcome{result: durable.ResultNotFound}},
		"rescheduled":               {"Reschedule", scheduled, none, outcome{result: durable.ResultRescheduled}},
		"rescheduled, delivered": {
			"Reschedule", scheduled, func(h *heldQueue, id string) { h.ack(id) },
			outcome{result: durable.ResultRescheduled},
		},
		"reschedule of none, enqueued": {"Reschedule", none, scheduled, outcome{result: durable.ResultNotFound}},
		"replayed, delivered":          {"Replay", dead, func(h *heldQueue, id string) { h.ack(id) }, outcome{}},
		"purged, enqueued again":       {"Purge", dead, scheduled, outcome{}},
		"purge of none":                {"Purge", none, none, outcome{err: durable.ErrNotFound}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onServers(t, func(t *testing.T, addr string) {
				h := newHeldQueue(t, addr)
				const id = "the-message"
				c.arrange(h, id)
				_ = ask[c.call](h.late, t, "another") // the script is known from here on
				got := loseFirst(h, id, func() outcome { return ask[c.call](h.late, t, id) }, func() { c.while(h, id) })
				assert.Equal(t, c.want.result, got.result)
				require.ErrorIs(t, got.err, c.want.err) //nolint:testifylint // it may be nil
			})
		})
	}
	for _, call := range []string{"Cancel", "Reschedule"} {
		t.Run(call+" of a message that is being delivered", func(t *testing.T) {
			t.Parallel()
			onServers(t, func(t *testing.T, addr string) {
				h := newHeldQueue(t, addr)
				const id = "the-message"
				h.enqueue(h.other, id, "", 0, false)
				d, err := h.other.Take(t.Context())
				require.NoError(t, err)
				_ = ask[call](h.late, t, "another") // the script is known from here on
				got := loseFirst(h, id, func() outcome { return ask[call](h.late, t, id) }, func() {
					require.NoError(t, d.NackAfter(t.Context(), time.Hour, nil)) // the message can be cancelled now
				})
				require.NoError(t, got.err)
				assert.Equal(t, durable.ResultFiring, got.result, "the result of the copy that has taken effect")
			})
		})
	}
}

// The clock of a process is wrong, by minutes or by years. The process repeats one call and uses
// the server's clock from then on. The same holds if the server's clock is set.
func TestCallsUseTheClockOfTheServer(t *testing.T) {
	t.Parallel()
	m := simulated(t)
	q, err := durable.Open(t.Context(), newStore(t, newClient(t, m.Addr()), redisstore.Options{}), durable.Options{Queue: "clock", Partitions: 1})
	require.NoError(t, err)
	t.Cleanup(q.Close)
	for _, ahead := range []time.Duration{-time.Hour, 10 * time.Minute, 24 * 365 * time.Hour, 0, -24 * 365 * time.Hour, time.Minute} {
		m.SetTime(time.Now().Add(ahead))
		for range 20 {
			_, err := q.Enqueue(t.Context(), durable.Message{ID: "m", Delay: time.Hour})
			require.NoError(t, err, "%v ahead", ahead)
			result, err := q.Cancel(t.Context(), "m")
			require.NoError(t, err, "%v ahead", ahead)
			require.Equal(t, durable.ResultCancelled, result)
		}
	}
}

// A call gave up without an answer. A copy that arrives after RetryFor has no effect.
func TestCallThatGaveUpHasNoLateEffect(t *testing.T) {
	t.Parallel()
	m := simulated(t)
	m.SetTime(time.Now())
	proxy := faultproxy.Start(t, m.Addr())
	hurried, err := durable.Open(t.Context(), newStore(t, newClient(t, proxy.Addr()), redisstore.Options{}),
		durable.Options{Queue: "held", Partitions: 1, RetryFor: 3 * time.Second})
	require.NoError(t, err)
	t.Cleanup(hurried.Close)
	other, err := durable.Open(t.Context(), newStore(t, newClient(t, m.Addr()), redisstore.Options{}), durable.Options{Queue: "held"})
	require.NoError(t, err)
	t.Cleanup(other.Close)
	const id = "the-message"
	_, err = other.Cancel(t.Context(), id) // the script is known from here on
	require.NoError(t, err)
	_, err = other.Enqueue(t.Context(), durable.Message{ID: id, Delay: time.Hour})
	require.NoError(t, err)
	proxy.Hold(id)
	proxy.Refuse(true) // only the open connection carries a copy
	_, err = hurried.Cancel(t.Context(), id)
	require.ErrorIs(t, err, durable.ErrUnavailable)
	require.Eventually(t, proxy.Held, time.Minute, time.Millisecond)
	m.SetTime(time.Now().Add(time.Minute))
	reply, err := proxy.Release()
	require.NoError(t, err)
	require.Contains(t, reply, "late")
	_, err = other.Get(t.Context(), id)
	require.NoError(t, err, "a call that gave up long before has cancelled the message")
}

// The first copy of an enqueue hangs in a dead connection, and the second finds the partition full.
// The error says that the message may still be stored. The message is stored, because there is room
// before the first copy arrives. If all copies were answered, the error does not say so.
func TestErrFullIsDefiniteOnlyIfAllCopiesWereAnswered(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, addr string) {
		h := newHeldQueueOf(t, addr, redisstore.Options{PartitionMessages: 1})
		const id = "the-message"
		h.enqueue(h.other, "another", "", time.Hour, false)
		_, err := h.late.Enqueue(t.Context(), durable.Message{ID: id, Delay: time.Hour})
		require.ErrorIs(t, err, durable.ErrFull)
		require.NotErrorIs(t, err, durable.ErrUnavailable)

		h.proxy.Hold(id)
		_, err = h.late.Enqueue(t.Context(), durable.Message{ID: id, Delay: time.Hour})
		require.True(t, h.proxy.Held(), "the first copy")
		require.ErrorIs(t, err, durable.ErrFull)
		assert.ErrorIs(t, err, durable.ErrUnavailable, "an earlier copy may take effect")
		assert.ErrorContains(t, err, "may take effect until")

		r, err := h.other.Cancel(t.Context(), "another")
		require.NoError(t, err)
		require.Equal(t, durable.ResultCancelled, r)
		_, err = h.proxy.Release()
		require.NoError(t, err)
		_, err = h.other.Get(t.Context(), id)
		require.NoError(t, err, "the first copy has taken effect")
	})
}

// loseFirst makes a call, loses its first reply, and calls while before the call is repeated.
func loseFirst[R any](h *heldQueue, id string, call func() R, while func()) R {
	h.t.Helper()
	h.proxy.Drop(id, 1, 1)
	done := make(chan R, 1)
	go func() { done <- call() }()
	require.Eventually(h.t, func() bool { return h.proxy.Dropped() == 1 }, time.Minute, time.Millisecond)
	h.proxy.Refuse(true)
	while()
	h.proxy.Refuse(false)
	select {
	case r := <-done:
		return r
	case <-time.After(time.Minute):
		require.Fail(h.t, "the call does not return")
		panic("unreachable")
	}
}

// A claim hangs in a dead connection, and arrives after a later claim of the consumer was answered.
// The late claim leases nothing, whether the consumer goes on or has ended: the consumer would not
// learn of the messages, and messages that begin with the claim would count a crash.
func TestLateClaimLeasesNothing(t *testing.T) {
	t.Parallel()
	for name, goesOn := range map[string]bool{"goes on": true, "has ended": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onServers(t, func(t *testing.T, addr string) { lateClaim(t, newHeldQueue(t, addr), goesOn) })
		})
	}
}

// lateClaim delivers a claim late, while its consumer goes on or after it has ended.
func lateClaim(t *testing.T, h *heldQueue, goesOn bool) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	handled := make(chan string, 10)
	go func() {
		ended <- h.late.Consume(ctx, func(_ context.Context, d *durable.Delivery) error {
			handled <- d.ID
			return nil
		}, durable.ConsumerOptions{Fallback: 500 * time.Millisecond})
	}()
	requireHandled := func(id string) {
		t.Helper()
		select {
		case got := <-handled:
			require.Equal(t, id, got)
		case err := <-ended:
			require.FailNow(t, "Consume has ended", "%v", err)
		case <-time.After(time.Minute):
			require.FailNow(t, "nothing was handled")
		}
	}
	select { // claims of a partition that the consumer does not own have no number
	case <-h.owns:
	case <-time.After(time.Minute):
		require.FailNow(t, "the consumer does not own the partition")
	}
	h.enqueue(h.other, "first", "", 0, false)
	requireHandled("first") // so a claim before that has ended
	h.proxy.Hold(redisstore.ClaimHash)
	require.Eventually(t, func() bool { return h.proxy.Held() }, time.Minute, time.Millisecond)
	if goesOn {
		h.enqueue(h.other, "second", "", 0, false)
		requireHandled("second") // by a later claim
		h.proxy.Stall()          // so that the consumer itself does not claim the next message
	} else {
		stop()
		require.NoError(t, <-ended)
	}
	h.enqueue(h.other, "third", "", 0, false)
	_, err := h.proxy.Release()
	require.NoError(t, err)
	r, err := h.other.Get(t.Context(), "third")
	require.NoError(t, err)
	assert.Equal(t, durable.StateScheduled, r.State, "the message is leased, and its consumer does not know of it")
	h.proxy.Resume()
	if goesOn {
		requireHandled("third")
		stop()
		require.NoError(t, <-ended)
	}
}
