package timingwheel

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

// newInbox is an inbox with slots of its own.
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

// Only slots of timers whose Stop is done, and that no bucket can have, are used again. All others
// stay, in order.
func TestSweepTakesOutStoppedTimersOnly(t *testing.T) {
	t.Parallel()
	ib, slots := newInbox()
	var want, ended []uint32
	for range 10 {
		staged, ending, done, moved := armInbox(ib, slots, 5), armInbox(ib, slots, 5), armInbox(ib, slots, 5), armInbox(ib, slots, 5)
		setKind(slots, ending, arena.Ending, 0)
		setKind(slots, done, arena.Ended, 0)
		setKind(slots, moved, arena.Ended, arena.Moved)
		want = append(want, staged, ending, moved)
		ended = append(ended, done)
	}
	require.False(t, ib.sweep(slots))
	require.Equal(t, want, ib.staged)
	require.ElementsMatch(t, ended, ib.free)
	require.EqualValues(t, 10, ib.stopped)
	require.EqualValues(t, 5, ib.first, "still a lower bound")
	for range ended {
		require.Contains(t, ended, armInbox(ib, slots, 9), "the slots are used again")
	}
}

// A slot that has used up its generations leaves the inbox and is not among the free ones.
func TestSweepRetiresExhaustedSlot(t *testing.T) {
	t.Parallel()
	ib, slots := newInbox()
	i, other := armInbox(ib, slots, 5), armInbox(ib, slots, 5)
	pg := slots.Pages.At(0)
	for _, k := range []uint32{i, other} {
		setKind(slots, k, arena.Ended, 0)
	}
	for !pg.Load(i).Exhausted() { // all bits of the generation
		pg.Store(i, pg.Load(i)|(1<<28-1<<6))
	}
	ib.sweep(slots)
	require.Equal(t, []uint32{other}, ib.free)
	require.False(t, slots.Pager.IsFree(0, i))
	require.EqualValues(t, 2, ib.stopped)
}

// The inbox keeps few free slots, so that the timers that survive a spike gather in few pages.
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

// An inbox whose timers live is looked through at ever greater distances while its owner does not
// come, so that arming stays O(1).
func TestCrowdedInboxIsSweptLessOften(t *testing.T) {
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

func TestInboxKnowsItsFirstTick(t *testing.T) {
	t.Parallel()
	ib, slots := newInbox()
	require.Equal(t, int64(never), ib.first)
	for _, step := range []struct {
		tick  int64
		first bool
	}{{never, false}, {50, true}, {50, false}, {51, false}, {7, true}, {8, false}} {
		i := armInbox(ib, slots, 90)
		require.Equal(t, step.first, ib.hurry(step.tick), "%+v", step)
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

// playInbox arms, stops, sweeps and takes as pick chooses. Each slot must always be in exactly one
// place.
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
		case 7: // the owner places what lives, frees what is over and gives the rest back
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
			t.Fatalf("a timer of tick %d, and the first is %d", w.Bits(), ib.first)
		}
	}
	if len(ib.free) > inboxSize {
		t.Fatalf("%d free slots", len(ib.free))
	}
	if err := slots.Pager.Verify(); err != nil {
		t.Fatal(err)
	}
}

func TestModelInbox(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		playInbox(t, newSeeded(seed, 400))
	}
}

func FuzzInbox(f *testing.F) {
	addModelSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) { playInbox(t, &scripted{data[:min(len(data), 1024)]}) })
}

