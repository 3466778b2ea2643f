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

// Inline runs the callbacks of a shard one after the other, also where more is due behind them,
// after a Flush, and when the alarm goes off meanwhile.
func TestInlineCallbacksOfAShardDoNotOverlap(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Executor: Inline, Shards: 1})
	var inside, over, ran atomic.Int32
	f := func() {
		if inside.Add(1) != 1 {
			over.Add(1)
		}
		spin(200 * time.Microsecond)
		ran.Add(1)
		inside.Add(-1)
	}
	at := time.Now().Add(2 * ms)
	for range 50 {
		tw.AtFunc(at, f)
	}
	for range 10 {
		tw.AfterFunc(time.Hour, f)
		time.Sleep(ms)
		tw.Flush()
		for range 200 {
			tw.AfterFunc(2*ms, f).Stop()
		}
		tw.AfterFunc(ms, f)
	}
	await(t, "all have run", func() bool { return ran.Load() == 70 })
	require.NoError(t, drainWheel(tw))
	assert.Zero(t, over.Load(), "callbacks that began while another one of the shard was running")
}

// A worker has claimed a run of a plan and is about to read its payload when Stop comes. Stop must
// not clear the payload, nor give the slot to another timer, whose payload the worker would then
// run.
func TestStopOfAPlanThatWasJustClaimedLeavesItsPayload(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Tick: time.Microsecond, Shards: 1})
	var wrong atomic.Int32
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range max(scaled(5000), 500) {
				var plan Timer
				var gone atomic.Bool
				var once atomic.Int32
				plan = tw.ScheduleFunc(Every(time.Microsecond), func() {
					if gone.Load() && once.Add(1) > 1 {
						wrong.Add(1)
					}
				})
				for k := 0; k < 20 && !plan.Reschedule(0); k++ {
				}
				runtime.Gosched()
				plan.Stop()
				gone.Store(true)
				for range 2 { // the slot's next timers
					tw.AfterFunc(time.Hour, func() { wrong.Add(1) }).Stop()
				}
			}
		})
	}
	all.Wait()
	require.NoError(t, drainWheel(tw))
	assert.Zero(t, wrong.Load())
	verifyShards(t, tw.engine)
	s := tw.engine.shards[0]
	s.armMu.Lock()
	defer s.armMu.Unlock()
	used := 0
	for p := range s.slots.Pager.Len() {
		used += s.slots.Pager.Used(p)
	}
	assert.Equal(t, len(s.inbox.free), used, "slots that nothing gives back")
}

// What has happened to each timer is settled when the wheel's Stop returns: no claim, no discard
// and no drop comes later, whoever was preempted where.
func TestCountsAreFinalWhenStopReturns(t *testing.T) {
	// Not parallel: it keeps every processor busy.
	busy(t)
	for name, executor := range map[string]Executor{"default": nil, "Goroutines": Goroutines, "Inline": Inline} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range max(scaled(8), 3) {
				tw, err := New(Options{Executor: executor, Shards: 2, Tick: 10 * time.Microsecond})
				require.NoError(t, err)
				var ran, stopped atomic.Uint64
				var all sync.WaitGroup
				for range 4 {
					all.Go(func() {
						for range 200 {
							timer := tw.AfterFunc(rand.N(200*time.Microsecond), func() { ran.Add(1) })
							tw.AfterFunc(0, func() { ran.Add(1) })
							if rand.N(2) == 0 && timer.Stop() {
								stopped.Add(1)
							}
						}
					})
				}
				tw.ScheduleFunc(Every(10*time.Microsecond), func() { ran.Add(1) })
				spin(rand.N(400 * time.Microsecond))
				tw.Stop()
				before := tw.Stats()
				all.Wait()
				require.NoError(t, tw.Shutdown(t.Context()))
				after := tw.Stats()
				require.Equal(t, before.Fired, after.Fired, "claimed or dropped after Stop")
				// A run of the plan that was claimed just before Stop is counted, and does not take
				// place.
				require.Contains(t, []uint64{0, 1}, after.Fired-ran.Load(), "each claim has run")
				require.Equal(t, stopped.Load(), after.Stopped)
				require.Equal(t, after.Armed, after.Fired+after.Stopped+after.Discarded)
			}
		})
	}
}

