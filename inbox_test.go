package timingwheel

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

// newInbox returns an inbox and its slots.
func newInbox() (*inbox, *arena.Slots) {
	ib, slots := &inbox{}, &arena.Slots{Closed: func(int) {}}
	ib.init()
	return ib, slots
}

// armInbox arms a timer in a free slot.
func armInbox(ib *inbox, slots *arena.Slots, tick int64) uint32 {
	var i uint32
	if n := len(ib.free); n > 0 {
		i, ib.free = ib.free[n-1], ib.free[:n-1]
	} else {
		var ok bool
		if i, ok = slots.Take(); !ok {
			slots.Open(slots.Pager.Next(), new(arena.Page))
			i, _ = slots.Take()
		}
	}
	slots.Pages.At(i>>arena.PageShift).Arm(i, 0, uint64(tick))
	ib.add(i, tick)
	return i
}

func setKind(slots *arena.Slots, i uint32, k arena.Kind, flags arena.Word) {
	pg := slots.Pages.At(i >> arena.PageShift)
	pg.Store(i, pg.Load(i).With(k)|flags)
}

// A sweep frees only slots of timers whose Stop is complete and that no bucket can contain. All
// other slots stay, in order.
func TestSweepRemovesStoppedTimersOnly(t *testing.T) {
	t.Parallel()
	ib, slots := newInbox()
	var want, ended []uint32
	for range 10 {
		staged, ending, done, moved := armInbox(ib, slots, 5), armInbox(ib, slots, 5), armInbox(ib, slots, 5), armInbox(ib, slots, 5)
		setKind(slots, ending, arena.Ending, 0)
		setKind(slots, done, arena.Ended, 0)
		setKind(slots, moved, arena.Ended, arena.Listed)
		want = append(want, staged, ending, moved)
		ended = append(ended, done)
	}
	require.False(t, ib.sweep(slots))
	require.Equal(t, want, ib.staged)
	require.ElementsMatch(t, ended, ib.free)
	require.EqualValues(t, 10, ib.stopped)
	require.EqualValues(t, 5, ib.first, "still a lower bound")
	for range ended {
		require.Contains(t, ended, armInbox(ib, slots, 9), "the slots are reused")
	}
}

// A slot without further generations leaves the inbox and is not free.
func TestSweepRetiresExhaustedSlot(t *testing.T) {
	t.Parallel()
	ib, slots := newInbox()
	i, other := armInbox(ib, slots, 5), armInbox(ib, slots, 5)
	pg := slots.Pages.At(0)
	for _, k := range []uint32{i, other} {
		setKind(slots, k, arena.Ended, 0)
	}
	for !pg.Load(i).Exhausted() { // all bits of the generation
		pg.Store(i, pg.Load(i)|(1<<20-1<<6))
	}
	ib.sweep(slots)
	require.Equal(t, []uint32{other}, ib.free)
	require.False(t, slots.Pager.IsFree(0, i))
	require.EqualValues(t, 2, ib.stopped)
}

// The inbox keeps few free slots, so that the timers that survive a spike share few pages.
func TestSweepKeepsFewFreeSlots(t *testing.T) {
	t.Parallel()
	ib, slots := newInbox()
	for range 10 * inboxSize {
		setKind(slots, armInbox(ib, slots, 5), arena.Ended, 0)
	}
	require.False(t, ib.sweep(slots))
	require.Len(t, ib.free, inboxSize)
	require.Empty(t, ib.staged)
	require.Equal(t, inboxSize, slots.Pager.Used(0)+slots.Pager.Used(1))
}

// While no owner places timers, an inbox of pending timers is swept at growing intervals, so that
// arming stays O(1).
func TestInboxOfPendingTimersIsSweptLessOften(t *testing.T) {
	t.Parallel()
	ib, slots := newInbox()
	looked := 0
	for n := 1; n <= 1<<14; n++ {
		armInbox(ib, slots, 5)
		if len(ib.staged) >= ib.sweepAt {
			looked += len(ib.staged)
			require.True(t, ib.sweep(slots))
		}
	}
	require.Len(t, ib.staged, 1<<14)
	require.Less(t, looked, 2<<14)
	ib.take(nil)
	require.Equal(t, inboxSize, ib.sweepAt)
	require.Equal(t, int64(never), ib.first)
}