// Each slot that any goroutine pushes comes out once, though the owner takes the stack meanwhile.
func TestRemovalsLoseNothing(t *testing.T) {
	t.Parallel()
	const goroutines, each = 8, 64 * arena.PageSize / 8
	var r removals
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

// A timeout that is stopped soon has never stood on the wheel, and its slot and cache lines are
// used again.
func TestStopInTheInboxLeavesTheWheelAlone(t *testing.T) {
	t.Parallel()
	s, sh := newShardStory(t, Options{})
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
	require.Empty(t, sh.owner.store.all, "no bucket was ever made")
	require.Zero(t, sh.removals.len())
	s.verify()
}

// Beside a few timers that live, too.
func TestStopInTheInboxBesideOthers(t *testing.T) {
	t.Parallel()
	s, sh := newShardStory(t, Options{})
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

// The caller that finds the inbox full of timers that live places them, in the order of arming.
func TestFullInboxIsPlaced(t *testing.T) {
	t.Parallel()
	s, sh := newShardStory(t, Options{})
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

func TestWhatIsSeenOfStagedTimers(t *testing.T) {
	t.Parallel()
	s, sh := newShardStory(t, Options{})
	timer := s.after(time.Hour, "a")
	at, ok := timer.Deadline()
	require.True(t, ok)
	require.Equal(t, modelStart.Add(time.Hour), at)
	require.Equal(t, 1, sh.staged())
	require.True(t, timer.Reschedule(2*time.Hour))
	require.Equal(t, 1, sh.staged(), "it is there already")
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

func TestRemoveAllTakesTheInbox(t *testing.T) {
	t.Parallel()
	w, err := NewTimeouts(Options{Manual: true}, func([]int) {})
	require.NoError(t, err)
	defer w.Stop()
	for i := range 5 {
		w.Add(time.Hour, i)
	}
	require.Equal(t, 5, w.engine.shards[0].staged())
	require.ElementsMatch(t, []int{0, 1, 2, 3, 4}, w.RemoveAll())
	require.Zero(t, w.Len())
}

// While the wheel is held by a driver that is preempted, callers arm, stop and reschedule without
// waiting. What they have left is done when it is let go.
func TestCallersDoNotWaitForTheWheel(t *testing.T) {
	t.Parallel()
	s, sh := newShardStory(t, Options{})
	placed := s.fillPlaced(500, time.Minute)
	sh.wheelMu.Lock() // this goroutine would wait for itself
	timers := s.fill(1000, time.Minute)
	require.True(t, timers[999].Reschedule(time.Second))
	require.True(t, placed[499].Reschedule(time.Second))
	require.True(t, placed[498].Reschedule(time.Hour))
	_, ok := placed[498].Deadline()
	require.True(t, ok)
	requireAllStop(t, placed[:400])
	requireAllStop(t, timers[:300])
	require.Equal(t, 400, sh.removals.len())
	require.True(t, sh.wanted.Load())
	sh.unlockAndTend()
	require.False(t, sh.wanted.Load())
	require.Less(t, sh.removals.len(), 400)
	verified(t, sh)
	require.Equal(t, 800, s.Len())
	s.to(time.Second)
	require.Len(t, s.ran, 2)
	s.to(time.Minute)
	require.Len(t, s.ran, 797)
}

// While another caller that arms is preempted, a Stop, a Reschedule to a later time and a look at
// the deadline do not wait.
func TestStopDoesNotWaitForAnArmingCaller(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Shards: 1})
	sh := &tw.engine.shards[0].shard
	timers := make([]Timer, 100)
	for k := range timers {
		timers[k] = tw.AfterFunc(time.Hour, func() {})
	}
	sh.placeAll()
	staged := tw.AfterFunc(time.Hour, func() {})
	sh.armMu.Lock()
	require.True(t, staged.Reschedule(2*time.Hour))
	require.True(t, timers[0].Reschedule(2*time.Hour))
	_, ok := timers[0].Deadline()
	require.True(t, ok)
	sh.removals.offerAt.Store(math.MaxInt32) // else this goroutine would be the owner, and want armMu
	requireAllStop(t, timers)
	sh.armMu.Unlock()
	require.Equal(t, 1, tw.Len())
	require.True(t, staged.Stop())
}

// Between the moment in which a Stop has won and the one in which it has cleared the payload, its
// slot is not used again, although the owner comes.
func TestSlotOfAStopUnderWayIsNotReused(t *testing.T) {
	t.Parallel()
	s, sh := newShardStory(t, Options{})
	timer, other := s.after(time.Minute, "stopped"), s.after(time.Minute, "other")
	timer.swapWord(func(w arena.Word) arena.Word { return w.With(arena.Ending) })
	for range 3 {
		sh.placeAll()
		s.verify()
		require.False(t, sh.unnamed(timer.index))
		require.False(t, timer.Stop(), "another call is doing it")
		require.False(t, timer.Reschedule(0))
		require.Equal(t, 1, sh.staged())
	}
	timer.swapWord(func(w arena.Word) arena.Word { return w.With(arena.Ended) })
	sh.placeAll()
	require.True(t, sh.unnamed(timer.index))
	require.Zero(t, sh.staged())
	require.EqualValues(t, 1, s.Stats().Stopped)
	s.verify()
	require.Equal(t, "other", s.to(time.Minute))
	require.False(t, other.Stop())
}

// arrived arms n timers and takes them out of the inbox without placing them, as an owner does
// between two quanta.
func arrived(s *story, n int, d time.Duration) []Timer {
	timers := s.fill(n, d)
	sh := &s.engine.shards[0].shard
	sh.own(sh.takeArrivals)
	return timers
}

// A timer that the owner has taken out of the inbox and not placed yet can be stopped and moved.
func TestStopAndRescheduleBetweenInboxAndWheel(t *testing.T) {
	t.Parallel()
	s, sh := newShardStory(t, Options{})
	timers := arrived(s, 40, time.Minute)
	sh.own(func() { sh.owner.placeArrivals(10) })
	require.Equal(t, 10, sh.placed())
	s.stopAll([]Timer{timers[3], timers[20], timers[21]})
	require.True(t, timers[30].Reschedule(time.Second))
	require.True(t, timers[31].Reschedule(time.Hour))
	require.True(t, timers[4].Reschedule(time.Second))
	s.verify()
	require.Equal(t, 37, s.Len())
	s.verify()
	require.True(t, sh.unnamed(timers[20].index))
	s.to(time.Second)
	require.Len(t, s.ran, 2)
	s.to(time.Minute)
	require.Len(t, s.ran, 34)
	require.Equal(t, 1, s.Len())
}

// In the same moment of a running wheel, where a Reschedule to a later time only writes the
// deadline and an earlier one sets the alarm.
func TestRescheduleBetweenInboxAndWheelFiresOnTime(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		sh := &tw.engine.shards[0].shard
		w := newStopwatch()
		timers := make([]Timer, 5)
		for k := range timers {
			timers[k] = tw.AfterFunc(time.Second, w.note)
		}
		sh.own(sh.takeArrivals)
		require.True(t, timers[1].Reschedule(500*ms))
		require.True(t, timers[2].Reschedule(3*time.Second))
		require.True(t, timers[3].Stop())
		verified(t, sh)
		pass(time.Hour)
		require.Equal(t, []int{500, 1000, 1000, 3000}, w.noted())
		verified(t, sh)
	})
}