// The alarm's timer of the runtime is late, as on a busy machine. A caller that corrects the alarm
// takes the timer that is due out of the inbox, and must not switch the alarm off: nobody else
// would come.
func TestCorrectingTheAlarmLeavesNoTimerThatIsDueAlone(t *testing.T) {
	t.Parallel()
	for name, executor := range map[string]Executor{"default": nil, "Goroutines": Goroutines} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := startWheel(t, Options{Executor: executor, Shards: 1})
			for range 3 * relaxCost { // credit
				tw.AfterFunc(time.Hour, func() {}).Stop()
			}
			s := tw.engine.shards[0]
			fired := make(chan struct{})
			tw.AfterFunc(5*ms, func() { close(fired) })
			s.armMu.Lock()
			s.alarm.timer.Reset(50 * ms) // late
			s.armMu.Unlock()
			time.Sleep(10 * ms)
			tw.AfterFunc(time.Hour, func() {}).Stop() // brings a reading of the clock
			s.relax()
			receive(t, fired, "the timer")
		})
	}
}

// A flush of timers whose deadlines are far must not leave their tickets behind.
func TestClaimedTimersGiveTheirFarTicketsBack(t *testing.T) {
	t.Parallel()
	tickets := func(s *shard) int {
		s.far.mu.Lock()
		defer s.far.mu.Unlock()
		return len(s.far.ticks)
	}
	for _, manual := range []bool{false, true} {
		tw := startWheel(t, Options{Tick: time.Microsecond, Shards: 1, Manual: manual})
		for range 100 {
			tw.AfterFunc(100*time.Hour, func() {})
		}
		tw.Flush()
		require.NoError(t, drainWheel(tw))
		assert.Zero(t, tickets(&tw.engine.shards[0].shard), "Manual: %v", manual)
	}
	w := startTimeouts(t, Options{Tick: time.Microsecond, Shards: 1}, func([]int) {})
	for i := range 100 {
		w.Add(100*time.Hour, i)
	}
	assert.Len(t, w.RemoveAll(), 100)
	assert.Zero(t, tickets(&w.engine.shards[0].shard), "RemoveAll")
}

// A timer that was flushed and is then rescheduled, to the very tick that it had before, runs at
// that tick.
func TestRescheduleAfterFlushToTheSameTick(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Shards: 1})
	at := time.Now().Add(time.Hour)
	var early atomic.Int32
	var moved []Timer
	for range 200 {
		moved = append(moved, tw.AtFunc(at, func() { early.Add(1) }))
	}
	tw.Flush()
	kept := int32(0)
	for _, timer := range moved {
		if timer.RescheduleAt(at) {
			kept++
		}
	}
	await(t, "the others run", func() bool { return tw.Len() <= int(kept) })
	time.Sleep(20 * ms)
	assert.EqualValues(t, 200-kept, early.Load(), "ran with the flush although Reschedule had returned true")
	assert.Equal(t, int(kept), tw.Len())
}

// A timer that was postponed after it had become due is pending, so a Flush takes it.
func TestFlushTakesWhatWasPostponedWhenDue(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Shards: 1})
	var ran atomic.Int32
	var timers []Timer
	for range 50 {
		timers = append(timers, tw.AfterFunc(time.Hour, func() { ran.Add(1) }))
	}
	tw.Flush() // their worker may have come or not
	for _, timer := range timers {
		timer.Reschedule(2 * time.Hour)
	}
	tw.Flush()
	await(t, "all run", func() bool { return ran.Load() == 50 })
}

