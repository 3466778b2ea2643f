package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/internal/testscale"
)

var pauseTests = []test{
	{"Pause/Claim", pauseClaim},
	{"Pause/Begin", pauseBegin},
	{"Pause/OtherTransitions", pauseTransitions},
	{"Pause/Leases", pauseLeases},
	{"Pause/LostAnswer", pauseLostAnswer},
	{"Pause/Race", pauseRace},
	{"Pause/Hints", inBubble(pauseHints)},
	{"Pause/Restart", pauseRestart},
	{"Pause/Late", pauseLate},
}

// pause pauses partition 0, or resumes it, with a call that has no copies.
func (q *queue) pause(paused bool) {
	q.t.Helper()
	require.NoError(q.t, q.Pause(q.t.Context(), driver.Pause{Paused: paused}))
	require.Equal(q.t, paused, q.count().Paused)
}

// pauseClaim claims from a paused partition and from another partition of the queue.
func pauseClaim(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	q.put(item("a", 0), item("b", 0), item("later", soon/2))
	assert.False(t, q.claimWith(driver.Claim{}).Paused)
	for range 2 { // a repetition changes nothing
		q.pause(true)
		claimed := q.claimWith(driver.Claim{Horizon: soon, Max: 10, Begin: 10, Visibility: far, Consumer: "c"})
		assert.True(t, claimed.Paused)
		assert.Empty(t, claimed.Records)
		assert.Equal(t, q.get("a").Due, claimed.Next, "Next is set as usual")
	}
	has(q, 3, 0, 0)
	assert.Equal(t, []driver.Status{driver.StatusDone},
		q.statuses(driver.Put{Partition: 1, Items: items("x", 1)}))
	other := q.claimWith(driver.Claim{Partition: 1, Max: 10, Visibility: far})
	assert.False(t, other.Paused)
	assert.Len(t, other.Records, 1, "the other partition is not paused")
	c, err := q.Count(t.Context(), 1)
	require.NoError(t, err)
	assert.False(t, c.Paused)
	for range 2 {
		q.pause(false)
	}
	assert.ElementsMatch(t, []string{"a", "b", "later"}, idsOf(q.claim(10)))
	assert.False(t, q.in("other").count().Paused)
}

// pauseBegin begins messages that were claimed before the pause.
func pauseBegin(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	firing := q.deliver("firing")
	q.put(item("a", 0), item("b", 0), item("early", soon/2))
	records := q.take(3)
	changes := changesOf(records)
	q.pause(true)
	for range 2 {
		for i, o := range q.apply(driver.OpBegin, changes...) {
			assert.Equal(t, driver.StatusPaused, o.Status, changes[i].ID)
		}
	}
	for _, r := range records {
		assert.Equal(t, driver.StateLeased, q.get(r.ID).State)
	}
	assert.Equal(t, driver.StatusDone, q.status(driver.OpBegin, firing),
		"the message had begun before the pause")
	wrong := changes[0]
	wrong.Token++
	assert.Equal(t, driver.StatusLeaseLost, q.status(driver.OpBegin, wrong))
	assert.Equal(t, driver.StatusLeaseLost, q.status(driver.OpAck, changes[0]), "it has not begun")
	q.pause(false)
	q.done(driver.OpBegin, changes[:2]...)
	q.done(driver.OpAck, append(changes[:2], firing)...)
}

// pauseTransitions makes all other transitions while the partition is paused.
func pauseTransitions(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	acked, retried, buried, expired, released := q.deliver("acked"), q.deliver("retried"),
		q.deliver("buried"), q.deliver("expired"), q.deliver("released")
	q.put(item("leased", 0))
	leased := changesOf(q.claim(1))
	q.pause(true)
	q.done(driver.OpExtend, driver.Change{ID: "acked", Token: acked.Token, Delay: far})
	q.done(driver.OpAck, acked)
	q.done(driver.OpExpire, expired)
	retried.Delay = far
	q.done(driver.OpRetry, retried)
	q.done(driver.OpBury, buried)
	q.done(driver.OpReplay, driver.Change{ID: "buried"})
	q.done(driver.OpExtend, driver.Change{ID: "leased", Token: leased[0].Token, Delay: far})
	q.done(driver.OpRelease, released, leased[0])
	for _, id := range []string{"leased", "released"} {
		r := q.get(id)
		assert.Equal(t, driver.StateScheduled, r.State, id)
		assert.Zero(t, r.Attempts+r.Crashes, id)
	}
	q.put(item("new", 0), item("gone", 0))
	q.done(driver.OpReschedule, driver.Change{ID: "new", Delay: far})
	q.done(driver.OpCancel, driver.Change{ID: "gone"})
	assert.Zero(t, has(q, 5, 0, 0).Crashed)
	assert.Empty(t, q.claim(10))
	q.pause(false)
	assert.ElementsMatch(t, []string{"buried", "leased", "released"}, idsOf(q.claim(10)))
}

