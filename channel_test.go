package timingwheel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// channelShapes are options for tests of timers with channels. They cover all ways to run
// callbacks.
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

// roundUp returns when a timer with delay d fires on fake time. The wheel was made when the bubble
// began.
func roundUp(tw *TimingWheel, d time.Duration) time.Duration {
	tick := time.Duration(tw.engine.config.ticks.Length())
	return (d + tick - 1) / tick * tick
}

func assertEmpty(t *testing.T, c <-chan time.Time, message string) {
	t.Helper()
	select {
	case v := <-c:
		assert.Fail(t, "unexpected value in the channel", "%s: %v", message, v)
	default:
	}
}

// The value is the time of firing, as time.Now returns it, and it is sent once.
func TestNewChannelTimerAndAfterSendTheTimeOnce(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(tw *TimingWheel, d time.Duration) <-chan time.Time{
		"After":           (*TimingWheel).After,
		"NewChannelTimer": func(tw *TimingWheel, d time.Duration) <-chan time.Time { return tw.NewChannelTimer(d).C },
		"Reset":           func(tw *TimingWheel, d time.Duration) <-chan time.Time { return resetTwice(tw, d).C },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachChannelShape(t, func(t *testing.T, tw *TimingWheel) {
				start := time.Now()
				for _, d := range []time.Duration{time.Nanosecond, ms, 1500 * time.Microsecond, 10 * ms, time.Hour, 400 * day} {
					from := time.Since(start)
					c := make(tw, d)
					v := <-c
					assert.Equal(t, time.Now(), v, "%v", d)
					assert.Equal(t, roundUp(tw, from+d), time.Since(start), "%v", d)
					pass(time.Hour)
					assertEmpty(t, c, "sent twice")
				}
				assert.Zero(t, tw.Len())
			})
		})
	}
}

// resetTwice returns a timer that was stopped, and that has fired without a receiver, before it was
// reset to d.
func resetTwice(tw *TimingWheel, d time.Duration) *ChannelTimer {
	t := tw.NewChannelTimer(d / 2)
	t.Stop()
	t.Reset(0)
	synctest.Wait()
	t.Reset(d)
	return t
}

func TestChannelTimerAcceptsAnyDuration(t *testing.T) {
	t.Parallel()
	eachChannelShape(t, func(t *testing.T, tw *TimingWheel) {
		for _, d := range []time.Duration{0, -1, -time.Hour, math.MinInt64} {
			before := time.Now()
			assert.False(t, (<-tw.After(d)).After(before), "After(%v)", d)
			timer := tw.NewChannelTimer(d)
			assert.False(t, (<-timer.C).After(before), "NewChannelTimer(%v)", d)
			assert.False(t, timer.Reset(d))
			assert.False(t, (<-timer.C).After(before), "Reset(%v)", d)
		}
		never, timer := tw.After(math.MaxInt64), tw.NewChannelTimer(math.MaxInt64)
		moved := tw.NewChannelTimer(time.Hour)
		assert.True(t, moved.Reset(math.MaxInt64))
		pass(200 * oneYear)
		assertEmpty(t, never, "After")
		assertEmpty(t, timer.C, "NewChannelTimer")
		assertEmpty(t, moved.C, "Reset")
		assert.True(t, timer.Stop())
		assert.True(t, moved.Stop())
	})
}

