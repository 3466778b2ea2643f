package timingwheel

import (
	"context"
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

// channelFaces are the ways to wait for d. Each returns a channel with the time at which the wait
// has ended.
var channelFaces = map[string]func(tw *TimingWheel, d time.Duration) <-chan time.Time{
	"After":           (*TimingWheel).After,
	"NewChannelTimer": func(tw *TimingWheel, d time.Duration) <-chan time.Time { return tw.NewChannelTimer(d).C },
	"NewTicker":       func(tw *TimingWheel, d time.Duration) <-chan time.Time { return tw.NewTicker(max(d, 1)).C },
	"Reset": func(tw *TimingWheel, d time.Duration) <-chan time.Time {
		timer := tw.NewChannelTimer(time.Hour)
		timer.Reset(d)
		return timer.C
	},
	"a ticker's Reset": func(tw *TimingWheel, d time.Duration) <-chan time.Time {
		ticker := tw.NewTicker(time.Hour)
		ticker.Reset(max(d, 1))
		return ticker.C
	},
	"Sleep": func(tw *TimingWheel, d time.Duration) <-chan time.Time {
		slept := make(chan time.Time, 1)
		go func() {
			if tw.Sleep(context.Background(), d) == nil {
				slept <- tw.Now()
			}
		}()
		synctest.Wait()
		return slept
	},
}

// eachChannelFace runs a test on fake time for each of channelFaces and channelShapes.
func eachChannelFace(t *testing.T, test func(t *testing.T, tw *TimingWheel, face func(*TimingWheel, time.Duration) <-chan time.Time)) {
	t.Helper()
	for name, face := range channelFaces {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachChannelShape(t, func(t *testing.T, tw *TimingWheel) { test(t, tw, face) })
		})
	}
}

func TestChannelsAcceptAnyDuration(t *testing.T) {
	t.Parallel()
	eachChannelFace(t, func(t *testing.T, tw *TimingWheel, face func(*TimingWheel, time.Duration) <-chan time.Time) {
		never := face(tw, math.MaxInt64)
		pass(200 * oneYear)
		assertEmpty(t, never, "MaxInt64")
		for _, d := range []time.Duration{0, -1, -time.Hour, math.MinInt64} {
			before := time.Now()
			assert.False(t, (<-face(tw, d)).After(before.Add(time.Duration(tw.engine.config.ticks.Length()))), d)
		}
		tw.Stop() // of tickers
	})
}

// A stopped wheel sends nothing. Stop and Reset still remove a value that was sent before, and a
// tick can be received.
func TestStoppedWheelSendsNothing(t *testing.T) {
	t.Parallel()
	eachChannelFace(t, func(t *testing.T, tw *TimingWheel, face func(*TimingWheel, time.Duration) <-chan time.Time) {
		full, other, ticker := tw.NewChannelTimer(0), tw.NewChannelTimer(0), tw.NewTicker(70*ms)
		pending, kept := tw.NewChannelTimer(time.Hour), tw.NewChannelTimer(time.Hour)
		before := face(tw, time.Hour)
		pass(100 * ms)
		tw.Stop()
		assert.False(t, pending.Stop(), "the timer was discarded")
		assert.False(t, kept.Reset(0), "the timer was discarded")
		assert.True(t, full.Stop(), "Stop removes the value")
		assert.True(t, other.Reset(0), "Reset removes the value")
		assert.False(t, other.Stop(), "Reset must not arm the timer")
		<-ticker.C
		ticker.Reset(ms)
		late := face(tw, ms)
		pass(2 * time.Hour)
		for _, c := range []<-chan time.Time{before, late, full.C, other.C, ticker.C, pending.C, kept.C} {
			assertEmpty(t, c, "the wheel is stopped")
		}
	})
}

func TestFlushSendsAtOnce(t *testing.T) {
	t.Parallel()
	eachChannelFace(t, func(t *testing.T, tw *TimingWheel, face func(*TimingWheel, time.Duration) <-chan time.Time) {
		c := face(tw, time.Hour)
		time.Sleep(time.Minute)
		assert.Equal(t, 1, tw.Flush())
		assert.Equal(t, time.Now(), <-c)
		tw.Stop()
	})
}

