package timingwheel

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestZeroTimerIsInert(t *testing.T) {
	t.Parallel()
	var timer Timer
	assert.False(t, timer.Stop())
	assert.False(t, timer.Reschedule(0))
	assert.False(t, timer.RescheduleAt(time.Now()))
	_, ok := timer.Deadline()
	assert.False(t, ok)
}

// AtFunc and RescheduleAt take times with and without a monotonic reading, in any time zone.
func TestAtFuncIsNeverEarlyForAnyKindOfTime(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	ran := make(chan time.Time, 1)
	for name, strip := range map[string]func(time.Time) time.Time{
		"monotonic": func(at time.Time) time.Time { return at },
		"wall":      func(at time.Time) time.Time { return at.Round(0) },
		"zone":      func(at time.Time) time.Time { return at.Round(0).UTC() },
	} {
		start := time.Now()
		at := strip(time.Now().Add(20 * time.Millisecond))
		tw.AtFunc(at, func() { ran <- time.Now() })
		// time.Now reads the wall clock and the monotonic clock one after the other.
		assert.Greater(t, receive(t, ran, name).Sub(start), 20*time.Millisecond-time.Microsecond, name)

		timer := tw.AtFunc(strip(time.Now().Add(time.Hour)), func() { ran <- time.Now() })
		start = time.Now()
		require.True(t, timer.RescheduleAt(strip(time.Now().Add(20*time.Millisecond))))
		assert.Greater(t, receive(t, ran, name).Sub(start), 20*time.Millisecond-time.Microsecond, name)

		tw.AtFunc(strip(time.Now().Add(-time.Hour)), func() { ran <- time.Now() })
		receive(t, ran, "a time that has passed: "+name)
	}
	tw.AtFunc(time.Time{}, func() { ran <- time.Now() })
	receive(t, ran, "the zero time")
}

// 64 goroutines arm, stop and reschedule timers and stop timers of other goroutines while the
// timers expire. Each timer fires once, was stopped, or was discarded by the wheel's Stop.
func TestRaceEachTimerEndsOnce(t *testing.T) {
	t.Parallel()
	for i, opts := range tiny {
		for _, stopWheel := range []bool{false, true} {
			t.Run(optionName(opts)+map[bool]string{true: ",stopped"}[stopWheel], func(t *testing.T) {
				t.Parallel()
				tw := startWheel(t, opts)
				l := newLedger()
				steps := max(scaled(2000), 200)
				var board [32]atomic.Pointer[tracked] // timers that any goroutine may stop
				var done atomic.Int32
				var all sync.WaitGroup
				for g := range 64 {
					all.Go(func() {
						raceSteps(l, tw, rand.New(rand.NewPCG(uint64(i), uint64(g))), &board, steps, runtime.Gosched)
						done.Add(1)
					})
				}
				if stopWheel {
					await(t, "half of the goroutines are done", func() bool { return done.Load() >= 32 || tw.Stats().Armed > uint64(16*steps) })
					tw.Stop()
				}
				all.Wait()
				if stopWheel {
					require.NoError(t, tw.Shutdown(t.Context()))
					l.requireCounted(t, tw)
					return
				}
				l.requireNoneLostAndCounted(t, tw)
			})
		}
	}
}

// raceSteps arms, stops and reschedules timers at random. A timer on the board may be stopped by
// any goroutine. A timer is rescheduled only by the goroutine that armed it.
func raceSteps(l *ledger, tw *TimingWheel, rng *rand.Rand, board *[32]atomic.Pointer[tracked], steps int, yield func()) {
	var own []*tracked
	for range steps {
		d := time.Duration(rng.IntN(3000)-100) * time.Microsecond
		switch rng.IntN(8) {
		case 0, 1, 2:
			r := l.arm(tw, d)
			own = append(own, r)
			board[rng.IntN(len(board))].Store(r)
		case 3:
			if r := board[rng.IntN(len(board))].Load(); r != nil {
				r.stop()
			}
		case 4:
			if len(own) > 0 {
				k := rng.IntN(len(own))
				own[k].stop()
				own[k] = own[len(own)-1]
				own = own[:len(own)-1]
			}
		case 5, 6:
			if len(own) > 0 {
				l.reset(own[rng.IntN(len(own))], d)
			}
		case 7:
			yield()
		}
	}
}