// pauseLeases lets leases expire while the partition is paused. Claims end them as usual.
func pauseLeases(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	q.put(item("firing", 0))
	records := q.claimShort(1)
	q.batch(driver.Batch{Op: driver.OpBegin, Changes: changesOf(records)})
	q.put(item("leased", 0))
	q.claimShort(1)
	q.pause(true)
	q.pass()
	q.expire(2)
	assert.Equal(t, driver.StateScheduled, q.get("leased").State)
	assert.Zero(t, q.get("leased").Crashes)
	assert.Equal(t, driver.StateScheduled, q.get("firing").State)
	assert.Equal(t, 1, q.get("firing").Crashes)
}

// pauseLostAnswer loses the answer of a claim before the pause. The next claim returns its
// messages, so that the consumer can release them without a crash.
func pauseLostAnswer(t *testing.T, newStore Factory) {
	q := openRemote(t, newStore)
	q.put(item("firing", 0), item("leased", 0))
	claim := driver.Claim{Max: 2, MaxBytes: manyBytes, Begin: 1, Visibility: far, Consumer: "c"}
	_, err := q.Claim(t.Context(), claim)
	require.NoError(t, err)
	q.pause(true)
	claimed, err := q.Claim(t.Context(), claim)
	require.NoError(t, err)
	assert.True(t, claimed.Paused)
	require.Equal(t, []string{"firing", "leased"}, idsOf(claimed.Records))
	q.done(driver.OpRelease, changesOf(claimed.Records)...)
	assert.Zero(t, has(q, 2, 0, 0).Crashed)
}

// pauseRace begins and claims messages while the partition is being paused. No message begins in a
// call that is made after Pause has returned.
func pauseRace(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	for round := range testscale.Size(4) {
		var paused atomic.Bool
		var callers sync.WaitGroup
		begun := map[bool]*atomic.Int64{false: {}, true: {}} // after the pause
		for range 3 {
			callers.Go(func() {
				for deadline := time.Now().Add(hintTimeout); time.Now().Before(deadline); {
					after := paused.Load()
					claimed, err := q.Claim(t.Context(),
						driver.Claim{Max: 8, MaxBytes: manyBytes, Begin: 4, Visibility: far})
					if !assert.NoError(t, err) {
						return
					}
					for _, r := range claimed.Records {
						if r.State == driver.StateFiring {
							begun[after].Add(1)
						}
					}
					last := paused.Load()
					if len(claimed.Records) > 4 {
						outcomes, err := q.Apply(t.Context(),
							driver.Batch{Op: driver.OpBegin, Changes: changesOf(claimed.Records[4:])})
						if !assert.NoError(t, err) {
							return
						}
						for _, o := range outcomes {
							if o.Status == driver.StatusDone {
								begun[last].Add(1)
							} else {
								assert.Equal(t, driver.StatusPaused, o.Status)
							}
						}
					}
					if after {
						return
					}
				}
			})
		}
		for i := range 12 {
			q.put(items(fmt.Sprintf("m%d-%d-", round, i), 64)...)
		}
		q.pause(true)
		paused.Store(true)
		callers.Wait()
		assert.Zero(t, begun[true].Load(), "messages that began after the pause; %d began before", begun[false].Load())
		q.pause(false)
	}
}

// pauseHints watches a partition that is paused and resumed. Both send a hint with Due 0.
func pauseHints(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	hints, err := q.Watch(t.Context())
	require.NoError(t, err)
	for _, paused := range []bool{true, false} {
		drain(hints)
		require.Eventually(t, func() bool { // hints may be lost
			require.NoError(t, q.Pause(t.Context(), driver.Pause{Partition: 1, Paused: !paused}))
			drain(hints)
			require.NoError(t, q.Pause(t.Context(), driver.Pause{Partition: 1, Paused: paused}))
			select {
			case h := <-hints:
				return h == driver.Hint{Partition: 1}
			case <-time.After(time.Second):
				return false
			}
		}, hintTimeout, time.Millisecond)
	}
}

// pauseRestart restarts the store while a partition is paused.
func pauseRestart(t *testing.T, newStore Factory) {
	q := openKept(t, newStore)
	q.put(item("a", 0))
	q.pause(true)
	q = q.reopen()
	require.True(t, q.count().Paused)
	assert.Empty(t, q.claim(1))
	q.pause(false)
	q = q.reopen()
	require.False(t, q.count().Paused)
	assert.Len(t, q.claim(1), 1)
}

// pauseLate sends copies of a pause after the partition was resumed. They change nothing.
func pauseLate(t *testing.T, newStore Factory) {
	q := openRemote(t, newStore)
	pause := driver.Pause{Call: q.newCall("p", 1), Paused: true}
	send := func(p driver.Pause) error { return q.Pause(t.Context(), p) }
	require.NoError(t, send(pause))
	q.pause(false)
	require.NoError(t, send(pause), "a copy of the last call gets the same answer")
	assert.False(t, q.count().Paused)
	resume := pause
	resume.Call.Seq, resume.Paused = 2, false
	require.NoError(t, send(resume))
	var late *driver.LateError
	require.ErrorAs(t, send(pause), &late, "an older call")
	assert.False(t, q.count().Paused)
	pause.Call = q.newCall("q", 1)
	pause.Call.NotAfter = driver.InstantOf(q.now()) - 1
	require.ErrorAs(t, send(pause), &late)
	assert.False(t, q.count().Paused)
}
