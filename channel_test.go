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
				for _, d := range []time.Duration{time.Nanosecond, ms, 1500 * time.Microsecond, 10 * ms, time.Hour, 400 * day} {
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

// script is a timer or ticker, of package time or ours, with goroutines that wait for it.
type script struct {
	c     <-chan time.Time
	stop  func() any
	reset func(d time.Duration) any
	log   []string
	wait  int // receivers
}

func (s *script) note(what string, v any) { s.log = append(s.log, fmt.Sprintf("%v %v", what, v)) }

// receive lets one more goroutine wait. Only what was received is told, as which of several has it
// is open.
func (s *script) receive(got chan<- time.Time) {
	s.wait++
	go func() { got <- <-s.c }()
}

// Goroutines wait while a timer, or a ticker, is stopped, reset and left alone: what they receive,
// when, and how many of them, is as with package time, and so is what the calls return.
func TestReceiversGetWhatPackageTimeSends(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		opts := channelShapes[seed%4]
		opts.Tick = ms
		bubble(t, opts, func(t *testing.T, tw *TimingWheel) {
			for _, kind := range []string{"timer", "ticker"} {
				their, our := scripts(tw, kind)
				require.Equal(t, play(their, kind, seed), play(our, kind, seed), "%s, seed %d", kind, seed)
			}
		})
	}
}

func scripts(tw *TimingWheel, kind string) (their, our *script) {
	if kind == "timer" {
		a, b := time.NewTimer(5*ms), tw.NewTimer(5*ms)
		return &script{c: a.C, stop: func() any { return a.Stop() }, reset: func(d time.Duration) any { return a.Reset(d) }},
			&script{c: b.C, stop: func() any { return b.Stop() }, reset: func(d time.Duration) any { return b.Reset(d) }}
	}
	a, b := time.NewTicker(5*ms), tw.NewTicker(5*ms)
	return &script{c: a.C, stop: func() any { a.Stop(); return nil }, reset: func(d time.Duration) any { a.Reset(max(d, ms)); return nil }},
		&script{c: b.C, stop: func() any { b.Stop(); return nil }, reset: func(d time.Duration) any { b.Reset(max(d, ms)); return nil }}
}

// play makes calls at random, which are the same for each seed, and returns what came of them.
func play(s *script, kind string, seed uint64) []string {
	s.reset(5 * ms) // whoever plays second begins anew
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
	for s.stop(); s.wait > 0; s.wait-- { // nobody is left behind
		s.reset(ms)
		<-got
	}
	s.stop()
	return s.log
}