// A timer of the wheel that is moved to an earlier time is in the inbox, and a bucket has it as
// well, until the owner comes. Whatever happens meanwhile, it is in one place afterwards.
func TestTimerInInboxAndBucketFiresOnce(t *testing.T) {
	t.Parallel()
	type wheel struct {
		tw    *TimingWheel
		sh    *shard
		timer Timer
	}
	for name, c := range map[string]struct {
		do   func(w wheel)
		runs []int // ms
	}{
		"nothing":                 {func(wheel) {}, []int{1000}},
		"placed":                  {func(w wheel) { w.sh.placeAll() }, []int{1000}},
		"stopped":                 {func(w wheel) { w.timer.Stop() }, nil},
		"stopped and swept":       {func(w wheel) { w.timer.Stop(); w.sh.own(w.sh.sweepInbox) }, nil},
		"stopped when placed":     {func(w wheel) { w.sh.placeAll(); w.timer.Stop() }, nil},
		"stopped by a former one": {func(w wheel) { w.timer.Stop(); w.tw.AfterFunc(2*time.Second, func() {}).Stop() }, nil},
		"later again":             {func(w wheel) { w.timer.Reschedule(2 * time.Hour) }, []int{7200_000}},
		"to where it was":         {func(w wheel) { w.timer.Reschedule(time.Hour) }, []int{3600_000}},
		"and when placed":         {func(w wheel) { w.timer.Reschedule(time.Hour); w.sh.placeAll() }, []int{3600_000}},
		"earlier still":           {func(w wheel) { w.timer.Reschedule(500 * ms) }, []int{500}},
		"to now":                  {func(w wheel) { w.timer.Reschedule(0) }, []int{0}},
		"flushed":                 {func(w wheel) { w.tw.Flush() }, []int{0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
				sh := &tw.engine.shards[0].shard
				watch := newStopwatch()
				timer := tw.AfterFunc(time.Hour, watch.note)
				sh.placeAll()
				require.True(t, timer.Reschedule(time.Second))
				require.True(t, timer.word().Has(arena.Moved))
				require.Equal(t, 1, sh.staged())
				require.Equal(t, 1, sh.placed())
				require.Equal(t, arena.Staged, timer.word().Kind())
				sh.own(func() { sh.alarm.relaxAt = math.MaxInt64 }) // else Stop would settle the wheel
				sh.removals.offerAt.Store(removalsMax)              // the same
				verified(t, sh)
				c.do(wheel{tw, sh, timer})
				verified(t, sh)
				synctest.Wait()
				sh.placeAll()
				verified(t, sh)
				require.Equal(t, tw.Len(), sh.placed(), "a free slot is in no bucket")
				pass(10 * time.Hour)
				require.Equal(t, c.runs, watch.noted())
				require.Zero(t, tw.Len())
				require.Zero(t, sh.placed())
				require.True(t, sh.unnamed(timer.index))
				verified(t, sh)
			})
		})
	}
}

