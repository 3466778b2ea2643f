package timingwheel

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Ticks come at multiples of the period, up to one tick of the wheel later and never earlier.
// Delays do not add up. A shorter period than the tick of the wheel gives one for each tick.
func TestTickerKeepsItsPhase(t *testing.T) {
	t.Parallel()
	eachChannelShape(t, func(t *testing.T, tw *TimingWheel) {
		tick := time.Duration(tw.engine.config.ticks.Length())
		for _, d := range []time.Duration{1, 1500 * time.Microsecond, 10 * ms, 10*ms + 1, time.Second, time.Hour} {
			begin := time.Now()
			ticker := tw.NewTicker(d)
			last := time.Duration(-1)
			for k := range time.Duration(200) {
				at := (<-ticker.C).Sub(begin)
				assert.Equal(t, at, time.Since(begin), "the value differs from the current time")
				n := at / d // number of the tick, or of another one that was rounded up to the same time
				assert.Less(t, at-n*d, tick, "%v after %v", at, d)
				assert.True(t, d > 1 || at == (k+1)*tick, at)
				assert.Greater(t, n, last, "two ticks for one multiple")
				last = n
			}
			ticker.Stop()
		}
		assert.Zero(t, tw.Len())
	})
}

// A Flush fires the next tick early. The tick does not come again, and the phase stays.
func TestFlushFiresTheNextTickEarly(t *testing.T) {
	t.Parallel()
	eachChannelShape(t, func(t *testing.T, tw *TimingWheel) {
		ticker, begin := tw.NewTicker(70*ms), time.Now()
		for i := range 3 {
			if i > 0 {
				time.Sleep(5 * ms) // the first Flush comes at the time of arming, a whole period early
			}
			assert.Equal(t, 1, tw.Flush())
			assert.Equal(t, time.Duration(i)*5*ms, (<-ticker.C).Sub(begin))
		}
		assert.Equal(t, 280*ms, (<-ticker.C).Sub(begin))
		ticker.Stop()
	})
}

// In Manual mode an Advance sends one tick, however far it goes, and the phase stays.
func TestTickerInManualModeTicksOncePerAdvance(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tw := startWheel(t, Options{Manual: true, Start: start})
	ticker := tw.NewTicker(time.Minute)
	at := func(d time.Duration) time.Time { return start.Add(d) }
	assert.Zero(t, tw.Advance(at(time.Minute-1)))
	assert.Equal(t, 1, tw.Advance(at(time.Minute)))
	assert.Equal(t, at(time.Minute), <-ticker.C)
	assert.Equal(t, 1, tw.Advance(at(10*time.Minute+time.Second)), "eight ticks were missed")
	assert.Equal(t, at(10*time.Minute+time.Second), <-ticker.C)
	assert.Zero(t, tw.Advance(at(11*time.Minute-1)))
	assert.Equal(t, 1, tw.Advance(at(11*time.Minute)))
	ticker.Reset(time.Second)
	assertEmpty(t, ticker.C, "stale tick")
	assert.Equal(t, 1, tw.Advance(at(11*time.Minute+time.Second)))
	assert.Equal(t, at(11*time.Minute+time.Second), <-ticker.C)
}

func TestBadTickersPanic(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	ticker := tw.NewTicker(time.Hour)
	for range 2 {
		for message, call := range map[string]func(){
			"timingwheel: NewTicker: d is 0s; it must be positive":                 func() { tw.NewTicker(0) },
			"timingwheel: NewTicker: d is -1ns; it must be positive":               func() { tw.NewTicker(-1) },
			"timingwheel: Ticker.Reset: d is 0s; it must be positive":              func() { ticker.Reset(0) },
			"timingwheel: Ticker.Reset: d is -1m0s; it must be positive":           func() { ticker.Reset(-time.Minute) },
			"timingwheel: Ticks: d is 0s; it must be positive":                     func() { tw.Ticks(0) },
			"timingwheel: Ticks: d is -1s; it must be positive":                    func() { tw.Ticks(-time.Second) },
			"timingwheel: Reset called on a Ticker that was not made by NewTicker": func() { new(Ticker).Reset(1) },
		} {
			assert.PanicsWithValue(t, message, call)
		}
		tw.Stop() // the second round is on a stopped wheel
	}
	assert.NotPanics(t, new(Ticker).Stop, "time.Ticker does not panic either")
	assert.Panics(t, func() { NewTicker(0) })
}