// One value is there for one receiver, however many wait.
func TestOneReceiverGetsTheValue(t *testing.T) {
	t.Parallel()
	eachChannelShape(t, func(t *testing.T, tw *TimingWheel) {
		for _, c := range []<-chan time.Time{tw.NewTimer(time.Hour).C, tw.After(time.Hour)} {
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

// The channel is one for ever and has room for one value, which can be seen there, other than with
// package time.
func TestChannelHasRoomForOneValue(t *testing.T) {
	t.Parallel()
	eachChannelShape(t, func(t *testing.T, tw *TimingWheel) {
		timer, ticker := tw.NewTimer(time.Hour), tw.NewTicker(time.Hour)
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

// Nobody refers to them any more: the wheel keeps them, timers until they fire, and tickers until
// the wheel is stopped.
func TestUnreferencedTimersAreKept(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	long, short := unreferenced(tw)
	for range 3 {
		runtime.GC()
	}
	assert.NotNil(t, long.timer.Value())
	assert.NotNil(t, long.ticker.Value())
	await(t, "the timer that has fired is let go", func() bool {
		runtime.GC()
		return short.timer.Value() == nil && tw.Len() == 3
	})
	fired := tw.Stats().Fired
	await(t, "the ticker ticks on", func() bool { return tw.Stats().Fired > fired+3 })
	assert.NotNil(t, short.ticker.Value())
	tw.Stop()
	await(t, "a stopped wheel keeps nothing", func() bool {
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
		return unreferencedPair{weak.Make(tw.NewTimer(d)), weak.Make(tw.NewTicker(d))}
	}
	return pair(time.Hour), pair(5 * ms)
}

// poll receives what is there, or nothing.
func poll(c <-chan time.Time) (v time.Time) {
	select {
	case v = <-c:
	default:
	}
	return v
}

// The same calls of a timer and a ticker of package time and of ours, at moments at which their
// precision does not tell them apart, have the same results.
func TestChannelsDoWhatPackageTimeDoes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		opts := channelShapes[seed%4]
		opts.Tick = ms
		bubble(t, opts, func(t *testing.T, tw *TimingWheel) {
			random := rand.New(rand.NewPCG(seed, 0))
			their, our := time.NewTimer(10*ms), tw.NewTimer(10*ms)
			theirTicker, ourTicker := time.NewTicker(7*ms), tw.NewTicker(7*ms)
			for step := range 300 {
				d := time.Duration(random.IntN(20)) * ms
				at := []any{"seed %d, step %d", seed, step}
				switch random.IntN(9) {
				case 0:
					require.Equal(t, their.Stop(), our.Stop(), at...)
				case 1, 2:
					require.Equal(t, their.Reset(d), our.Reset(d), at...)
				case 3:
					theirTicker.Stop()
					ourTicker.Stop()
				case 4:
					theirTicker.Reset(d + ms)
					ourTicker.Reset(d + ms)
				default:
					time.Sleep(d)
				}
				synctest.Wait()
				if random.IntN(2) == 0 {
					require.Equal(t, poll(their.C), poll(our.C), at...)
				}
				if random.IntN(2) == 0 {
					require.Equal(t, poll(theirTicker.C), poll(ourTicker.C), at...)
				}
			}
			theirTicker.Stop()
			ourTicker.Stop()
		})
	}
}

// raceChannel runs a test with a wheel of quick ticks, for each way to run callbacks.
func raceChannel(t *testing.T, test func(t *testing.T, tw *TimingWheel)) {
	t.Helper()
	for _, executor := range []Executor{nil, Goroutines, Inline} {
		opts := Options{Tick: 10 * time.Microsecond, WheelSize: 8, Levels: 3, Shards: 2, Executor: executor}
		t.Run(optionName(opts), func(t *testing.T) {
			t.Parallel()
			test(t, startWheel(t, opts))
		})
	}
}

// Goroutines stop, reset and receive from one timer. Each setting of it comes to one end: its value
// is received, or one call of Stop or Reset says that it was not.
func TestRaceChannelTimerEndsEachSettingOnce(t *testing.T) {
	t.Parallel()
	raceChannel(t, func(t *testing.T, tw *TimingWheel) {
		for range scaled(20) + 2 {
			var set, received, stopped, moved atomic.Int64
			set.Store(1)
			timer := tw.NewTimer(rand.N(100 * time.Microsecond))
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
			assertEmpty(t, timer.C, "after the last Stop")
		}
		assert.Zero(t, tw.Len())
		verifyShards(t, tw.engine)
	})
}

// One goroutine sets a timer and receives from it: what it receives belongs to the last setting,
// and Stop and Reset say exactly whether it has received it.
func TestRaceChannelTimerIsNeverStaleNorEarly(t *testing.T) {
	t.Parallel()
	raceChannel(t, func(t *testing.T, tw *TimingWheel) {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				d, set := 50*time.Microsecond, time.Now()
				timer, open := tw.NewTimer(d), true
				for range scaled(5000) {
					if wait := rand.N(150 * time.Microsecond); rand.IntN(2) == 0 {
						select {
						case v := <-timer.C:
							assert.True(t, open, "a value after Stop, or a second one")
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

// Of two timers with one deadline one is received, the other is stopped, however close it is:
// no goroutine has received from it.
func TestRaceTheOtherTimerIsAlwaysStopped(t *testing.T) {
	t.Parallel()
	raceChannel(t, func(t *testing.T, tw *TimingWheel) {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range scaled(500) {
					a, b := tw.NewTimer(50*time.Microsecond), tw.NewTimer(50*time.Microsecond)
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
					assertEmpty(t, other.C, "stale")
				}
			})
		}
		all.Wait()
		assert.Zero(t, tw.Len())
	})
}

// Relays go from timer to timer. Each value arrives where it belongs, not before its time.
func TestRaceRelaysServeManyTimers(t *testing.T) {
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
						timers[i] = tw.NewTimer(d)
					}
					for i := 1; i < len(timers); i += 2 {
						assert.True(t, timers[i].Stop())
					}
					for i := 0; i < len(timers); i += 2 {
						assert.False(t, (<-timers[i].C).Before(due[i]), "early: another timer's value")
						assertEmpty(t, timers[i+1].C, "it was stopped")
					}
				}
			})
		}
		all.Wait()
	})
}

// The wheel is stopped under timers and tickers that others set and wait for.
func TestRaceChannelsAndStopOfTheWheel(t *testing.T) {
	t.Parallel()
	for range scaled(100) + 3 {
		tw := startWheel(t, Options{Tick: 10 * time.Microsecond, Shards: 2})
		timer, ticker := tw.NewTimer(time.Microsecond), tw.NewTicker(time.Microsecond)
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
				for range tw.Ticks(10 * time.Microsecond) { // ends with the wheel
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
		assertEmpty(t, timer.C, "after Stop")
		assertEmpty(t, ticker.C, "after Stop")
	}
}