// Stop and Reset return true unless the value was received or the timer was stopped. Afterwards no
// stale value can be received, whatever the state of the timer was.
func TestStopAndResetOfAChannelTimerAreExactInEachState(t *testing.T) {
	t.Parallel()
	for name, state := range map[string]struct {
		reach func(timer *ChannelTimer)
		want  bool
	}{
		"pending":             {func(*ChannelTimer) {}, true},
		"almost due":          {func(*ChannelTimer) { time.Sleep(49 * ms) }, true},
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
				timer := tw.NewChannelTimer(50 * ms)
				state.reach(timer)
				assert.Equal(t, state.want, timer.Stop(), "Stop")
				assertEmpty(t, timer.C, "after Stop")
				assert.False(t, timer.Stop(), "Stop again")
				pass(time.Hour)
				assertEmpty(t, timer.C, "long after Stop")
				assert.Zero(t, tw.Len())

				timer = tw.NewChannelTimer(50 * ms)
				state.reach(timer)
				start := time.Now()
				assert.Equal(t, state.want, timer.Reset(2*time.Hour), "Reset")
				assertEmpty(t, timer.C, "after Reset")
				pass(2*time.Hour - 1)
				assertEmpty(t, timer.C, "before the new time")
				v := <-timer.C
				assert.GreaterOrEqual(t, v.Sub(start), 2*time.Hour)
				assert.Less(t, v.Sub(start), 2*time.Hour+time.Duration(tw.engine.config.ticks.Length()))
				assert.Zero(t, tw.Len())
			})
		})
	}
}

// A goroutine that waits for the channel during calls of Reset receives only the last value.
func TestWaitingReceiverGetsTheValueOfTheLastReset(t *testing.T) {
	t.Parallel()
	eachChannelShape(t, func(t *testing.T, tw *TimingWheel) {
		start := time.Now()
		timer := tw.NewChannelTimer(time.Minute)
		got := make(chan time.Time)
		go func() { got <- <-timer.C }()
		synctest.Wait()
		assert.True(t, timer.Reset(time.Hour))
		pass(30 * time.Minute)
		assert.True(t, timer.Stop())
		pass(time.Hour)
		assertEmpty(t, got, "the timer is stopped")
		assert.False(t, timer.Reset(2*time.Hour))
		assert.True(t, timer.Reset(time.Minute))
		assert.Equal(t, roundUp(tw, 91*time.Minute), (<-got).Sub(start))
	})
}

func TestChannelTimerNotMadeByNewTimerPanics(t *testing.T) {
	t.Parallel()
	var timer ChannelTimer
	assert.PanicsWithValue(t, "timingwheel: Stop of a ChannelTimer that was not made by NewChannelTimer", func() { timer.Stop() })
	assert.PanicsWithValue(t, "timingwheel: Reset of a ChannelTimer that was not made by NewChannelTimer", func() { timer.Reset(time.Second) })
}

// A stopped wheel sends nothing. Stop and Reset still remove a value that was sent before.
func TestChannelTimerOnAStoppedWheelSendsNothing(t *testing.T) {
	t.Parallel()
	eachChannelShape(t, func(t *testing.T, tw *TimingWheel) {
		pending, kept, after := tw.NewChannelTimer(time.Hour), tw.NewChannelTimer(time.Hour), tw.After(time.Hour)
		full, other := tw.NewChannelTimer(0), tw.NewChannelTimer(0)
		synctest.Wait()
		tw.Stop()
		assert.False(t, pending.Stop(), "the timer was discarded")
		assert.False(t, kept.Reset(0), "the timer was discarded")
		assert.True(t, full.Stop(), "Stop removes the value")
		assert.True(t, other.Reset(0), "Reset removes the value")
		assert.False(t, other.Stop(), "Reset must not arm the timer")
		late, lateAfter := tw.NewChannelTimer(0), tw.After(0)
		assert.False(t, late.Reset(0))
		assert.False(t, late.Stop())
		pass(2 * time.Hour)
		for _, c := range []<-chan time.Time{pending.C, kept.C, after, full.C, other.C, late.C, lateAfter} {
			assertEmpty(t, c, "the wheel is stopped")
		}
	})
}

func TestFlushFiresChannelTimers(t *testing.T) {
	t.Parallel()
	eachChannelShape(t, func(t *testing.T, tw *TimingWheel) {
		timer, after := tw.NewChannelTimer(time.Hour), tw.After(time.Hour)
		time.Sleep(time.Minute)
		assert.Equal(t, 2, tw.Flush())
		assert.Equal(t, time.Now(), <-timer.C)
		assert.Equal(t, time.Now(), <-after)
		assert.False(t, timer.Stop())
	})
}

