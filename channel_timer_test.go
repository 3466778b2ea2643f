package timingwheel

import (
	"math"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// channelShapes are wheels on which what has a channel is tested: callbacks run in all the ways.
var channelShapes = []Options{
	{},
	{Tick: 7 * ms, WheelSize: 4, Levels: 2},
	{Executor: Goroutines, Shards: 3},
	{Executor: Inline},
}

// eachChannelShape runs a test on fake time for each of channelShapes.
func eachChannelShape(t *testing.T, test func(t *testing.T, tw *TimingWheel)) {
	t.Helper()
	for _, opts := range channelShapes {
		t.Run(optionName(opts), func(t *testing.T) {
			t.Parallel()
			bubble(t, opts, test)
		})
	}
}

// roundUp is when a timer with the delay d is due on fake time, where the wheel is as old as the
// bubble.
func roundUp(tw *TimingWheel, d time.Duration) time.Duration {
	tick := time.Duration(tw.engine.ticks.Length())
	return (d + tick - 1) / tick * tick
}

func assertEmpty(t *testing.T, c <-chan time.Time, message string) {
	t.Helper()
	select {
	case v := <-c:
		assert.Fail(t, "a value was received", "%s: %v", message, v)
	default:
	}
}

// What is sent is the time of firing, as time.Now tells it, and it is sent once.
func TestNewTimerAndAfterSendTheTimeOnce(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(tw *TimingWheel, d time.Duration) <-chan time.Time{
		"After":           (*TimingWheel).After,
		"NewTimer":        func(tw *TimingWheel, d time.Duration) <-chan time.Time { return tw.NewTimer(d).C },
		"Reset after all": func(tw *TimingWheel, d time.Duration) <-chan time.Time { return resetTwice(tw, d).C },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachChannelShape(t, func(t *testing.T, tw *TimingWheel) {
				start := time.Now()
				for _, d := range []time.Duration{time.Nanosecond, ms, 1500 * time.Microsecond, 10 * ms, time.Hour, 400 * oneDay} {
					from := time.Since(start)
					c := make(tw, d)
					v := <-c
					assert.Equal(t, time.Now(), v, "%v", d)
					assert.Equal(t, roundUp(tw, from+d), time.Since(start), "%v", d)
					pass(time.Hour)
					assertEmpty(t, c, "once")
				}
				assert.Zero(t, tw.Len())
			})
		})
	}
}

// resetTwice is a timer that was stopped, and fired unheard, before its last setting.
func resetTwice(tw *TimingWheel, d time.Duration) *ChannelTimer {
	t := tw.NewTimer(d / 2)
	t.Stop()
	t.Reset(0)
	synctest.Wait()
	t.Reset(d)
	return t
}

func TestChannelTimerOfAnyDuration(t *testing.T) {
	t.Parallel()
	eachChannelShape(t, func(t *testing.T, tw *TimingWheel) {
		for _, d := range []time.Duration{0, -1, -time.Hour, math.MinInt64} {
			before := time.Now()
			assert.False(t, (<-tw.After(d)).After(before), "After(%v)", d)
			timer := tw.NewTimer(d)
			assert.False(t, (<-timer.C).After(before), "NewTimer(%v)", d)
			assert.False(t, timer.Reset(d))
			assert.False(t, (<-timer.C).After(before), "Reset(%v)", d)
		}
		never, timer := tw.After(math.MaxInt64), tw.NewTimer(math.MaxInt64)
		moved := tw.NewTimer(time.Hour)
		assert.True(t, moved.Reset(math.MaxInt64))
		pass(200 * oneYear)
		assertEmpty(t, never, "After")
		assertEmpty(t, timer.C, "NewTimer")
		assertEmpty(t, moved.C, "Reset")
		assert.True(t, timer.Stop())
		assert.True(t, moved.Stop())
	})
}