// A word holds a tick modulo 2^36, which is 19 hours with a tick of 1µs. A wheel whose callers pass
// no reading of the clock for that long, and then a deadline that has passed long ago, must not
// take it for one in the future.
func TestDeadlinesThatHavePassedLongAgo(t *testing.T) {
	t.Parallel()
	for _, ago := range []time.Duration{0, time.Hour, 14 * time.Hour, 15 * time.Hour, 18 * time.Hour, 20 * time.Hour} {
		tw, err := newWheelAt(Options{Tick: time.Microsecond, Shards: 1}, int64(21*time.Hour))
		require.NoError(t, err)
		t.Cleanup(tw.Stop)
		tw.AtFunc(time.Now().Add(time.Hour), func() {})
		s := tw.engine.shards[0]
		s.armMu.Lock()
		s.inbox.now = 0 // as if only AtFunc had been called
		s.armMu.Unlock()
		fired := make(chan struct{})
		tw.AtFunc(time.Now().Add(-ago), func() { close(fired) })
		receive(t, fired, ago.String())
		fired = make(chan struct{})
		timer := tw.AfterFunc(time.Minute, func() { close(fired) })
		require.True(t, timer.RescheduleAt(time.Now().Add(-ago)))
		receive(t, fired, ago.String())
	}
}

// A clock that leaps by more than a word can tell leaves a plan its phase.
func TestAPlanKeepsItsPhaseOverALeap(t *testing.T) {
	t.Parallel()
	for _, leap := range []time.Duration{13 * time.Hour, 16 * time.Hour, 20 * time.Hour, 50 * time.Hour, 100 * 24 * time.Hour} {
		tw := startWheel(t, Options{Tick: time.Microsecond, Manual: true, Start: modelStart})
		var planned []time.Duration
		tw.ScheduleRun(Every(time.Hour), func(r Run) { planned = append(planned, r.Planned.Sub(modelStart)) })
		tw.AfterFunc(leap+30*time.Minute, func() {})
		tw.Advance(modelStart.Add(leap + time.Minute))
		tw.Advance(modelStart.Add(leap + time.Hour + time.Minute))
		require.Equal(t, []time.Duration{time.Hour, leap + time.Hour}, planned)
		require.Equal(t, 1, tw.Len())
	}
}

// Everything at once beside 16 busy goroutines, judged by counts: none early, none lost, none
// twice, and the wheel's own books agree. Callbacks are quick, block, exit, and stop or move
// others.
func TestNothingIsLostOnABusyMachine(t *testing.T) {
	busy(t)
	for _, opts := range []Options{
		{WheelSize: 4, Levels: 2, Tick: 10 * time.Microsecond, Shards: 1},
		{WheelSize: 16, Levels: 3, Tick: 100 * time.Microsecond, Shards: 4},
		{Shards: 2},
		{Shards: 1, Executor: Goroutines},
		{Shards: 1, Executor: Inline, Tick: 50 * time.Microsecond},
	} {
		t.Run(optionName(opts), func(t *testing.T) {
			tw := startWheel(t, opts)
			l := newLedger()
			var board [64]atomic.Pointer[record]
			arm := func(d time.Duration, extra func()) *record {
				r := &record{notBefore: time.Since(l.start) + max(d, 0)}
				run := l.callback(r)
				r.timer = tw.AfterFunc(d, func() { run(); extra() })
				return l.enter(r)
			}
			extras := []func(){
				func() {}, func() {}, func() {}, runtime.Goexit,
				func() {
					if opts.Executor != Inline { // there each turn of the busy ones would delay all others
						time.Sleep(rand.N(500 * time.Microsecond))
					}
				},
				func() { arm(rand.N(time.Millisecond), func() {}) },
				func() {
					if r := board[rand.N(len(board))].Load(); r != nil {
						r.stop()
					}
				},
			}
			var all sync.WaitGroup
			for g := range 8 {
				all.Go(func() {
					rng := rand.New(rand.NewPCG(1, uint64(g)))
					var own []*record
					for range max(scaled(3000), 300) {
						d := time.Duration(rng.IntN(4000)-100) * time.Microsecond
						if rng.IntN(8) == 0 {
							d = time.Hour
						}
						switch k := rng.IntN(10); {
						case k < 4 || len(own) == 0:
							r := arm(d, extras[rng.IntN(len(extras))])
							own = append(own, r)
							board[rng.IntN(len(board))].Store(r)
						case k < 6:
							j := rng.IntN(len(own))
							own[j].stop()
							own[j] = own[len(own)-1]
							own = own[:len(own)-1]
						default:
							l.reset(own[rng.IntN(len(own))], d)
						}
					}
					for _, r := range own { // nothing is left to wait for an hour
						if rng.IntN(2) == 0 || !l.reset(r, 0) {
							r.stop()
						}
					}
				})
			}
			all.Wait()
			await(t, "all is over", func() bool {
				l.mu.Lock()
				defer l.mu.Unlock()
				for _, r := range l.records {
					r.stopIfFar()
				}
				return tw.Len() == 0
			})
			require.NoError(t, drainWheel(tw))
			verifyShards(t, tw.engine)
			l.settleAll(t, tw)
		})
	}
}

