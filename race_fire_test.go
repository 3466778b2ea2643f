package timingwheel

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Races for the one moment in which a timer fires, many times over.

// eachTiny runs the test on small wheels, where timers meet.
func eachTiny(t *testing.T, test func(t *testing.T, tw *TimingWheel)) {
	t.Helper()
	t.Parallel()
	for _, opts := range tiny {
		t.Run(optionName(opts), func(t *testing.T) {
			t.Parallel()
			test(t, startWheel(t, opts))
		})
	}
}

// Two goroutines stop a timer just when it is due: one of three wins.
func TestRaceStopAgainstFire(t *testing.T) {
	eachTiny(t, func(t *testing.T, tw *TimingWheel) {
		l := newLedger()
		for range max(scaled(400), 40) {
			r := l.arm(tw, rand.N(60*time.Microsecond))
			var stoppers sync.WaitGroup
			for range 2 {
				stoppers.Go(func() {
					spin(rand.N(60 * time.Microsecond))
					r.stop()
				})
			}
			stoppers.Wait()
			require.False(t, r.timer.Stop(), "stopped, or too late: never both")
		}
		require.NoError(t, drainWheel(tw))
		l.settleAll(t, tw)
	})
}

// A Reschedule just when the timer is due either comes too late or moves the callback to the new
// time.
func TestRaceRescheduleAgainstFire(t *testing.T) {
	eachTiny(t, func(t *testing.T, tw *TimingWheel) {
		l := newLedger()
		for range max(scaled(400), 40) {
			r := l.arm(tw, rand.N(50*time.Microsecond))
			for range 4 {
				spin(rand.N(50 * time.Microsecond))
				// Later, or earlier than the last one.
				if !l.reset(r, rand.N(200*time.Microsecond)) {
					break
				}
			}
		}
		require.NoError(t, drainWheel(tw))
		verifyShards(t, tw.engine)
		l.settleAll(t, tw)
	})
}

// Many timers are due at one instant, and two goroutines stop and reschedule them just then.
// Workers claim the timers in lots, and one thing happens to each.
func TestRaceStopAndRescheduleAgainstABurst(t *testing.T) {
	eachTiny(t, func(t *testing.T, tw *TimingWheel) {
		l := newLedger()
		for range max(scaled(40), 4) {
			at := time.Now().Add(300 * time.Microsecond)
			var batch [200]*record
			for i := range batch {
				batch[i] = l.arm(tw, time.Until(at))
			}
			var both sync.WaitGroup
			both.Go(func() {
				spin(time.Until(at))
				for _, r := range batch[:100] {
					r.stop()
				}
			})
			both.Go(func() {
				spin(time.Until(at))
				for _, r := range batch[100:] {
					l.reset(r, rand.N(200*time.Microsecond))
				}
			})
			both.Wait()
		}
		require.NoError(t, drainWheel(tw))
		verifyShards(t, tw.engine)
		l.settleAll(t, tw)
	})
}

// Eight goroutines reschedule one timer at once, and then one does. The timer fires once, at the
// last time only.
func TestRaceRescheduleAgainstReschedule(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{WheelSize: 4, Levels: 2, Tick: 100 * time.Microsecond, Shards: 1})
	const bound = 10 * time.Millisecond
	for range max(scaled(20), 2) {
		start := time.Now()
		fired := make(chan time.Duration, 2)
		timer := tw.AfterFunc(time.Hour, func() { fired <- time.Since(start) })
		var movers sync.WaitGroup
		for range 8 {
			movers.Go(func() {
				for range 200 {
					timer.Reschedule(bound + rand.N(bound))
				}
			})
		}
		movers.Wait()
		notBefore := bound
		if last := time.Since(start) + bound; timer.Reschedule(bound) {
			notBefore = last
		}
		assert.GreaterOrEqual(t, receive(t, fired, "the timer"), notBefore)
		assert.False(t, timer.Stop())
		assert.Empty(t, fired)
	}
	assert.Zero(t, tw.Len())
}

// A timer that Reschedule takes out of a flush runs at its new time, not with the flush.
func TestRaceFlushThenReschedule(t *testing.T) {
	eachTiny(t, func(t *testing.T, tw *TimingWheel) {
		l := newLedger()
		for range max(scaled(30), 3) {
			var batch []*record
			for range 50 {
				batch = append(batch, l.arm(tw, time.Hour))
			}
			tw.Flush()
			for _, r := range batch {
				if !l.reset(r, time.Millisecond) {
					r.notBefore = 0 // it runs with the flush
				}
			}
			require.NoError(t, drainWheel(tw), "else the next Flush would take what was moved")
		}
		verifyShards(t, tw.engine)
		l.settleAll(t, tw)
	})
}

// Flush races Stop, Reschedule and the arming of the same timers. One thing happens to each, and a
// timer that is armed after the last Flush keeps its deadline.
func TestRaceFlushAgainstEverything(t *testing.T) {
	eachTiny(t, func(t *testing.T, tw *TimingWheel) {
		flushed, after := newLedger(), newLedger()
		flushed.hasty = true
		var all sync.WaitGroup
		for g := range 8 {
			all.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(g), 7))
				var board [32]atomic.Pointer[record]
				for range max(scaled(10), 1) {
					raceOne(flushed, tw, rng, &board, 50)
					tw.Flush()
				}
			})
		}
		all.Wait()
		for range 100 {
			after.arm(tw, rand.N(2*time.Millisecond))
		}
		require.NoError(t, drainWheel(tw))
		verifyShards(t, tw.engine)
		flushed.requireNoneLost(t)
		after.requireNoneLost(t)
		assert.Zero(t, tw.Flush())
	})
}

// Len is exact when it is quiet, whatever has raced before.
func TestLenIsExactAfterARace(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Shards: 4, WheelSize: 16, Levels: 2, Tick: 100 * time.Microsecond})
	l := newLedger()
	var all sync.WaitGroup
	var far [8][]Timer
	for g := range far {
		all.Go(func() {
			for i := range max(scaled(2000), 20) {
				timer := tw.AfterFunc(time.Hour+rand.N(time.Hour), func() {})
				switch i % 4 {
				case 0:
					timer.Stop()
				case 1:
					timer.Reschedule(2 * time.Hour)
					fallthrough
				default:
					far[g] = append(far[g], timer)
				}
				l.arm(tw, rand.N(time.Millisecond))
			}
		})
	}
	all.Wait()
	await(t, "the near ones fire", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		for len(l.records) > 0 && l.records[len(l.records)-1].runs.Load() == 1 {
			l.records = l.records[:len(l.records)-1]
		}
		return len(l.records) == 0
	})
	want := 0
	for _, timers := range far {
		want += len(timers)
	}
	assert.Equal(t, want, tw.Len())
	for _, timers := range far {
		for _, timer := range timers {
			require.True(t, timer.Stop())
		}
	}
	assert.Zero(t, tw.Len())
	verifyShards(t, tw.engine)
}