// sweepInbox looks through the inbox as an arming caller does.
func (s *shard) sweepInbox() {
	s.armMu.Lock()
	defer s.armMu.Unlock()
	s.inbox.sweep(&s.slots)
}

// The same while its old bucket expires before the owner looks at the inbox.
func TestOldBucketOfAMovedTimerExpires(t *testing.T) {
	t.Parallel()
	bubble(t, Options{WheelSize: 4, Levels: 3}, func(t *testing.T, tw *TimingWheel) {
		sh := &tw.engine.shards[0].shard
		watch := newStopwatch()
		timers := make([]Timer, 5)
		for k := range timers {
			timers[k] = tw.AfterFunc(60*ms, watch.note) // in a bucket that expires at 48 ms
		}
		sh.placeAll()
		sh.removals.offerAt.Store(removalsMax) // else Stop would settle the wheel
		require.True(t, timers[0].Reschedule(55*ms))
		require.True(t, timers[1].Reschedule(55*ms))
		require.True(t, timers[1].Stop())
		require.True(t, timers[2].Reschedule(55*ms))
		require.True(t, timers[2].Reschedule(70*ms))
		sh.own(func() {
			sh.owner.tick = 50
			require.True(t, sh.owner.expire())
			sh.owner.moveQuantum()
			require.NoError(t, sh.verify())
			require.Equal(t, 2, sh.owner.wheel.live, "those that were not moved")
			sh.owner.tick = 0
		})
		pass(time.Second)
		require.Equal(t, []int{55, 60, 60, 70}, watch.noted())
		require.True(t, sh.unnamed(timers[1].index))
		verified(t, sh)
	})
}

// What a Stop promises does not wait for its entry in the bucket: the handle is dead, the callback
// gone, and Len exact. Only the slot is used no earlier than the entry is gone.
func TestStoppedTimerOnTheWheelIsInertAtOnce(t *testing.T) {
	t.Parallel()
	s, sh := newShardStory(t, Options{})
	typed := s.engine.shards[0]
	timers := s.fillPlaced(4*removalsMax, time.Minute)
	for k, e := range timers[:removalsMax-1] {
		require.True(t, e.Stop())
		require.Equal(t, k+1, sh.removals.len())
		require.Nil(t, typed.values.At(e.index >> arena.PageShift)[e.index&arena.PageMask])
		require.Equal(t, arena.Dead, e.word().Kind())
		require.False(t, e.Stop())
		require.False(t, e.Reschedule(time.Second))
		_, ok := e.Deadline()
		require.False(t, ok)
		require.False(t, sh.unnamed(e.index))
	}
	s.verify()
	require.Equal(t, 4*removalsMax, sh.placed(), "the entries are still there")
	for range 3 {
		require.NotEqual(t, timers[0].index, s.after(time.Hour, "").index)
	}
	require.True(t, timers[removalsMax-1].Stop())
	require.Zero(t, sh.removals.len(), "carried out together")
	for _, e := range timers[:removalsMax] {
		require.True(t, sh.unnamed(e.index))
	}
	s.verify()
	s.stopAll(timers[removalsMax : removalsMax+5])
	require.Equal(t, 5, sh.removals.len())
	require.Equal(t, 3*removalsMax-5+3, s.Len(), "exact, and it carries them out")
	require.Zero(t, sh.removals.len())
	s.verify()
	s.requireInert(timers[:removalsMax+5])
}