// In Manual mode Advance sends the time of the wheel's clock.
func TestManualModeSendsTheWheelsClock(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, face := range channelFaces {
		synctest.Test(t, func(t *testing.T) {
			tw := startWheel(t, Options{Manual: true, Start: start})
			c := face(tw, time.Hour)
			assert.Zero(t, tw.Advance(start.Add(time.Hour-1)), name)
			assertEmpty(t, c, name)
			assert.Equal(t, 1, tw.Advance(start.Add(90*time.Minute)), name)
			assert.Equal(t, start.Add(90*time.Minute), <-c, name)
			assert.NoError(t, tw.Sleep(t.Context(), 0), "a zero duration needs no Advance")
			tw.Stop()
		})
	}
}

func TestChannelTimerNotMadeByNewTimerPanics(t *testing.T) {
	t.Parallel()
	var timer ChannelTimer
	assert.PanicsWithValue(t, "timingwheel: Stop called on a ChannelTimer that was not made by NewChannelTimer", func() { timer.Stop() })
	assert.PanicsWithValue(t, "timingwheel: Reset called on a ChannelTimer that was not made by NewChannelTimer", func() { timer.Reset(time.Second) })
}

// A timer or ticker can be stopped and reset between its claim and the send, or while an executor
// holds its call. The callback then sends nothing.
func TestNothingIsSentAfterAClaimThatComesTooLate(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(tw *TimingWheel, e *emitter) (pending bool){
		"Stop":             func(_ *TimingWheel, e *emitter) bool { return e.stop() },
		"Reset":            func(_ *TimingWheel, e *emitter) bool { return e.reset(time.Hour) },
		"the wheel's Stop": func(tw *TimingWheel, e *emitter) bool { tw.Stop(); return !e.stop() },
	} {
		for _, claimed := range []bool{true, false} {
			for _, periodic := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/claimed=%v/periodic=%v", name, claimed, periodic), func(t *testing.T) {
					t.Parallel()
					opts, calls, proceed := Options{Shards: 1}, &held{}, make(chan struct{})
					if claimed {
						opts.Around = func(_ Call, run func()) { <-proceed; run() }
					} else {
						opts.Executor = calls
					}
					tw := startWheel(t, opts)
					timer, ticker := tw.NewChannelTimer(time.Hour), tw.NewTicker(time.Hour)
					c, e := timer.C, &timer.emitter
					if periodic {
						c, e = ticker.C, &ticker.emitter
					}
					e.reset(5 * ms)
					await(t, "a claim", func() bool { return tw.engine.shards[0].claimed.fired.Load() > 0 || calls.len() > 0 })
					assert.True(t, act(tw, e))
					close(proceed)
					calls.release()
					await(t, "the end of the callback", func() bool { return tw.Stats().Running == 0 })
					assertEmpty(t, c, "stale value")
					assert.Equal(t, map[string]int{"Stop": 1, "Reset": 2}[name], tw.Len())
					if name == "Reset" && claimed {
						e.reset(ms)
						receive(t, c, "a new value")
					}
				})
			}
		}
	}
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
// number are the same as with package time, and so are the results of the calls.
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
		switch random.IntN(10) {
		case 0:
			s.note("Stop", s.stop())
		case 1, 2:
			s.note("Reset", s.reset(d))
		case 3, 4:
			s.receive(got)
		case 5, 6:
			select {
			case at := <-s.c:
				s.note("polled", at.Sub(start))
			default:
				s.note("polled", nil)
			}
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
	stopped := unreferencedStopped(tw)
	reuse := tw.NewChannelTimer(time.Hour)
	for range 3 {
		runtime.GC()
	}
	assert.NotNil(t, long.timer.Value())
	assert.NotNil(t, long.ticker.Value())
	await(t, "the collection of the timers that were stopped or have fired", func() bool {
		runtime.GC()
		return stopped.Value() == nil && short.timer.Value() == nil && tw.Len() == 4
	})
	assert.True(t, reuse.Stop())
	fired := tw.Stats().Fired
	await(t, "further ticks", func() bool { return tw.Stats().Fired > fired+3 })
	assert.NotNil(t, short.ticker.Value())
	tw.Stop()
	await(t, "the collection of all timers and tickers of the stopped wheel", func() bool {
		runtime.GC()
		return long.timer.Value() == nil && long.ticker.Value() == nil && short.ticker.Value() == nil
	})
}

func unreferencedStopped(tw *TimingWheel) weak.Pointer[ChannelTimer] {
	timer := tw.NewChannelTimer(time.Hour)
	timer.Stop()
	return weak.Make(timer)
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
// its value is received, or one call to Stop or Reset returns true.
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
