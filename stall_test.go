package timingwheel

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A driver, a caller, a run or an executor that stands still for longer than a word of a timer is
// understood. With a tick of 1 µs that is 14.3 hours; see far_test.go.

const longStall = 17 * time.Hour

// gate is an executor whose Go blocks until the gate is opened.
type gate chan struct{}

func (g gate) Go(f func()) {
	<-g
	f()
}

// While the executor's Go blocks, the driver does not come. What callers arm meanwhile does not
// take the clock past the timers that wait for it.
func TestTimersWaitForABlockedDriver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		open := make(gate)
		tw := startWheel(t, Options{Tick: micro, Executor: open, Shards: 1})
		ran := false
		tw.AfterFunc(time.Second, func() {})
		last := tw.AfterFunc(time.Hour, func() { ran = true })
		tw.engine.shards[0].placeAll()
		start := time.Now()
		for range longStall / time.Hour {
			pass(time.Hour)
			for range 2 * inboxSize {
				tw.AfterFunc(100*time.Hour, func() {})
			}
			tw.Stats()
		}
		at, ok := last.Deadline()
		require.True(t, ok)
		require.Equal(t, time.Hour, at.Sub(start))
		close(open)
		pass(time.Second)
		require.True(t, ran)
	})
}

// The same for the timers of a large bucket, of which an Inline callback blocks.
func TestCascadeWaitsForABlockedDriver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tw := startWheel(t, Options{Tick: micro, Executor: Inline, Shards: 1})
		ran := 0
		for k := range 4 * quantum {
			tw.AfterFunc(time.Second, func() {
				if k == 0 {
					time.Sleep(longStall)
				}
				ran++
			})
		}
		for range longStall / time.Hour {
			pass(time.Hour)
			tw.AfterFunc(100*time.Hour, func() {})
			tw.Stats()
		}
		pass(time.Hour)
		require.Equal(t, 4*quantum, ran)
	})
}

// A caller that was stopped between its reading of the clock and the lock arms what is due at once.
func TestArmWithAReadingOfLongAgo(t *testing.T) {
	t.Parallel()
	bubble(t, Options{Tick: micro}, func(t *testing.T, tw *TimingWheel) {
		s := tw.engine.shards[0]
		moved := tw.AfterFunc(100*time.Hour, func() {})
		tw.AfterFunc(time.Hour, func() {})
		pass(time.Second)
		now := s.Read()
		pass(longStall) // the driver has leapt for the timer of one hour
		ran := false
		s.armMu.Lock()
		s.arm(now+int64(time.Second), now, func() { ran = true }, 0)
		require.True(t, moved.rescheduleTo(now+int64(time.Second), now))
		pass(time.Second)
		require.True(t, ran)
		require.Zero(t, tw.Len())
	})
}

// A plan that is rescheduled at the beginning of a long run is due when the run ends.
func TestPlanRescheduledDuringALongRun(t *testing.T) {
	t.Parallel()
	for _, length := range []time.Duration{10 * time.Hour, longStall} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			t.Parallel()
			bubble(t, Options{Tick: micro}, func(t *testing.T, tw *TimingWheel) {
				start := time.Now()
				var runs []time.Duration
				handle := make(chan Timer, 1)
				plan := tw.ScheduleFunc(Every(time.Minute), func() {
					runs = append(runs, time.Since(start))
					if len(runs) > 1 {
						return
					}
					assert.True(t, (<-handle).Reschedule(time.Hour))
					for range length / time.Hour {
						time.Sleep(time.Hour)
						tw.AfterFunc(micro, func() {}) // the driver moves the clock on
					}
				})
				handle <- plan
				pass(length + time.Minute + time.Second)
				require.Equal(t, []time.Duration{time.Minute, time.Minute + length}, runs[:2])
				require.True(t, plan.Stop())
				require.Zero(t, tw.engine.shards[0].tickets())
			})
		})
	}
}

// A timer that is armed while Advance moves the clock on by hours is due in the next Advance.
func TestArmBesideALongAdvance(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Tick: micro, Manual: true, Start: modelStart})
	now := modelStart
	for range scaled(30) {
		beside(func() { tw.AfterFunc(time.Second, func() {}) }, func() {
			now = now.Add(longStall)
			tw.Advance(now)
		})
		now = now.Add(time.Minute)
		tw.Advance(now)
		require.Zero(t, tw.Len())
	}
}

// Deadline tells the same while Advance moves the clock on by weeks.
func TestDeadlineBesideALongAdvance(t *testing.T) {
	t.Parallel()
	const leap = 1000 * time.Hour
	tw := startWheel(t, Options{Tick: micro, Manual: true, Start: modelStart, Executor: &held{}})
	now := modelStart
	for range scaled(50) {
		deadlines := map[Timer]time.Time{}
		for k := range 200 {
			at := now.Add(time.Duration(k+1)*time.Second + time.Duration(k%2)*leap)
			deadlines[tw.AtFunc(at, func() {})] = at
		}
		tw.Len()
		beside(func() {
			for timer, want := range deadlines {
				at, ok := timer.Deadline()
				assert.True(t, ok)
				assert.Equal(t, want, at)
			}
		}, func() {
			now = now.Add(leap + time.Hour)
			tw.Advance(now)
		})
		for timer := range deadlines {
			require.True(t, timer.Stop())
		}
	}
}

// A due timer that is postponed again and again, while the owner gives tickets to what is due,
// stays in a list.
func TestTicketsForTimersThatArePostponed(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Tick: micro, Shards: 1, Executor: &held{}})
	s := &tw.engine.shards[0].shard
	timers := make([]Timer, 500)
	d := 50 * time.Hour
	postpone := func() {
		for _, timer := range timers {
			d += micro
			timer.Reschedule(d)
		}
	}
	for range scaled(100) {
		for k := range timers {
			timers[k] = tw.AfterFunc(time.Hour, func() {})
		}
		tw.Flush()
		postpone()
		beside(postpone, func() { s.own(func() { s.owner.age(s.owner.tick) }) })
		require.Zero(t, tw.Occupancy().Unseen)
		for _, timer := range timers {
			require.True(t, timer.Stop())
		}
		require.Zero(t, tw.Len())
		require.Zero(t, tw.engine.shards[0].tickets())
	}
}