// However many timers are stopped, in whatever order, few entries are dead at any time.
func TestDeadEntriesAreBounded(t *testing.T) {
	t.Parallel()
	for name, order := range removal {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, sh := newShardStory(t, Options{})
			const n = 2000
			timers := make([]Timer, n)
			for k := range timers {
				timers[k] = s.after(time.Duration(k+1)*10*msec, "")
			}
			sh.placeAll()
			for stopped, k := range order(n) {
				require.True(t, timers[k].Stop())
				if dead := sh.placed() - (n - stopped - 1); dead >= removalsMax {
					t.Fatalf("%d dead entries", dead)
				}
			}
			require.Zero(t, sh.placed())
			s.verify()
		})
	}
}

// A backlog of removals, which has grown while the wheel was held, shrinks with further Stops: by
// more than they add.
func TestBacklogOfRemovalsShrinks(t *testing.T) {
	t.Parallel()
	s, sh := newShardStory(t, Options{})
	timers := s.fillPlaced(5000, time.Minute)
	sh.wheelMu.Lock()
	requireAllStop(t, timers[:4000])
	sh.unlockAndTend()
	require.Equal(t, 5000-callerQuantum, sh.placed())
	for k := 4000; sh.owner.dead != 0; k += removalsMax {
		before := sh.placed()
		require.Less(t, k+removalsMax, len(timers))
		s.stopAll(timers[k : k+removalsMax])
		require.LessOrEqual(t, sh.placed(), max(before-callerQuantum, len(timers)-k-removalsMax))
	}
}

// The last timers of a small wheel do not wait for others to be stopped as well: the wheel is empty
// at once, and its alarm off, so that a forgotten wheel can be collected.
func TestRemovalsOfASmallWheelAreCarriedOut(t *testing.T) {
	t.Parallel()
	for n := range 2*removalsMax + 2 {
		bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
			sh := &tw.engine.shards[0].shard
			timers := make([]Timer, n)
			for k := range timers {
				timers[k] = tw.AfterFunc(time.Hour+time.Duration(k)*time.Minute, func() {})
			}
			sh.placeAll()
			requireAllStop(t, timers)
			require.Zero(t, sh.removals.len(), "of %d timers", n)
			require.Zero(t, sh.placed())
			require.Equal(t, int64(never), sh.alarm.at.Load())
			pass(3 * time.Hour)
			require.Zero(t, tw.Stats().Wakeups)
			verified(t, sh)
		})
	}
}

// The same if a timer is left in the inbox and is stopped there last, or first.
func TestAlarmOfAnEmptiedWheelIsSwitchedOff(t *testing.T) {
	t.Parallel()
	for _, inboxFirst := range []bool{false, true} {
		for _, staged := range []time.Duration{time.Minute, 2 * time.Hour, 1000 * time.Hour} {
			bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
				sh := &tw.engine.shards[0].shard
				placed := tw.AfterFunc(time.Hour, func() {})
				sh.placeAll()
				young := tw.AfterFunc(staged, func() {})
				require.Equal(t, 1, sh.staged())
				for _, timer := range map[bool][]Timer{true: {young, placed}, false: {placed, young}}[inboxFirst] {
					require.True(t, timer.Stop())
				}
				require.Zero(t, sh.placed())
				require.Equal(t, int64(never), sh.alarm.at.Load(), "%v, the inbox first: %v", staged, inboxFirst)
				verified(t, sh)
			})
		}
	}
}

// The alarm is set for a timer that was moved to the inbox and stopped there, and for one in a
// coarse bucket.
func TestAlarmOfAWheelEmptiedFromInboxAndBucketIsSwitchedOff(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		sh := &tw.engine.shards[0].shard
		a, b := tw.AfterFunc(1000*time.Hour, func() {}), tw.AfterFunc(3000*time.Hour, func() {})
		sh.placeAll()
		require.True(t, b.Reschedule(2000*time.Hour))
		require.True(t, a.Stop())
		require.True(t, b.Stop())
		pass(time.Second) // an alarm that lingers goes off
		require.Equal(t, int64(never), sh.alarm.at.Load(), "a forgotten wheel would stay in memory until then")
	})
}