func TestInboxTracksItsFirstTick(t *testing.T) {
	t.Parallel()
	ib, slots := newInbox()
	require.Equal(t, int64(never), ib.first)
	for _, step := range []struct {
		tick  int64
		first bool
	}{{never, false}, {50, true}, {50, false}, {51, false}, {7, true}, {8, false}} {
		i := armInbox(ib, slots, 90)
		require.Equal(t, step.first, ib.lowerFirst(step.tick), "%+v", step)
		require.Contains(t, ib.staged, i)
		if step.tick == never {
			ib.first = never
		}
	}
	staged, first := ib.take(make([]uint32, 3, 100))
	require.Len(t, staged, 6)
	require.EqualValues(t, 7, first)
	require.Empty(t, ib.staged)
	require.Equal(t, 100, cap(ib.staged))
}

// playInbox arms, stops, sweeps and takes timers as pick chooses. Each slot must always be in
// exactly one list.
func playInbox(t *testing.T, pick choices) {
	ib, slots := newInbox()
	var live, ending, taken []uint32
	armed, stopped := 0, 0
	for pick.more() {
		switch pick.below(8) {
		case 0, 1, 2:
			for range 1 + pick.below(40) {
				live = append(live, armInbox(ib, slots, int64(pick.below(1000))))
				armed++
				if len(ib.staged) >= ib.sweepAt {
					ib.sweep(slots)
				}
			}
		case 3, 4:
			for n := pick.below(40); n > 0 && len(live) > 0; n-- {
				k := pick.below(len(live))
				setKind(slots, live[k], arena.Ending, 0)
				ending = append(ending, live[k])
				live = slices.Delete(live, k, k+1)
			}
		case 5:
			for _, i := range ending {
				setKind(slots, i, arena.Ended, 0)
			}
			stopped += len(ending)
			ending = nil
		case 6:
			ib.sweep(slots)
		case 7: // the owner places pending timers, frees stopped ones and returns the rest
			taken, _ = ib.take(taken[:0])
			for _, i := range taken {
				switch loadWord(&slots.Pages, i).Kind() {
				case arena.Ended:
					slots.Put(i)
					ib.stopped++
				case arena.Ending:
					ib.add(i, never)
				case arena.Staged:
					ib.add(i, int64(loadWord(&slots.Pages, i).Bits()))
				default:
					t.Fatalf("slot %d has kind %d", i, loadWord(&slots.Pages, i).Kind())
				}
			}
		}
		checkInbox(t, ib, slots, live, ending)
		left := 0
		for _, i := range ib.staged {
			if loadWord(&slots.Pages, i).Kind() == arena.Ended {
				left++
			}
		}
		if int(ib.stopped) != stopped-left || len(live) != armed-stopped-len(ending) {
			t.Fatalf("%d stopped, want %d less %d", ib.stopped, stopped, left)
		}
	}
}

// checkInbox checks B1 to B3.
func checkInbox(t *testing.T, ib *inbox, slots *arena.Slots, live, ending []uint32) {
	t.Helper()
	seen := map[uint32]int{}
	for list, named := range [][]uint32{ib.staged, ib.free} {
		for _, i := range named {
			if seen[i] > 0 {
				t.Fatalf("slot %d is named twice", i)
			}
			seen[i] = list + 1
		}
	}
	for _, i := range slices.Concat(live, ending) {
		if seen[i] != 1 {
			t.Fatalf("slot %d is not in the inbox", i)
		}
		if w := loadWord(&slots.Pages, i); w.Kind() == arena.Staged && int64(w.Bits()) < ib.first {
			t.Fatalf("a timer of tick %d is staged, but first is %d", w.Bits(), ib.first)
		}
	}
	if len(ib.free) > inboxSize {
		t.Fatalf("%d slots are free", len(ib.free))
	}
	if err := verifySlots(slots); err != nil {
		t.Fatal(err)
	}
}

func TestModelInbox(t *testing.T) {
	t.Parallel()
	for seed := range scaledSeeds(20) {
		playInbox(t, newSeeded(seed, 400))
	}
}

func FuzzInbox(f *testing.F) {
	addModelSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) { playInbox(t, &scripted{data[:min(len(data), 1024)]}) })
}

// Each slot that a goroutine pushes is taken exactly once, although the owner takes the stack
// concurrently.
func TestRaceRemovalsLoseNoSlot(t *testing.T) {
	t.Parallel()
	const goroutines, each = 8, 64 * arena.PageSize / 8
	var r slotStack
	pages := make([]*arena.Page, goroutines*each/arena.PageSize)
	for p := range pages {
		pages[p] = new(arena.Page)
	}
	var pushers sync.WaitGroup
	for g := range uint32(goroutines) {
		pushers.Go(func() {
			for k := range uint32(each) {
				i := k*goroutines + g
				pg := pages[i>>arena.PageShift]
				w := pg.Arm(i, 0, 0).With(arena.Dead).WithBits(r.link())
				pg.Store(i, w)
				if n := r.push(pg, i, w); n < 1 {
					t.Errorf("push: %d", n)
				}
			}
		})
	}
	seen := make([]int, goroutines*each)
	total := 0
	done := make(chan struct{})
	go func() { pushers.Wait(); close(done) }()
	for over := false; !over; {
		over = isClosed(done)
		n, at := r.len(), r.take()
		took := 0
		for ; at != 0; took++ {
			i := uint32(at - 1)
			seen[i]++
			at = pages[i>>arena.PageShift].Load(i).Bits()
		}
		require.GreaterOrEqual(t, took, n)
		total += took
	}
	require.Equal(t, goroutines*each, total)
	require.NotContains(t, seen, 0)
	require.Zero(t, r.take())
	require.Zero(t, r.len())
}