// In Manual mode Advance sends the time of the wheel's clock.
func TestChannelTimerInManualModeSendsTheWheelsClock(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tw := startWheel(t, Options{Manual: true, Start: start})
	timer, after, now := tw.NewChannelTimer(time.Hour), tw.After(time.Hour), tw.NewChannelTimer(0)
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
	assert.True(t, timer.Reset(time.Minute), "the timer has fired, and the value was not received")
	assertEmpty(t, timer.C, "stale value")
	tw.Advance(start.Add(151 * time.Minute))
	assert.Equal(t, start.Add(151*time.Minute), <-timer.C)
}

// heldCalls is an executor that collects its calls until run is called.
type heldCalls struct{ calls []func() }

func (h *heldCalls) Go(f func()) { h.calls = append(h.calls, f) }

func (h *heldCalls) run() {
	for _, f := range h.calls {
		f()
	}
	h.calls = nil
}

// A timer that is due has not fired while an executor holds its call.
func TestChannelTimerHeldByAnExecutorCanBeStopped(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var held heldCalls
	tw := startWheel(t, Options{Manual: true, Start: start, Executor: &held})
	stopped, moved, left := tw.NewChannelTimer(ms), tw.NewChannelTimer(ms), tw.NewChannelTimer(ms)
	tw.Advance(start.Add(ms))
	assert.True(t, stopped.Stop())
	assert.True(t, moved.Reset(time.Hour))
	held.run()
	assertEmpty(t, stopped.C, "the timer is stopped")
	assertEmpty(t, moved.C, "the timer was reset")
	assert.Equal(t, start.Add(ms), <-left.C)
	tw.Advance(start.Add(2 * time.Hour))
	held.run()
	assert.Equal(t, start.Add(2*time.Hour), <-moved.C)
}

// claimedUnder locks the emitter until its timer has been claimed and meanwhile has returned. The
// callback then comes too late.
func claimedUnder(t *testing.T, tw *TimingWheel, e *emitter, meanwhile func()) {
	t.Helper()
	e.mu.Lock()
	e.resetLocked(5 * ms)
	await(t, "a claim", func() bool { return tw.engine.shards[0].claimed.fired.Load() > 0 })
	meanwhile()
	e.mu.Unlock()
	await(t, "the end of the callback", func() bool { return tw.Stats().Running == 0 })
}

// A timer can be stopped and reset between its claim and the send. The callback then sends nothing.
func TestChannelTimerStoppedAfterItsClaimSendsNothing(t *testing.T) {
	t.Parallel()
	t.Run("Stop", func(t *testing.T) {
		t.Parallel()
		tw := startWheel(t, Options{Shards: 1})
		timer := tw.NewChannelTimer(time.Hour)
		claimedUnder(t, tw, &timer.emitter, func() { assert.True(t, timer.emitter.stopLocked()) })
		assertEmpty(t, timer.C, "stale value")
		assert.False(t, timer.Stop())
	})
	t.Run("Reset", func(t *testing.T) {
		t.Parallel()
		tw := startWheel(t, Options{Shards: 1})
		timer := tw.NewChannelTimer(time.Hour)
		claimedUnder(t, tw, &timer.emitter, func() { assert.True(t, timer.emitter.resetLocked(time.Hour)) })
		assertEmpty(t, timer.C, "stale value")
		assert.Equal(t, 1, tw.Len())
		assert.True(t, timer.Reset(0), "the timer was pending")
		receive(t, timer.C, "the new value")
	})
	t.Run("Stop of the wheel", func(t *testing.T) {
		t.Parallel()
		tw := startWheel(t, Options{Shards: 1})
		timer := tw.NewChannelTimer(time.Hour)
		claimedUnder(t, tw, &timer.emitter, func() {
			tw.Stop()
			assert.False(t, timer.emitter.stopLocked())
		})
		assertEmpty(t, timer.C, "stale value")
	})
}