// The timer is stopped while the wheel has an owner, who corrects the alarm afterwards.
func TestAlarmOfAWheelEmptiedBesideItsOwnerIsSwitchedOff(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		sh := &tw.engine.shards[0].shard
		timer := tw.AfterFunc(1000*time.Hour, func() {})
		sh.wheelMu.Lock()
		require.True(t, timer.Stop())
		require.NotEqual(t, int64(never), sh.alarm.at.Load())
		sh.unlockAndTend()
		require.Equal(t, int64(never), sh.alarm.at.Load(), "a forgotten wheel would stay in memory until then")
	})
}

// The number of removals that wait is not that of a time when the wheel was larger.
func TestAlarmOfAWheelEmptiedAfterOthersHaveFiredIsSwitchedOff(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		sh := &tw.engine.shards[0].shard
		for range 10 {
			tw.AfterFunc(200*ms, func() {})
		}
		far := []Timer{tw.AfterFunc(1000*time.Hour, func() {}), tw.AfterFunc(3000*time.Hour, func() {})}
		sh.placeAll()
		pass(time.Second)
		require.Equal(t, 2, tw.Stats().Pending)
		requireAllStop(t, far)
		pass(time.Second) // an alarm that lingers goes off
		require.Equal(t, int64(never), sh.alarm.at.Load(), "a forgotten wheel would stay in memory until then")
	})
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		sh := &tw.engine.shards[0].shard
		for range 10 {
			tw.AfterFunc(200*ms, func() {})
		}
		far := []Timer{tw.AfterFunc(1000*time.Hour, func() {}), tw.AfterFunc(3000*time.Hour, func() {})}
		sh.placeAll()
		pass(time.Second)
		requireAllStop(t, far)
		pass(time.Second)
		require.Equal(t, int64(never), sh.alarm.at.Load(), "without a call of Stats between")
	})
}

// All that waits in the inbox fires in its very tick, whatever moves before or behind it.
func TestStagedTimersAreNeverLate(t *testing.T) {
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
		verified(t, sh)
		require.True(t, moved.Reschedule(2*time.Second), "after the alarm for before")
		verified(t, sh)
		require.True(t, moved.Reschedule(time.Second/2))
		require.True(t, alarm.Reschedule(2*time.Minute))
		require.Equal(t, 5, sh.staged())
		verified(t, sh)
		pass(25 * time.Hour)
		assert.Equal(t, map[string]time.Duration{
			"alarm": 2 * time.Minute, "after": 61 * time.Second, "moved": time.Second / 2, "far": 24 * time.Hour, "before": time.Second,
		}, at)
	})
}

// The alarm is moved when the timer for which it was set is stopped: not past what waits in the
// inbox.
func TestAlarmMovesToTheNextTimer(t *testing.T) {
	t.Parallel()
	for name, credit := range map[string]bool{"with credit": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
				sh := &tw.engine.shards[0].shard
				if !credit {
					sh.own(func() { sh.alarm.relaxAt = math.MaxInt64 })
				}
				watch := newStopwatch()
				first := tw.AfterFunc(200*ms, func() {})
				tw.AfterFunc(time.Hour, watch.note)
				sh.placeAll()
				tw.AfterFunc(time.Minute, watch.note)
				require.EqualValues(t, 200, sh.alarm.at.Load())
				require.True(t, first.Stop())
				verified(t, sh)
				if credit {
					require.Greater(t, sh.alarm.at.Load(), int64(50_000))
				} else {
					require.LessOrEqual(t, sh.alarm.at.Load(), int64(linger/ms)+1)
				}
				pass(2 * time.Hour)
				require.Equal(t, []int{60_000, 3600_000}, watch.noted())
				require.EqualValues(t, 1, tw.Stats().Stopped)
			})
		})
	}
}