func TestPeriodicSkipsMissedTicks(t *testing.T) {
	t.Parallel()
	const end = math.MaxInt64
	for _, c := range []struct{ next, period, now, want int64 }{
		{100, 10, 100, 110},
		{100, 10, 109, 110},
		{100, 10, 110, 120},
		{100, 10, 1234, 1240},
		{100, 10, 95, 110}, // flushed
		{100, 10, 90, 110}, // flushed at the time of arming
		{100, 1, 1_000_000, 1_000_001},
		{100, end, 100, end},
		{0, end, end - 1, end},
		{end - 5, 10, end - 5, end},
		{5, end - 5, end - 1, end},
	} {
		e := emitter{period: c.period, next: c.next}
		e.skipTo(c.now)
		assert.Equal(t, c.want, e.next, "%+v", c)
	}
}

// The ticker of a loop over Ticks is stopped when the loop is left.
func TestTicksStopsWithItsLoop(t *testing.T) {
	t.Parallel()
	eachChannelShape(t, func(t *testing.T, tw *TimingWheel) {
		ticks := tw.Ticks(70 * ms)
		assert.Zero(t, tw.Len(), "a ticker before the loop has begun")
		for range 2 {
			begin, n := time.Now(), 0
			for now := range ticks {
				n++
				synctest.Wait() // until the callback has armed the next tick
				assert.Equal(t, 1, tw.Len())
				assert.Equal(t, time.Duration(n)*70*ms, now.Sub(begin), "a loop must have its own phase")
				if n == 3 {
					break
				}
			}
			assert.Equal(t, 3, n)
			assert.Zero(t, tw.Len(), "after break")
		}
		require.Panics(t, func() {
			for range ticks {
				panic("in the body")
			}
		})
		assert.Zero(t, tw.Len(), "after a panic")

		begin, n := time.Now(), 0
		for now := range ticks {
			if n++; n == 1 {
				time.Sleep(245 * ms) // during the ticks at 140, 210 and 280
				continue
			}
			assert.Equal(t, []time.Duration{140 * ms, 350 * ms}[n-2], now.Sub(begin))
			if n == 3 {
				break
			}
		}
	})
}

func TestTicksEndsWithTheWheel(t *testing.T) {
	t.Parallel()
	eachChannelShape(t, func(t *testing.T, tw *TimingWheel) {
		var got [3]int
		ended := make(chan int, len(got))
		for i := range got {
			go func() {
				for range tw.Ticks(time.Duration(i+1) * time.Minute) {
					got[i]++
				}
				ended <- i
			}()
		}
		pass(6*time.Minute + 30*time.Second)
		assert.Empty(t, ended)
		tw.Stop()
		synctest.Wait()
		assert.Len(t, ended, len(got))
		assert.Equal(t, [3]int{6, 3, 2}, got)
		for range tw.Ticks(ms) {
			assert.Fail(t, "a tick on a stopped wheel")
		}
	})
}

// If the body stops the wheel while a tick waits, the loop ends without that tick.
func TestTicksEndsAlthoughATickWaits(t *testing.T) {
	t.Parallel()
	for range 30 { // a select would choose the tick every other time
		bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
			n := 0
			for range tw.Ticks(ms) {
				n++
				pass(5 * ms)
				tw.Stop()
			}
			assert.Equal(t, 1, n)
		})
	}
}

// Goroutines stop, reset and receive from one ticker. After the last Stop no tick comes and nothing
// is armed.
func TestRaceTickerIsSilentAfterTheLastStop(t *testing.T) {
	t.Parallel()
	raceChannel(t, func(t *testing.T, tw *TimingWheel) {
		for range scaled(20) + 2 {
			ticker := tw.NewTicker(time.Microsecond)
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					for range 300 {
						switch rand.IntN(10) {
						case 0:
							ticker.Stop()
						case 1:
							ticker.Reset(1 + rand.N(50*time.Microsecond))
						default:
							select {
							case <-ticker.C:
							case <-time.After(20 * time.Microsecond):
							}
						}
					}
				})
			}
			all.Wait()
			ticker.Reset(time.Microsecond)
			receive(t, ticker.C, "a tick")
			ticker.Stop()
			time.Sleep(50 * time.Microsecond)
			assert.Eventually(t, func() bool { return tw.Len() == 0 }, time.Minute, 10*time.Microsecond) // a callback may be late
			assertEmpty(t, ticker.C, "a tick after Stop")
		}
	})
}

// After a ticker's Reset no tick comes before the new period has passed.
func TestRaceTickerResetIsNeverStaleNorEarly(t *testing.T) {
	t.Parallel()
	raceChannel(t, func(t *testing.T, tw *TimingWheel) {
		ticker := tw.NewTicker(10 * time.Microsecond)
		defer ticker.Stop()
		for range scaled(3000) {
			d, set := 1+rand.N(50*time.Microsecond), time.Now()
			ticker.Reset(d)
			for n := range rand.IntN(4) {
				assert.GreaterOrEqual(t, (<-ticker.C).Sub(set), time.Duration(n+1)*d, "stale or early")
			}
		}
	})
}