// stopIfFar stops a timer that would be waited for too long.
func (r *record) stopIfFar() {
	if at, ok := r.timer.Deadline(); ok && time.Until(at) > time.Minute {
		r.stop()
	}
}

// Timers that are moved to an earlier deadline go through the inbox, which must not grow with them:
// the dead that are left there hold their slots, and a driver places all of them before it runs
// what is due.
func TestTheInboxStaysSmallIfTimersAreMovedEarlier(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Shards: 1})
	s := tw.engine.shards[0]
	inbox := func() int {
		s.armMu.Lock()
		defer s.armMu.Unlock()
		return len(s.inbox.staged)
	}
	timers := make([]Timer, max(scaled(50_000), 5000))
	for i := range timers {
		timers[i] = tw.AfterFunc(10*time.Hour, func() {})
	}
	most := 0
	for d := 9 * time.Hour; d > 6*time.Hour; d -= time.Hour {
		for _, timer := range timers {
			require.True(t, timer.Reschedule(d))
			most = max(most, inbox())
		}
	}
	assert.LessOrEqual(t, most, 2*inboxSize)
	for _, timer := range timers {
		require.True(t, timer.Stop())
	}
	assert.LessOrEqual(t, inbox()+s.removals.len(), 2*inboxSize+removalsMax)
	verifyShards(t, tw.engine)
}

// Plans of all kinds end in all ways: by Stop at any moment, by themselves, by a panic. Each gives
// its slot back once.
func TestEveryPlanGivesItsSlotBack(t *testing.T) {
	t.Parallel()
	for name, executor := range map[string]Executor{"default": nil, "Goroutines": Goroutines, "Inline": Inline} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := startWheel(t, Options{Shards: 1, Tick: 10 * time.Microsecond, Executor: executor, OnPanic: func(any, []byte) {}})
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					for range max(scaled(2000), 200) {
						var plan Timer
						ends := []func(){func() {}, func() {}, runtime.Goexit, func() { panic("run") }, func() { plan.Stop() }, func() { plan.Reschedule(0) }}
						end := ends[rand.N(len(ends))]
						written := make(chan struct{})
						f := func() {
							<-written
							end()
						}
						last := &lastRun{period: rand.N(100 * time.Microsecond)}
						last.left.Store(rand.N(int32(4)))
						switch rand.N(4) {
						case 0:
							plan = tw.ScheduleFunc(Every(1+rand.N(100*time.Microsecond)), f)
						case 1:
							plan = tw.ScheduleFunc(last, f)
						case 2:
							plan = tw.ScheduleRun(last, func(Run) { f() })
						case 3:
							plan = tw.ScheduleRun(overlapping(3), func(Run) { f() })
						}
						close(written)
						spin(rand.N(200 * time.Microsecond))
						plan.Stop()
					}
				})
			}
			all.Wait()
			require.NoError(t, drainWheel(tw))
			verifyShards(t, tw.engine)
			await(t, "no slot is used", func() bool {
				tw.Len()
				s := tw.engine.shards[0]
				s.wheelMu.Lock()
				defer s.wheelMu.Unlock()
				s.armMu.Lock()
				defer s.armMu.Unlock()
				used := 0
				for p := range s.slots.Pager.Len() {
					used += s.slots.Pager.Used(p)
				}
				return used == len(s.inbox.free)+len(s.owner.freed)
			})
		})
	}
}
