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