// A stopped timer can be garbage-collected although another timer reuses its relay.
func TestStoppedChannelTimerIsCollected(t *testing.T) {
	tw := startWheel(t, Options{})
	timers := make([]weak.Pointer[ChannelTimer], 100)
	for i := range timers {
		timer := tw.NewChannelTimer(time.Hour)
		timers[i] = weak.Make(timer)
		require.True(t, timer.Stop())
	}
	keep := tw.NewChannelTimer(time.Hour)
	await(t, "the collection of the timers", func() bool {
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

func TestChannelTimersAllocateNoMoreThanPackageTime(t *testing.T) {
	if underRace || underInvariants {
		t.Skip("sync.Pool drops objects under the race detector, and verify allocates")
	}
	tw := startWheel(t, Options{})
	timer, ticker := tw.NewChannelTimer(time.Hour), tw.NewTicker(time.Hour)
	for name, of := range map[string]struct{ own, std func() }{
		"NewChannelTimer": {func() { tw.NewChannelTimer(time.Hour).Stop() }, func() { time.NewTimer(time.Hour).Stop() }},
		"After":           {func() { tw.After(time.Hour) }, func() { time.After(time.Hour) }},
		"NewTicker":       {func() { tw.NewTicker(time.Hour).Stop() }, func() { time.NewTicker(time.Hour).Stop() }},
		"Reset":           {func() { timer.Reset(time.Hour) }, func() {}},
		"Ticker.Reset":    {func() { ticker.Reset(time.Hour) }, func() {}},
		"Stop, Reset":     {func() { timer.Stop(); timer.Reset(time.Hour) }, func() {}},
	} {
		assert.LessOrEqual(t, testing.AllocsPerRun(1000, of.own), testing.AllocsPerRun(1000, of.std), name)
	}
}

func TestChannelFunctionsUseDefault(t *testing.T) {
	t.Parallel()
	before := time.Now()
	v := receive(t, After(ms), "After")
	assert.GreaterOrEqual(t, v.Sub(before), ms)
	assert.Contains(t, v.String(), " m=", "the value has no monotonic reading")
	before = time.Now()
	v = receive(t, NewChannelTimer(ms).C, "NewChannelTimer")
	assert.GreaterOrEqual(t, v.Sub(before), ms)
	assert.Contains(t, v.String(), " m=")
	assert.Same(t, Default(), NewChannelTimer(ms).emitter.wheel)
}

// channelSubject is a timer or ticker of package time or of a wheel, with goroutines that wait for
// it.
type channelSubject struct {
	c     <-chan time.Time
	stop  func() any
	reset func(d time.Duration) any
	log   []string
	wait  int // receivers
}

func (s *channelSubject) note(what string, v any) {
	s.log = append(s.log, fmt.Sprintf("%v %v", what, v))
}

// receive starts one more goroutine that waits. It reports the value only, because any of several
// goroutines may receive it.
func (s *channelSubject) receive(got chan<- time.Time) {
	s.wait++
	go func() { got <- <-s.c }()
}

// Goroutines wait while a timer or a ticker is stopped and reset. The values, their times and their
// number are those of package time, and so are the results of the calls.
func TestModelWaitingReceiversGetTheSameAsWithPackageTime(t *testing.T) {
	t.Parallel()
	for seed := range scaledSeeds(200) {
		opts := channelShapes[seed%4]
		opts.Tick = ms
		bubble(t, opts, func(t *testing.T, tw *TimingWheel) {
			for _, kind := range []string{"timer", "ticker"} {
				std, own := subjects(tw, kind)
				require.Equal(t, play(std, kind, seed), play(own, kind, seed), "%s, seed %d", kind, seed)
			}
		})
	}
}

func subjects(tw *TimingWheel, kind string) (std, own *channelSubject) {
	if kind == "timer" {
		a, b := time.NewTimer(5*ms), tw.NewChannelTimer(5*ms)
		return &channelSubject{c: a.C, stop: func() any { return a.Stop() }, reset: func(d time.Duration) any { return a.Reset(d) }},
			&channelSubject{c: b.C, stop: func() any { return b.Stop() }, reset: func(d time.Duration) any { return b.Reset(d) }}
	}
	a, b := time.NewTicker(5*ms), tw.NewTicker(5*ms)
	return &channelSubject{c: a.C, stop: func() any { a.Stop(); return nil }, reset: func(d time.Duration) any { a.Reset(max(d, ms)); return nil }},
		&channelSubject{c: b.C, stop: func() any { b.Stop(); return nil }, reset: func(d time.Duration) any { b.Reset(max(d, ms)); return nil }}
}

// play makes random calls, which are the same for each seed, and returns their log.
func play(s *channelSubject, kind string, seed uint64) []string {
	s.reset(5 * ms) // time has passed for the subject that plays second
	random := rand.New(rand.NewPCG(seed, 1))
	start, got := time.Now(), make(chan time.Time, 1000)
	for range 200 {
		d := time.Duration(random.IntN(14)-3) * ms
		switch random.IntN(8) {
		case 0:
			s.note("Stop", s.stop())
		case 1, 2:
			s.note("Reset", s.reset(d))
		case 3, 4:
			s.receive(got)
		default:
			time.Sleep(d)
		}
		synctest.Wait()
		for len(got) > 0 {
			s.wait--
			s.note("received", (<-got).Sub(start))
		}
	}
	for s.stop(); s.wait > 0; s.wait-- { // end the goroutines that wait
		s.reset(ms)
		<-got
	}
	s.stop()
	return s.log
}

func TestOnlyOneOfSeveralReceiversGetsTheValue(t *testing.T) {
	t.Parallel()
	eachChannelShape(t, func(t *testing.T, tw *TimingWheel) {
		for _, c := range []<-chan time.Time{tw.NewChannelTimer(time.Hour).C, tw.After(time.Hour)} {
			got, end := make(chan time.Time, 5), make(chan struct{})
			for range cap(got) {
				go func() {
					select {
					case v := <-c:
						got <- v
					case <-end:
					}
				}()
			}
			pass(3 * time.Hour)
			assert.Len(t, got, 1)
			close(end)
			synctest.Wait()
		}
	})
}

// The channel never changes and has a buffer of one value. Unlike with package time, len shows the
// value.
func TestChannelHasABufferOfOneValue(t *testing.T) {
	t.Parallel()
	eachChannelShape(t, func(t *testing.T, tw *TimingWheel) {
		timer, ticker := tw.NewChannelTimer(time.Hour), tw.NewTicker(time.Hour)
		for _, of := range []struct {
			c     *<-chan time.Time
			stop  func()
			reset func(d time.Duration)
		}{
			{&timer.C, func() { timer.Stop() }, func(d time.Duration) { timer.Reset(d) }},
			{&ticker.C, ticker.Stop, ticker.Reset},
		} {
			c := *of.c
			require.Equal(t, 1, cap(c))
			for range 3 {
				of.reset(time.Hour)
				require.Empty(t, c)
				pass(2 * time.Hour)
				require.Len(t, c, 1)
				of.stop()
				require.Empty(t, c)
				require.Equal(t, c, *of.c)
			}
		}
	})
}

// The program no longer refers to its timers and tickers. The wheel keeps timers until they fire,
// and tickers until the wheel is stopped.
func TestWheelKeepsUnreferencedTimers(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	long, short := unreferenced(tw)
	for range 3 {
		runtime.GC()
	}
	assert.NotNil(t, long.timer.Value())
	assert.NotNil(t, long.ticker.Value())
	await(t, "the collection of the timer that has fired", func() bool {
		runtime.GC()
		return short.timer.Value() == nil && tw.Len() == 3
	})
	fired := tw.Stats().Fired
	await(t, "further ticks", func() bool { return tw.Stats().Fired > fired+3 })
	assert.NotNil(t, short.ticker.Value())
	tw.Stop()
	await(t, "the collection of all timers and tickers of the stopped wheel", func() bool {
		runtime.GC()
		return long.timer.Value() == nil && long.ticker.Value() == nil && short.ticker.Value() == nil
	})
}

type unreferencedPair struct {
	timer  weak.Pointer[ChannelTimer]
	ticker weak.Pointer[Ticker]
}

func unreferenced(tw *TimingWheel) (long, short unreferencedPair) {
	pair := func(d time.Duration) unreferencedPair {
		return unreferencedPair{weak.Make(tw.NewChannelTimer(d)), weak.Make(tw.NewTicker(d))}
	}
	return pair(time.Hour), pair(5 * ms)
}

// poll receives the value in the channel, or returns the zero time.
func poll(c <-chan time.Time) (v time.Time) {
	select {
	case v = <-c:
	default:
	}
	return v
}

// A timer and a ticker of a wheel, and those of package time, get the same random calls at whole
// ticks. The results are the same.
func TestModelChannelsBehaveLikePackageTime(t *testing.T) {
	t.Parallel()
	for seed := range scaledSeeds(200) {
		opts := channelShapes[seed%4]
		opts.Tick = ms
		bubble(t, opts, func(t *testing.T, tw *TimingWheel) {
			random := rand.New(rand.NewPCG(seed, 0))
			std, own := time.NewTimer(10*ms), tw.NewChannelTimer(10*ms)
			stdTicker, ownTicker := time.NewTicker(7*ms), tw.NewTicker(7*ms)
			for step := range 300 {
				d := time.Duration(random.IntN(20)) * ms
				at := []any{"seed %d, step %d", seed, step}
				switch random.IntN(9) {
				case 0:
					require.Equal(t, std.Stop(), own.Stop(), at...)
				case 1, 2:
					require.Equal(t, std.Reset(d), own.Reset(d), at...)
				case 3:
					stdTicker.Stop()
					ownTicker.Stop()
				case 4:
					stdTicker.Reset(d + ms)
					ownTicker.Reset(d + ms)
				default:
					time.Sleep(d)
				}
				synctest.Wait()
				if random.IntN(2) == 0 {
					require.Equal(t, poll(std.C), poll(own.C), at...)
				}
				if random.IntN(2) == 0 {
					require.Equal(t, poll(stdTicker.C), poll(ownTicker.C), at...)
				}
			}
			stdTicker.Stop()
			ownTicker.Stop()
		})
	}
}

// raceChannel runs a test on wheels with short ticks, for each way to run callbacks.
func raceChannel(t *testing.T, test func(t *testing.T, tw *TimingWheel)) {
	t.Helper()
	for _, executor := range []Executor{nil, Goroutines, Inline} {
		opts := Options{Tick: minTick, WheelSize: 8, Levels: 3, Shards: 2, Executor: executor}
		t.Run(optionName(opts), func(t *testing.T) {
			t.Parallel()
			test(t, startWheel(t, opts))
		})
	}
}

// Goroutines stop, reset and receive from one timer. For each setting exactly one thing happens:
// its value is received, or one call of Stop or Reset returns true.
func TestRaceChannelTimerEndsEachSettingOnce(t *testing.T) {
	t.Parallel()
	raceChannel(t, func(t *testing.T, tw *TimingWheel) {
		for range scaled(20) + 2 {
			var set, received, stopped, moved atomic.Int64
			set.Store(1)
			timer := tw.NewChannelTimer(rand.N(100 * time.Microsecond))
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					for range 200 {
						switch rand.IntN(8) {
						case 0:
							if timer.Stop() {
								stopped.Add(1)
							}
						case 1, 2:
							set.Add(1)
							if timer.Reset(rand.N(100 * time.Microsecond)) {
								moved.Add(1)
							}
						case 3:
							runtime.Gosched()
						default:
							select {
							case <-timer.C:
								received.Add(1)
							case <-time.After(20 * time.Microsecond):
							}
						}
					}
				})
			}
			all.Wait()
			if timer.Stop() {
				stopped.Add(1)
			}
			assert.Equal(t, set.Load(), received.Load()+stopped.Load()+moved.Load(),
				"received %v, stopped %v, moved %v", &received, &stopped, &moved)
			assertEmpty(t, timer.C, "a value after the last Stop")
		}
		assert.Zero(t, tw.Len())
		verifyShards(t, tw.engine)
	})
}

