package timingwheel

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What package time says of its channels, as far as no other test is about it, and what
// docs/migrating.md says that differs.

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
