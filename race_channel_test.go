package timingwheel

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

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
// nobody has received from it.
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

// Goroutines stop, reset and receive from one ticker. Once it has been stopped for good, nothing
// comes any more and nothing is armed.
func TestRaceTicker(t *testing.T) {
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
			assertEmpty(t, ticker.C, "after Stop")
			assert.Zero(t, tw.Len())
		}
	})
}

// After Reset of a ticker no tick comes before the new period has passed.
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
				for range tw.Tick(10 * time.Microsecond) { // ends with the wheel
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