// A Stop of the earliest timer places only part of a large inbox. The alarm is not moved past the
// rest.
func TestAlarmDoesNotMovePastArrivals(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		sh := &tw.engine.shards[0].shard
		watch := newStopwatch()
		var first Timer
		sh.own(func() { // no caller places what it arms
			for range 2 * callerQuantum {
				tw.AfterFunc(2*time.Hour, func() {})
			}
			tw.AfterFunc(time.Hour, watch.note)
			first = tw.AfterFunc(time.Minute, func() {})
		})
		sh.wanted.Store(false)
		require.True(t, first.Stop())
		sh.own(func() { require.False(t, sh.owner.arrivals.empty()) })
		pass(3 * time.Hour)
		require.Equal(t, []int{3600_000}, watch.noted())
	})
}

// An alarm that it was not worth switching off goes off soon, and then no more.
func TestAlarmWithoutCreditLingers(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		sh := &tw.engine.shards[0].shard
		sh.own(func() { sh.alarm.relaxAt = math.MaxInt64 })
		placed := tw.AfterFunc(time.Hour, func() {})
		sh.placeAll()
		staged := tw.AfterFunc(2*time.Hour, func() {})
		require.True(t, placed.Stop())
		require.True(t, staged.Stop())
		require.LessOrEqual(t, sh.alarm.at.Load(), int64(linger/ms)+1)
		pass(time.Second)
		require.EqualValues(t, 1, tw.Stats().Wakeups)
		require.Equal(t, int64(never), sh.alarm.at.Load())
		pass(3 * time.Hour)
		require.EqualValues(t, 1, tw.Stats().Wakeups)
	})
}

// A Stop of the earliest timer corrects the alarm as long as there is credit. A loop of such Stops
// uses it up, and from then on it wakes the driver no more often than the alarm lingers.
func TestStopsOfTheEarliestTimerUseUpCredit(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		sh := &tw.engine.shards[0].shard
		const loops, others = 1000, 4 * relaxCredit // arms beyond relaxCredit save up no more
		for range others {
			tw.AfterFunc(time.Hour, func() {})
		}
		sh.placeAll()
		settings := 0
		for range loops {
			timer := tw.AfterFunc(time.Second, func() {})
			set := sh.alarm.at.Load()
			require.True(t, timer.Stop())
			if sh.alarm.at.Load() > set {
				settings++
			}
		}
		require.LessOrEqual(t, settings, relaxCredit/relaxCost+loops/relaxCost+1, "the alarm was corrected too often")
		require.GreaterOrEqual(t, settings, relaxCredit/relaxCost, "there was credit")
		pass(time.Minute)
		require.LessOrEqual(t, tw.Stats().Wakeups, uint64(2))
		require.Equal(t, others, tw.Len())
	})
}

// Credit is for the earliest timer. Later ones that are stopped spend none.
func TestStopsOfLaterTimersSpendNoCredit(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		sh := &tw.engine.shards[0].shard
		tw.AfterFunc(time.Second, func() {})
		var timers []Timer
		for k := range removalsMax {
			timers = append(timers, tw.AfterFunc(time.Hour+time.Duration(k)*24*time.Hour, func() {}))
		}
		tw.AfterFunc(10_000*time.Hour, func() {})
		sh.placeAll()
		credit := sh.alarm.relaxAt
		requireAllStop(t, timers)
		require.Zero(t, sh.removals.len())
		require.Equal(t, credit, sh.alarm.relaxAt)
	})
}

// What is armed after a long idleness, while removals are outstanding, goes where it belongs by the
// clock as it stands now.
func TestClockCatchesUpBeforePlacing(t *testing.T) {
	t.Parallel()
	bubble(t, Options{Tick: time.Hour, WheelSize: 8, Levels: 4}, func(t *testing.T, tw *TimingWheel) {
		sh := &tw.engine.shards[0].shard
		arm := func(ticks int) Timer { return tw.AfterFunc(time.Duration(ticks)*time.Hour-time.Minute, func() {}) }
		first, full := arm(200), make([]Timer, 20)
		for k := range full {
			full[k] = arm(300)
		}
		last := arm(1000)
		sh.placeAll()
		time.Sleep(150 * time.Hour)
		requireAllStop(t, append(full[:19], first))
		require.Positive(t, sh.removals.len())
		timer := arm(5)
		require.Equal(t, 0, firstLevel(tw.engine.shards[0]))
		require.Zero(t, sh.removals.len())
		verified(t, sh)
		require.True(t, timer.Stop())
		pass(2000 * time.Hour)
		require.False(t, last.Stop())
	})
}