// A timer that is stopped early never reaches the wheel, and its slot and cache lines are reused.
func TestStopInTheInboxDoesNotTouchTheWheel(t *testing.T) {
	t.Parallel()
	s, sh := newRecordingWheelAndShard(t, Options{})
	slots := map[uint32]bool{}
	for range 100 * inboxSize {
		timer := s.after(time.Minute, "")
		slots[timer.index] = true
		require.True(t, timer.Stop())
		require.False(t, timer.Stop())
		require.Equal(t, arena.Ended, timer.word().Kind())
	}
	require.LessOrEqual(t, len(slots), inboxSize+freeSlots)
	require.Zero(t, s.Len())
	require.Empty(t, sh.owner.store.all, "no bucket was created")
	require.Zero(t, sh.removals.len())
	s.verify()
}

// The same holds if a few other timers stay pending.
func TestStopInTheInboxWithOtherPendingTimers(t *testing.T) {
	t.Parallel()
	s, sh := newRecordingWheelAndShard(t, Options{})
	s.fill(inboxSize/2-1, time.Hour)
	slots := map[uint32]bool{}
	for range 100 * inboxSize {
		timer := s.after(time.Minute, "")
		slots[timer.index] = true
		require.True(t, timer.Stop())
	}
	require.LessOrEqual(t, len(slots), 2*inboxSize)
	require.Equal(t, inboxSize/2-1, s.Len())
	s.verify()
	require.Less(t, sh.staged(), inboxSize)
}

// A caller that finds the inbox full of pending timers places them in the order of arming.
func TestFullInboxIsPlaced(t *testing.T) {
	t.Parallel()
	s, sh := newRecordingWheelAndShard(t, Options{})
	var names []string
	for k := range 3 * inboxSize {
		names = append(names, fmt.Sprint(k))
		s.after(time.Minute, names[k])
		require.LessOrEqual(t, sh.staged(), inboxSize)
	}
	require.Equal(t, 3*inboxSize, sh.placed())
	s.verify()
	s.to(time.Minute)
	require.Equal(t, names, s.ran)
}

func TestStagedTimersAreVisible(t *testing.T) {
	t.Parallel()
	s, sh := newRecordingWheelAndShard(t, Options{})
	timer := s.after(time.Hour, "a")
	at, ok := timer.Deadline()
	require.True(t, ok)
	require.Equal(t, modelStart.Add(time.Hour), at)
	require.Equal(t, 1, sh.staged())
	require.True(t, timer.Reschedule(2*time.Hour))
	require.Equal(t, 1, sh.staged(), "the timer is in the inbox already")
	require.Equal(t, 1, s.Len())
	require.Zero(t, sh.staged())
	s.after(time.Hour, "b")
	next, ok := s.Next()
	require.True(t, ok)
	require.False(t, next.After(modelStart.Add(time.Hour)))
	s.after(time.Hour, "c")
	require.Equal(t, 3, s.Stats().Pending)
	s.after(time.Hour, "d")
	require.Equal(t, 4, s.Flush())
	require.Zero(t, sh.staged())
	s.after(time.Hour, "e")
	s.Stop()
	require.Zero(t, s.Len())
	require.Zero(t, sh.staged())
}

// While a Stop has swapped the word but has not yet cleared the payload, the owner must not free
// the slot.
func TestSlotIsNotReusedBeforeItsStopEnds(t *testing.T) {
	t.Parallel()
	s, sh := newRecordingWheelAndShard(t, Options{})
	timer, other := s.after(time.Minute, "stopped"), s.after(time.Minute, "other")
	timer.swapWord(func(w arena.Word) arena.Word { return w.With(arena.Ending) })
	for range 3 {
		sh.placeAll()
		s.verify()
		require.False(t, sh.slotIsFree(timer.index))
		require.False(t, timer.Stop(), "another Stop has won")
		require.False(t, timer.Reschedule(0))
		require.Equal(t, 1, sh.staged())
	}
	timer.swapWord(func(w arena.Word) arena.Word { return w.With(arena.Ended) })
	sh.placeAll()
	require.True(t, sh.slotIsFree(timer.index))
	require.Zero(t, sh.staged())
	require.EqualValues(t, 1, s.Stats().Stopped)
	s.verify()
	require.Equal(t, "other", s.to(time.Minute))
	require.False(t, other.Stop())
}