// eachTiny runs a test on each of the tiny wheels.
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

// Reschedule is called when the timer is due. It returns false, or the callback runs only at the
// new time.
func TestRaceRescheduleAgainstFireIsExact(t *testing.T) {
	eachTiny(t, func(t *testing.T, tw *TimingWheel) {
		l := newLedger()
		for range max(scaled(400), 40) {
			r := l.arm(tw, rand.N(50*time.Microsecond))
			for range 4 {
				spin(rand.N(50 * time.Microsecond))
				// The new deadline may be earlier or later than the old one.
				if !l.reset(r, rand.N(200*time.Microsecond)) {
					break
				}
			}
		}
		l.requireNoneLostAndCounted(t, tw)
	})
}

// Many timers are due at the same time, when two goroutines stop and reschedule them. Workers claim
// the timers in batches.
func TestRaceEachTimerOfABatchEndsOnce(t *testing.T) {
	eachTiny(t, func(t *testing.T, tw *TimingWheel) {
		l := newLedger()
		for range max(scaled(40), 4) {
			at := time.Now().Add(300 * time.Microsecond)
			var batch [200]*tracked
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
		l.requireNoneLostAndCounted(t, tw)
	})
}

// Eight goroutines reschedule the same timer, and then one goroutine does. The timer fires once, at
// the time of the last Reschedule.
func TestRaceLastOfConcurrentReschedulesWins(t *testing.T) {
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

// Flush races with arming, stopping and rescheduling the same timers. Each timer ends once, and a
// timer that is armed after the last Flush keeps its deadline.
func TestRaceFlushAgainstEverythingEndsEachTimerOnce(t *testing.T) {
	eachTiny(t, func(t *testing.T, tw *TimingWheel) {
		flushed, after := newLedger(), newLedger()
		flushed.mayBeEarly = true
		var all sync.WaitGroup
		for g := range 8 {
			all.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(g), 7))
				var board [32]atomic.Pointer[tracked]
				for range max(scaled(10), 1) {
					raceSteps(flushed, tw, rng, &board, 50, runtime.Gosched)
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

// pairState holds the timers and plans that a pair of concurrent operations share.
type pairState struct {
	tw      *TimingWheel
	l       *ledger
	board   [8]atomic.Pointer[tracked]
	plans   [2]atomic.Pointer[Timer]
	runs    atomic.Int64 // of plans
	overlap atomic.Bool  // two runs of one plan overlapped
}

func (s *pairState) any() *tracked { return s.board[rand.IntN(len(s.board))].Load() }

func (s *pairState) put(r *tracked) { s.board[rand.IntN(len(s.board))].Store(r) }

func (s *pairState) delay() time.Duration { return rand.N(500 * time.Microsecond) }

func (s *pairState) arm() { s.put(s.l.arm(s.tw, s.delay())) }

func (s *pairState) plan() {
	var planned Scheduler = Every(20 * time.Microsecond)
	overlap := rand.IntN(2) == 0
	if overlap {
		planned = overlappingEvery(20 * time.Microsecond)
	}
	var inside atomic.Int32
	timer := s.tw.ScheduleFunc(planned, func() {
		if inside.Add(1) != 1 && !overlap {
			s.overlap.Store(true)
		}
		s.runs.Add(1)
		runtime.Gosched()
		inside.Add(-1)
	})
	if old := s.plans[rand.IntN(len(s.plans))].Swap(&timer); old != nil {
		old.Stop()
	}
}

var pairOps = []struct {
	name string
	call func(s *pairState)
}{
	{"AfterFunc", (*pairState).arm},
	{"AfterFunc(0)", func(s *pairState) { s.put(s.l.arm(s.tw, 0)) }},
	{"AtFunc", func(s *pairState) { s.put(s.l.armAt(s.tw, time.Now().Add(s.delay()))) }},
	{"Stop", func(s *pairState) { s.any().stop() }},
	{"Reschedule later", func(s *pairState) { s.any().timer.Reschedule(time.Millisecond) }},
	{"Reschedule earlier", func(s *pairState) { s.any().timer.Reschedule(10 * time.Microsecond) }},
	{"Reschedule(0)", func(s *pairState) { s.any().timer.Reschedule(0) }},
	{"RescheduleAt", func(s *pairState) { s.any().timer.RescheduleAt(time.Now().Add(s.delay())) }},
	{"Deadline", func(s *pairState) { s.any().timer.Deadline() }},
	{"Flush", func(s *pairState) { s.tw.Flush() }},
	{"ScheduleFunc", (*pairState).plan},
	{"a plan's Stop", func(s *pairState) { s.plans[0].Load().Stop() }},
	{"a plan's Reschedule", func(s *pairState) { s.plans[1].Load().Reschedule(s.delay()) }},
	{"Len, Next, Stats", func(s *pairState) { s.tw.Len(); s.tw.Next(); s.tw.Stats() }},
}

// Each operation runs concurrently with each operation, itself included, on a wheel of three small
// levels.
func TestRaceEachPairOfOperationsLosesNoTimer(t *testing.T) {
	t.Parallel()
	for i, a := range pairOps {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			for _, b := range pairOps[i:] {
				for _, executor := range []Executor{nil, Goroutines} {
					racePair(t, executor, a.call, b.call)
					require.False(t, t.Failed(), "against %s, executor %T", b.name, executor)
				}
			}
		})
	}
}

func racePair(t *testing.T, executor Executor, a, b func(*pairState)) {
	t.Helper()
	tw := startWheel(t, Options{WheelSize: 4, Levels: 3, Tick: minTick, Shards: 1, Executor: executor})
	s := &pairState{tw: tw, l: newLedger()}
	s.l.mayBeEarly = true
	for i := range s.board {
		s.board[i].Store(s.l.arm(tw, s.delay()))
	}
	for i := range s.plans {
		s.plans[i].Store(new(Timer))
	}
	s.plan()
	s.plan()
	var both sync.WaitGroup
	for _, call := range []func(*pairState){a, b} {
		both.Go(func() {
			for range max(scaled(200), 30) {
				call(s)
				if r := s.any(); r.runs.Load()+r.stops.Load() > 0 {
					s.arm() // keeps the board full of pending timers
				}
			}
		})
	}
	both.Wait()
	for i := range s.plans {
		s.plans[i].Load().Stop()
	}
	assert.NoError(t, drainWheel(tw))
	verifyShards(t, tw.engine)
	s.l.requireNoneLost(t)
	assert.False(t, s.overlap.Load(), "two runs of one plan overlapped")
	tw.Stop()
}

// All processors are busy. Timers are armed, stopped and rescheduled, and callbacks return, block,
// exit, or arm and stop other timers. No timer is early, lost or run twice, and the wheel's
// counters are exact.
func TestNoTimerIsLostOnABusyMachine(t *testing.T) {
	busy(t, 16)
	for _, opts := range []Options{
		{WheelSize: 4, Levels: 2, Tick: minTick, Shards: 1},
		{WheelSize: 16, Levels: 3, Tick: 100 * time.Microsecond, Shards: 4},
		{Shards: 2},
		{Shards: 1, Executor: Goroutines},
		{Shards: 1, Executor: Inline, Tick: 50 * time.Microsecond},
		{Shards: 2, Executor: limitOf(3)},
	} {
		t.Run(optionName(opts), func(t *testing.T) {
			tw := startWheel(t, opts)
			l := newLedger()
			var board [32]atomic.Pointer[tracked]
			l.after = func() {
				switch rand.IntN(7) {
				case 0:
					runtime.Goexit()
				case 1:
					if opts.Executor != Inline { // there it would delay all other callbacks
						time.Sleep(rand.N(500 * time.Microsecond))
					}
				case 2:
					l.arm(tw, rand.N(time.Millisecond))
				case 3:
					if r := board[rand.N(len(board))].Load(); r != nil {
						r.stop()
					}
				}
			}
			var all sync.WaitGroup
			for g := range 8 {
				all.Go(func() { raceSteps(l, tw, rand.New(rand.NewPCG(1, uint64(g))), &board, scaled(3000), func() {}) })
			}
			all.Wait()
			l.requireNoneLostAndCounted(t, tw)
		})
	}
}