// The states in which Stop and Reset may find a timer, and what they say: true unless the value was
// received, or the timer was stopped. Whatever they say, no value of before is received afterwards.
func TestChannelTimerStopAndResetSayWhetherTheValueWasReceived(t *testing.T) {
	t.Parallel()
	for name, state := range map[string]struct {
		reach func(timer *ChannelTimer)
		want  bool
	}{
		"pending":             {func(*ChannelTimer) {}, true},
		"nearly due":          {func(*ChannelTimer) { time.Sleep(49 * ms) }, true},
		"moved":               {func(timer *ChannelTimer) { timer.Reset(time.Minute) }, true},
		"fired":               {func(*ChannelTimer) { pass(time.Minute) }, true},
		"received":            {func(timer *ChannelTimer) { <-timer.C }, false},
		"stopped":             {func(timer *ChannelTimer) { timer.Stop() }, false},
		"stopped when fired":  {func(timer *ChannelTimer) { pass(time.Minute); timer.Stop() }, false},
		"received, moved":     {func(timer *ChannelTimer) { <-timer.C; timer.Reset(time.Minute) }, true},
		"stopped, then moved": {func(timer *ChannelTimer) { timer.Stop(); timer.Reset(time.Minute) }, true},
		"fired, then moved":   {func(timer *ChannelTimer) { pass(time.Minute); timer.Reset(time.Minute) }, true},
		"due at once":         {func(timer *ChannelTimer) { timer.Reset(0) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachChannelShape(t, func(t *testing.T, tw *TimingWheel) {
				timer := tw.NewTimer(50 * ms)
				state.reach(timer)
				assert.Equal(t, state.want, timer.Stop(), "Stop")
				assertEmpty(t, timer.C, "after Stop")
				assert.False(t, timer.Stop(), "Stop again")
				pass(time.Hour)
				assertEmpty(t, timer.C, "long after Stop")
				assert.Zero(t, tw.Len())

				timer = tw.NewTimer(50 * ms)
				state.reach(timer)
				start := time.Now()
				assert.Equal(t, state.want, timer.Reset(2*time.Hour), "Reset")
				assertEmpty(t, timer.C, "after Reset")
				pass(2*time.Hour - 1)
				assertEmpty(t, timer.C, "before the new time")
				v := <-timer.C
				assert.GreaterOrEqual(t, v.Sub(start), 2*time.Hour)
				assert.Less(t, v.Sub(start), 2*time.Hour+time.Duration(tw.engine.ticks.Length()))
				assert.Zero(t, tw.Len())
			})
		})
	}
}

// Somebody who waits for the channel meanwhile receives the value of the last setting only.
func TestChannelTimerIsMovedUnderAReceiver(t *testing.T) {
	t.Parallel()
	eachChannelShape(t, func(t *testing.T, tw *TimingWheel) {
		start := time.Now()
		timer := tw.NewTimer(time.Minute)
		got := make(chan time.Time)
		go func() { got <- <-timer.C }()
		synctest.Wait()
		assert.True(t, timer.Reset(time.Hour))
		pass(30 * time.Minute)
		assert.True(t, timer.Stop())
		pass(time.Hour)
		assertEmpty(t, got, "it is stopped")
		assert.False(t, timer.Reset(2*time.Hour))
		assert.True(t, timer.Reset(time.Minute))
		assert.Equal(t, roundUp(tw, 91*time.Minute), (<-got).Sub(start))
	})
}

func TestChannelTimerNotMadeByNewTimerPanics(t *testing.T) {
	t.Parallel()
	var timer ChannelTimer
	assert.PanicsWithValue(t, "timingwheel: Stop of a ChannelTimer that was not made by NewTimer", func() { timer.Stop() })
	assert.PanicsWithValue(t, "timingwheel: Reset of a ChannelTimer that was not made by NewTimer", func() { timer.Reset(time.Second) })
}

