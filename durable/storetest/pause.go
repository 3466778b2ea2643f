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
	{"Pause/EveryTransition", func(_ *testing.T, q *queue) { checkTransitions(q, true) }},
	{"Pause/LostAnswer", only(remote, pauseLostAnswer)},
	{"Pause/Race", pauseRace},
	{"Pause/Late", only(remote, pauseLate)},
}

// pause pauses partition 0, or resumes it, with a call that has no copies.
func (q *queue) pause(paused bool) {
	q.t.Helper()
	require.NoError(q.t, q.Pause(q.t.Context(), driver.Pause{Paused: paused}))
	require.Equal(q.t, paused, q.count().Paused)
}

// pauseClaim claims from a paused partition and from another partition of the queue. Claims end
// expired leases as usual.
func pauseClaim(t *testing.T, q *queue) {
	q.put(item("early", far))
	early := q.claimWith(driver.Claim{Horizon: 2 * far, Max: 1, Visibility: far})
	assert.False(t, early.Paused)
	q.put(item("a", 0), item("b", 0), item("later", soon/2))
	q.claimWith(driver.Claim{Horizon: soon, Max: 1, Visibility: q.short()})
	q.pass()
	for range 2 { // a repetition changes nothing
		q.pause(true)
		claimed := q.claimWith(driver.Claim{Horizon: soon, Max: 10, Begin: 10, Visibility: far, Consumer: "c"})
		assert.True(t, claimed.Paused)
		assert.Empty(t, claimed.Records)
		assert.Equal(t, q.get("a").Due, claimed.Next, "Next is set as usual")
	}
	assert.Equal(t, driver.StatusPaused, q.status(driver.OpBegin, changesOf(early.Records)[0]))
	has(q, 3, 1, 0)
	assert.Equal(t, []driver.Status{driver.StatusDone}, q.statuses(driver.Put{Partition: 1, Items: items("x", 1)}))
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

// pauseLostAnswer loses the answer of a claim before the pause. The next claim returns its
// messages, so that the consumer can release them without a crash.
func pauseLostAnswer(t *testing.T, q *queue) {
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
func pauseRace(t *testing.T, q *queue) {
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
					left := changesOf(claimed.Records[min(4, len(claimed.Records)):])
					outcomes, err := q.Apply(t.Context(), driver.Batch{Op: driver.OpBegin, Changes: left})
					if !assert.NoError(t, err) {
						return
					}
					for _, o := range outcomes {
						if o.Status == driver.StatusDone {
							begun[last].Add(1)
						} else { // early: the call of another caller holds the message
							assert.Contains(t, []driver.Status{driver.StatusPaused, driver.StatusEarly}, o.Status)
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
func pauseHints(t *testing.T, q *queue) {
	hints, err := q.Watch(t.Context())
	require.NoError(t, err)
	for _, paused := range []bool{true, false} {
		drain(t, hints)
		require.Eventually(t, func() bool { // hints may be lost
			require.NoError(t, q.Pause(t.Context(), driver.Pause{Partition: 1, Paused: !paused}))
			drain(t, hints)
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

// pauseLate sends a copy of a pause after the partition was resumed. It changes nothing.
func pauseLate(t *testing.T, q *queue) {
	pause := driver.Pause{Call: q.newCall("p", 1), Paused: true}
	require.NoError(t, q.Pause(t.Context(), pause))
	q.pause(false)
	require.NoError(t, q.Pause(t.Context(), pause), "a copy of the last call gets the same answer")
	assert.False(t, q.count().Paused)
}