func TestStopOfAWheelWithRemovals(t *testing.T) {
	t.Parallel()
	s, sh := newShardStory(t, Options{})
	s.stopAll(s.fillPlaced(40, time.Minute)[:5])
	require.Equal(t, 5, sh.removals.len())
	s.Stop()
	require.Zero(t, s.Stats().Buckets)
	require.EqualValues(t, 5, s.Stats().Stopped)
	require.EqualValues(t, 35, s.Stats().Discarded)
	_, ok := s.Next()
	require.False(t, ok)
	require.Zero(t, s.Advance(modelStart.Add(time.Hour)))
}

func TestNextNamesNoBucketOfStoppedTimers(t *testing.T) {
	t.Parallel()
	s, sh := newShardStory(t, Options{})
	first := s.after(50*msec, "first")
	s.fill(5, time.Hour)
	before, _ := s.Next()
	require.True(t, first.Stop())
	require.Equal(t, 1, sh.removals.len())
	next, ok := s.Next()
	require.True(t, ok)
	require.True(t, next.After(before), "%v", next)
}

func TestFlushAndRemoveAllLeaveOutStoppedTimers(t *testing.T) {
	t.Parallel()
	s, sh := newShardStory(t, Options{})
	s.stopAll(s.fillPlaced(10, time.Minute)[:5])
	require.Equal(t, 5, sh.removals.len())
	require.Equal(t, 5, s.Flush())
	require.Len(t, s.ran, 5)
	s.verify()

	w, err := NewTimeouts(Options{Manual: true}, func([]int) {})
	require.NoError(t, err)
	t.Cleanup(w.Stop)
	timers := make([]Timer, 10)
	for k := range timers {
		timers[k] = w.Add(time.Minute, k)
	}
	w.engine.shards[0].placeAll()
	requireAllStop(t, timers[:5])
	require.Equal(t, 5, w.engine.shards[0].removals.len())
	require.Equal(t, []int{5, 6, 7, 8, 9}, w.RemoveAll())
	require.Zero(t, w.Len())
}

// Chunks are merged and given back as if each entry had left by itself.
func TestRemovalsThinOutChunks(t *testing.T) {
	t.Parallel()
	s, sh := newShardStory(t, Options{})
	timers := s.fillPlaced(100*chunkSize, time.Minute)
	newSeeded(1, 0).rng.Shuffle(len(timers), func(i, k int) { timers[i], timers[k] = timers[k], timers[i] })
	for len(timers) > chunkSize {
		s.stopAll(timers[:7])
		timers = timers[7:]
	}
	require.Equal(t, len(timers), s.Len())
	s.verify()
	require.LessOrEqual(t, sh.owner.store.chunks.used(), 2*chunkSize/(mergeMax/2)+1, "of two neighbours one is not sparse")
	s.to(time.Minute)
	require.Len(t, s.ran, len(timers))
}

// The next run of a plan waits in the inbox, and its handle works there as well.
func TestPlanInTheInbox(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		sh := &tw.engine.shards[0].shard
		runs := 0
		plan := tw.ScheduleFunc(Every(time.Minute), func() { runs++ })
		require.Equal(t, 1, sh.staged())
		verified(t, sh)
		require.True(t, plan.Reschedule(2*time.Minute))
		pass(2 * time.Minute)
		require.Equal(t, 1, runs)
		require.Equal(t, 1, tw.Len())
		require.True(t, plan.Stop())
		verified(t, sh)
		pass(time.Hour)
		require.Equal(t, 1, runs)
	})
}

// Arm and cancel in a loop grows nothing, at one instant, at ever new ones, and beside a
// population.
func TestArmAndCancelGrowsNothing(t *testing.T) {
	t.Parallel()
	for _, population := range []int{0, 1, 3 * arena.PageSize} {
		for _, spread := range []time.Duration{0, msec, 1017 * msec, time.Hour} {
			t.Run(fmt.Sprintf("population=%d/spread=%v", population, spread), func(t *testing.T) {
				t.Parallel()
				s, sh := newShardStory(t, Options{WheelSize: 64, Levels: 3})
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
				require.LessOrEqual(t, len(sh.owner.store.all), before.Buckets+2*hollowMax+4)
				s.verify()
			})
		}
	}
}