// A stopped wheel sends nothing. What it has sent before is taken back all the same.
func TestChannelTimerOfAStoppedWheel(t *testing.T) {
	t.Parallel()
	eachChannelShape(t, func(t *testing.T, tw *TimingWheel) {
		pending, kept, after := tw.NewTimer(time.Hour), tw.NewTimer(time.Hour), tw.After(time.Hour)
		full, other := tw.NewTimer(0), tw.NewTimer(0)
		synctest.Wait()
		tw.Stop()
		assert.False(t, pending.Stop(), "discarded")
		assert.False(t, kept.Reset(0), "discarded")
		assert.True(t, full.Stop(), "its value was there")
		assert.True(t, other.Reset(0), "its value was there")
		assert.False(t, other.Stop(), "but it was not armed again")
		late, lateAfter := tw.NewTimer(0), tw.After(0)
		assert.False(t, late.Reset(0))
		assert.False(t, late.Stop())
		pass(2 * time.Hour)
		for _, c := range []<-chan time.Time{pending.C, kept.C, after, full.C, other.C, late.C, lateAfter} {
			assertEmpty(t, c, "the wheel is stopped")
		}
	})
}

func TestChannelTimerIsFlushed(t *testing.T) {
	t.Parallel()
	eachChannelShape(t, func(t *testing.T, tw *TimingWheel) {
		timer, after := tw.NewTimer(time.Hour), tw.After(time.Hour)
		time.Sleep(time.Minute)
		assert.Equal(t, 2, tw.Flush())
		assert.Equal(t, time.Now(), <-timer.C)
		assert.Equal(t, time.Now(), <-after)
		assert.False(t, timer.Stop())
	})
}

// In Manual mode Advance delivers, and the wheel's clock is what is sent.
func TestChannelTimerInManualMode(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tw := startWheel(t, Options{Manual: true, Start: start})
	timer, after, now := tw.NewTimer(time.Hour), tw.After(time.Hour), tw.NewTimer(0)
	assertEmpty(t, now.C, "before Advance")
	assert.Equal(t, 1, tw.Advance(start))
	assert.Equal(t, start, <-now.C)
	tw.Advance(start.Add(time.Hour - 1))
	assertEmpty(t, timer.C, "early")
	assertEmpty(t, after, "early")
	assert.Equal(t, 2, tw.Advance(start.Add(90*time.Minute)))
	assert.Equal(t, start.Add(90*time.Minute), <-timer.C)
	assert.Equal(t, start.Add(90*time.Minute), <-after)

	assert.False(t, timer.Reset(time.Hour))
	tw.Advance(start.Add(150 * time.Minute))
	assert.True(t, timer.Reset(time.Minute), "it has fired, and nobody has received the value")
	assertEmpty(t, timer.C, "the stale value")
	tw.Advance(start.Add(151 * time.Minute))
	assert.Equal(t, start.Add(151*time.Minute), <-timer.C)
}

// heldCalls is an executor that keeps what it is given.
type heldCalls struct{ calls []func() }

func (h *heldCalls) Go(f func()) { h.calls = append(h.calls, f) }

func (h *heldCalls) run() {
	for _, f := range h.calls {
		f()
	}
	h.calls = nil
}

// A timer that is due, but held by an executor, has not fired.
func TestChannelTimerThatAnExecutorHolds(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var held heldCalls
	tw := startWheel(t, Options{Manual: true, Start: start, Executor: &held})
	stopped, moved, left := tw.NewTimer(ms), tw.NewTimer(ms), tw.NewTimer(ms)
	tw.Advance(start.Add(ms))
	assert.True(t, stopped.Stop())
	assert.True(t, moved.Reset(time.Hour))
	held.run()
	assertEmpty(t, stopped.C, "it is stopped")
	assertEmpty(t, moved.C, "it is moved")
	assert.Equal(t, start.Add(ms), <-left.C)
	tw.Advance(start.Add(2 * time.Hour))
	held.run()
	assert.Equal(t, start.Add(2*time.Hour), <-moved.C)
}

// claimedUnder runs meanwhile while the callback of a timer that has been claimed waits for the
// emitter, and then lets it come too late.
func claimedUnder(t *testing.T, tw *TimingWheel, e *emitter, meanwhile func()) {
	t.Helper()
	e.mu.Lock()
	e.resetLocked(5 * ms)
	await(t, "a claim", func() bool { return tw.engine.shards[0].counted().fired > 0 })
	meanwhile()
	e.mu.Unlock()
	await(t, "the callback's end", func() bool { return !tw.engine.shards[0].occupied() })
}