// One goroutine sets a timer and receives from it. Each value belongs to the last setting, and the
// results of Stop and Reset are exact.
func TestRaceChannelTimerIsNeverStaleNorEarly(t *testing.T) {
	t.Parallel()
	raceChannel(t, func(t *testing.T, tw *TimingWheel) {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				d, set := 50*time.Microsecond, time.Now()
				timer, open := tw.NewChannelTimer(d), true
				for range scaled(5000) {
					if wait := rand.N(150 * time.Microsecond); rand.IntN(2) == 0 {
						select {
						case v := <-timer.C:
							assert.True(t, open, "a value after Stop, or a second value")
							assert.GreaterOrEqual(t, v.Sub(set), d, "stale or early")
							open = false
						case <-time.After(wait):
						}
					}
					if rand.IntN(4) == 0 {
						assert.Equal(t, open, timer.Stop())
						open = false
						continue
					}
					was := open
					d, set, open = rand.N(100*time.Microsecond), time.Now(), true
					assert.Equal(t, was, timer.Reset(d))
				}
				timer.Stop()
			})
		}
		all.Wait()
		assert.Zero(t, tw.Len())
	})
}

// Two timers have the same deadline. A goroutine receives from one of them. Stop of the other one
// always returns true, because no goroutine has received from it.
func TestRaceStopOfATimerWithoutReceiverReturnsTrue(t *testing.T) {
	t.Parallel()
	raceChannel(t, func(t *testing.T, tw *TimingWheel) {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range scaled(500) {
					a, b := tw.NewChannelTimer(50*time.Microsecond), tw.NewChannelTimer(50*time.Microsecond)
					var received, other *ChannelTimer
					select {
					case <-a.C:
						received, other = a, b
					case <-b.C:
						received, other = b, a
					}
					assert.False(t, received.Stop())
					if rand.IntN(2) == 0 {
						assert.True(t, other.Stop())
					} else {
						assert.True(t, other.Reset(time.Hour))
						assert.True(t, other.Stop())
					}
					assertEmpty(t, other.C, "stale value")
				}
			})
		}
		all.Wait()
		assert.Zero(t, tw.Len())
	})
}