// Every timer of the inbox fires in its tick, whichever timers are moved before or behind it.
func TestStagedTimersFireInTheirTick(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		sh := &tw.engine.shards[0].shard
		start := time.Now()
		at := map[string]time.Duration{}
		arm := func(name string, d time.Duration) Timer {
			return tw.AfterFunc(d, func() { at[name] = time.Since(start) })
		}
		alarm := arm("alarm", time.Minute)
		arm("after", 61*time.Second)
		moved := arm("moved", time.Hour)
		arm("far", 24*time.Hour)
		arm("before", time.Second)
		verifyShard(t, sh)
		require.True(t, moved.Reschedule(2*time.Second), "after the alarm for before")
		verifyShard(t, sh)
		require.True(t, moved.Reschedule(time.Second/2))
		require.True(t, alarm.Reschedule(2*time.Minute))
		require.Equal(t, 5, sh.staged())
		verifyShard(t, sh)
		pass(25 * time.Hour)
		assert.Equal(t, map[string]time.Duration{
			"alarm": 2 * time.Minute, "after": 61 * time.Second, "moved": time.Second / 2, "far": 24 * time.Hour, "before": time.Second,
		}, at)
	})
}

// While the next run of a plan waits in the inbox, its handle works.
func TestPlanInTheInbox(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		sh := &tw.engine.shards[0].shard
		runs := 0
		plan := tw.ScheduleFunc(Every(time.Minute), func() { runs++ })
		require.Equal(t, 1, sh.staged())
		verifyShard(t, sh)
		require.True(t, plan.Reschedule(2*time.Minute))
		pass(2 * time.Minute)
		require.Equal(t, 1, runs)
		require.Equal(t, 1, tw.Len())
		require.True(t, plan.Stop())
		verifyShard(t, sh)
		pass(time.Hour)
		require.Equal(t, 1, runs)
	})
}

// A loop of arm and cancel does not grow the memory: with one deadline, with new deadlines, and
// with other pending timers.
func TestArmAndCancelGrowsNothing(t *testing.T) {
	t.Parallel()
	for _, population := range []int{0, 1, 3 * arena.PageSize} {
		for _, spread := range []time.Duration{0, ms, 1017 * ms, time.Hour} {
			t.Run(fmt.Sprintf("population=%d/spread=%v", population, spread), func(t *testing.T) {
				t.Parallel()
				s, sh := newRecordingWheelAndShard(t, Options{WheelSize: 64, Levels: 3})
				f := func() {}
				for i := range population {
					s.AfterFunc(time.Hour+time.Duration(i)*time.Second, f)
				}
				round := func(i int) {
					d := time.Second + time.Duration(i)*spread
					t1, t2 := s.AfterFunc(d, f), s.AfterFunc(2*d, f)
					if i%3 == 0 {
						sh.placeAll()
					}
					if !t1.Stop() || !t2.Reschedule(3*d) || !t2.Stop() {
						t.Fatal("a timer was not pending")
					}
				}
				for i := range 2000 {
					round(i)
				}
				before := s.Stats()
				for i := range 2000 {
					round(2000 + i)
				}
				after := s.Stats()
				require.Equal(t, before.Pending, after.Pending)
				require.LessOrEqual(t, after.Bytes, before.Bytes+4096)
				require.LessOrEqual(t, len(sh.owner.store.all), before.Buckets+2*emptyMax+4)
				s.verify()
			})
		}
	}
}

// Timers that are moved to an earlier deadline pass through the inbox. The inbox must not grow,
// because stopped timers in it occupy slots.
func TestInboxStaysSmallIfTimersAreMovedEarlier(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Shards: 1})
	s := tw.engine.shards[0]
	timers := make([]Timer, max(scaled(50_000), 5000))
	for i := range timers {
		timers[i] = tw.AfterFunc(10*time.Hour, func() {})
	}
	most := 0
	for d := 9 * time.Hour; d > 6*time.Hour; d -= time.Hour {
		for _, timer := range timers {
			require.True(t, timer.Reschedule(d))
			most = max(most, s.staged())
		}
	}
	assert.LessOrEqual(t, most, 2*inboxSize)
	for _, timer := range timers {
		require.True(t, timer.Stop())
	}
	assert.LessOrEqual(t, s.staged()+s.removals.len(), 2*inboxSize+removalsMax)
	verifyShards(t, tw.engine)
}