// Between its claim and its sending a timer can be stopped and reset: the callback finds that it
// comes too late.
func TestChannelTimerStoppedAfterItsClaim(t *testing.T) {
	t.Parallel()
	t.Run("Stop", func(t *testing.T) {
		t.Parallel()
		tw := startWheel(t, Options{Shards: 1})
		timer := tw.NewTimer(time.Hour)
		claimedUnder(t, tw, &timer.emitter, func() { assert.True(t, timer.emitter.stopLocked()) })
		assertEmpty(t, timer.C, "a stale value")
		assert.False(t, timer.Stop())
	})
	t.Run("Reset", func(t *testing.T) {
		t.Parallel()
		tw := startWheel(t, Options{Shards: 1})
		timer := tw.NewTimer(time.Hour)
		claimedUnder(t, tw, &timer.emitter, func() { assert.True(t, timer.emitter.resetLocked(time.Hour)) })
		assertEmpty(t, timer.C, "a stale value")
		assert.Equal(t, 1, tw.Len())
		assert.True(t, timer.Reset(0), "it was pending")
		receive(t, timer.C, "the new value")
	})
	t.Run("Stop of the wheel", func(t *testing.T) {
		t.Parallel()
		tw := startWheel(t, Options{Shards: 1})
		timer := tw.NewTimer(time.Hour)
		claimedUnder(t, tw, &timer.emitter, func() {
			tw.Stop()
			assert.False(t, timer.emitter.stopLocked())
		})
		assertEmpty(t, timer.C, "a stale value")
	})
}

// What a stopped timer holds can be collected, although its relay serves others.
func TestStoppedChannelTimerIsCollected(t *testing.T) {
	tw := startWheel(t, Options{})
	timers := make([]weak.Pointer[ChannelTimer], 100)
	for i := range timers {
		timer := tw.NewTimer(time.Hour)
		timers[i] = weak.Make(timer)
		require.True(t, timer.Stop())
	}
	keep := tw.NewTimer(time.Hour)
	await(t, "the timers are collected", func() bool {
		runtime.GC()
		for _, timer := range timers {
			if timer.Value() != nil {
				return false
			}
		}
		return true
	})
	assert.True(t, keep.Stop())
}

// No more than package time, whose figures are measured along.
func TestChannelTimersAllocateNoMoreThanPackageTime(t *testing.T) {
	if underRace || underInvariants {
		t.Skip("sync.Pool forgets under the race detector, verify allocates")
	}
	tw := startWheel(t, Options{})
	timer, ticker := tw.NewTimer(time.Hour), tw.NewTicker(time.Hour)
	for name, of := range map[string]struct{ ours, theirs func() }{
		"NewTimer":     {func() { tw.NewTimer(time.Hour).Stop() }, func() { time.NewTimer(time.Hour).Stop() }},
		"After":        {func() { tw.After(time.Hour) }, func() { time.After(time.Hour) }},
		"NewTicker":    {func() { tw.NewTicker(time.Hour).Stop() }, func() { time.NewTicker(time.Hour).Stop() }},
		"Reset":        {func() { timer.Reset(time.Hour) }, func() {}},
		"Ticker.Reset": {func() { ticker.Reset(time.Hour) }, func() {}},
		"Stop, Reset":  {func() { timer.Stop(); timer.Reset(time.Hour) }, func() {}},
	} {
		assert.LessOrEqual(t, testing.AllocsPerRun(1000, of.ours), testing.AllocsPerRun(1000, of.theirs), name)
	}
}

func TestChannelFunctionsUseDefault(t *testing.T) {
	t.Parallel()
	before := time.Now()
	v := receive(t, After(ms), "After")
	assert.GreaterOrEqual(t, v.Sub(before), ms)
	assert.Contains(t, v.String(), " m=", "a monotonic reading, as from package time")
	before = time.Now()
	v = receive(t, NewTimer(ms).C, "NewTimer")
	assert.GreaterOrEqual(t, v.Sub(before), ms)
	assert.Contains(t, v.String(), " m=")
	assert.Same(t, Default(), NewTimer(ms).emitter.wheel)
}