// Relays are reused by other timers. Each value arrives at its own timer and not early.
func TestRaceReusedRelaysSendToTheRightTimer(t *testing.T) {
	t.Parallel()
	raceChannel(t, func(t *testing.T, tw *TimingWheel) {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range scaled(100) {
					var timers [20]*ChannelTimer
					var due [20]time.Time
					for i := range timers {
						d := rand.N(300 * time.Microsecond)
						due[i] = time.Now().Add(d)
						timers[i] = tw.NewChannelTimer(d)
					}
					for i := 1; i < len(timers); i += 2 {
						assert.True(t, timers[i].Stop())
					}
					for i := 0; i < len(timers); i += 2 {
						assert.False(t, (<-timers[i].C).Before(due[i]), "early, or the value of another timer")
						assertEmpty(t, timers[i+1].C, "the timer was stopped")
					}
				}
			})
		}
		all.Wait()
	})
}

// The wheel is stopped while goroutines reset timers and tickers and receive from them. Nothing is
// sent afterwards.
func TestRaceChannelsAreSilentAfterTheWheelsStop(t *testing.T) {
	t.Parallel()
	for range scaled(100) + 3 {
		tw := startWheel(t, Options{Tick: minTick, Shards: 2})
		timer, ticker := tw.NewChannelTimer(time.Microsecond), tw.NewTicker(time.Microsecond)
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				for range 50 {
					timer.Reset(rand.N(50 * time.Microsecond))
					ticker.Reset(1 + rand.N(50*time.Microsecond))
					select {
					case <-timer.C:
					case <-ticker.C:
					case <-time.After(50 * time.Microsecond):
					}
				}
			})
			all.Go(func() {
				for range tw.Ticks(10 * time.Microsecond) { // ends when the wheel is stopped
				}
			})
		}
		time.AfterFunc(rand.N(2*ms), tw.Stop)
		all.Wait()
		tw.Stop()
		timer.Stop()
		ticker.Stop()
		assert.False(t, timer.Reset(0))
		ticker.Reset(1)
		assertEmpty(t, timer.C, "a value after Stop")
		assertEmpty(t, ticker.C, "a tick after Stop")
	}
}
