package timingwheel

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

func TestSizeOfEntry(t *testing.T) {
	t.Parallel()
	const word = unsafe.Sizeof(uintptr(0))
	if word == 8 {
		require.EqualValues(t, 24, unsafe.Sizeof(entry{}))
	}
	require.LessOrEqual(t, batchSize, 32, "batch.counted and worker.claimed have a bit for each entry")
	require.LessOrEqual(t, batchSize, chunkSize, "takeSlots takes slots of one chunk")
}

// dueModel is a dueList with a reference: the slots in the order in which they must be taken.
type dueModel struct {
	dueList
	t       *testing.T
	store   bucketStore
	table   arena.Table[arena.Page]
	unused  []uint32
	entries []uint32 // go first
	buckets []*[]uint32
	open    *[]uint32 // takes single timers
}

func newDueModel(t *testing.T, slots int) *dueModel {
	m := &dueModel{t: t}
	m.store.slots = &m.table
	m.dueList.store = &m.store
	for i := range slots {
		if i%arena.PageSize == 0 {
			m.table.Set(i/arena.PageSize, new(arena.Page))
		}
		m.unused = append(m.unused, uint32(i))
	}
	return m
}

// slot returns a slot whose timer is placed.
func (m *dueModel) slot() uint32 {
	i := m.unused[len(m.unused)-1]
	m.unused = m.unused[:len(m.unused)-1]
	pg := m.page(i)
	pg.Store(i, pg.Load(i)&^(1<<20-1<<6)) // generations are none of its business
	pg.Store(i, pg.Arm(i, 0, uint64(i)).With(arena.Placed))
	return i
}

func (m *dueModel) page(i uint32) *arena.Page { return m.table.At(i >> arena.PageShift) }

func (m *dueModel) entryOf(i uint32) entry { return entry{m.page(i), m.page(i).Load(i), i} }

func (m *dueModel) putOne() {
	i := m.slot()
	m.put(i, 5)
	if m.open == nil {
		m.open = new([]uint32)
		m.buckets = append(m.buckets, m.open)
	}
	*m.open = append(*m.open, i)
}

func (m *dueModel) addBucket(n int) {
	b, slots := m.store.newBucket(), []uint32(nil)
	for range n {
		slots = append(slots, m.slot())
		m.store.append(b, slots[len(slots)-1])
	}
	m.add(b)
	m.buckets = append(m.buckets, &slots)
	m.open = nil // closed
}

func (m *dueModel) end(slots []uint32) {
	for _, i := range slots {
		m.page(i).Store(i, m.page(i).Load(i).With(arena.Spent))
		m.unused = append(m.unused, i)
	}
}

// check compares the list with the reference.
func (m *dueModel) check() {
	m.t.Helper()
	var entries []uint32
	for _, e := range m.dueList.entries[m.taken:] {
		entries = append(entries, e.index)
	}
	ready := len(m.entries)
	var got, want []uint32
	for b := range m.dueList.buckets.all {
		m.store.each(b, func(_, i uint32) { got = append(got, i) })
	}
	for _, b := range m.buckets {
		want = append(want, *b...)
		ready += len(*b)
	}
	if !slices.Equal(entries, m.entries) || m.dueList.ready != ready {
		m.t.Fatalf("entries %v, want %v; %d are ready, want %d", entries, m.entries, m.dueList.ready, ready)
	}
	if !slices.Equal(got, want) {
		m.t.Fatalf("buckets hold %v, want %v", got, want)
	}
}

// Entries that were put back go first, and then the buckets in order. The bucket to which put adds
// is closed when its first timer is taken or when another bucket is added.
func TestDueTimersAreTakenInOrder(t *testing.T) {
	t.Parallel()
	m := newDueModel(t, 1000)
	late := m.slot()
	var slots [5]uint32
	for k := range slots {
		slots[k] = m.slot()
	}
	m.put(slots[0], 5)
	expired := m.store.newBucket()
	m.store.append(expired, slots[1])
	m.add(expired)
	require.Nil(t, m.openBucket, "closed: later timers wait behind the others")
	m.put(slots[2], 6)
	m.put(slots[3], 6)
	m.putBack([]entry{m.entryOf(late)})
	require.Equal(t, 5, m.ready)

	e, ok := m.takeEntry()
	require.True(t, ok)
	require.Equal(t, late, e.index)
	_, ok = m.takeEntry()
	require.False(t, ok)
	var to [chunkSize]uint32
	for k := range 3 {
		require.Equal(t, 1, m.takeSlots(&to, 1))
		require.Equal(t, slots[k], to[0])
	}
	require.Nil(t, m.openBucket, "closed: a timer with zero delay waits behind the others")
	m.put(slots[4], 6)
	for _, i := range slots[3:] { // the rest of its bucket, and then the new one
		require.Equal(t, 1, m.takeSlots(&to, 32))
		require.Equal(t, i, to[0])
	}
	require.Zero(t, m.takeSlots(&to, 32))
	require.Zero(t, m.ready)
	require.False(t, m.waiting())
}

// In Manual mode a timer that becomes due outside Advance waits for the next Advance.
func TestTimersOfTheNextAdvanceAreNotDueYet(t *testing.T) {
	t.Parallel()
	m := newDueModel(t, 10)
	m.manual = true
	m.put(m.slot(), 7)
	m.put(m.slot(), 7)
	require.Zero(t, m.ready)
	require.Nil(t, m.first())
	require.True(t, m.waiting())
	require.Equal(t, 2, m.pending())
	require.Equal(t, bucketNextAdvance, m.nextAdvance.head.state)
	require.EqualValues(t, 7, m.nextAdvance.head.at)
	require.Equal(t, 2, m.nextAdvance.head.live)
}

// An entry is dropped if its timer was stopped, claimed, or moved to the inbox or to a bucket.
func TestStaleEntriesAreDropped(t *testing.T) {
	t.Parallel()
	m := newDueModel(t, 100)
	slots := make([]uint32, 6)
	var entries []entry
	for k := range slots {
		slots[k] = m.slot()
		entries = append(entries, m.entryOf(slots[k]))
	}
	m.putBack(entries)
	kinds := []arena.Kind{arena.Dead, arena.Spent, arena.Staged, arena.Ended}
	for k, kind := range kinds {
		m.page(0).Store(slots[k], m.page(0).Load(slots[k]).With(kind))
	}
	m.page(0).Pos[slots[4]] = 77 // placed in a bucket
	require.Equal(t, 1, m.pending())
	require.True(t, m.waiting())
	require.Equal(t, 1, m.ready, "the first entries were dropped")
	m.page(0).Arm(slots[5], 0, 5)
	m.page(0).Store(slots[5], m.page(0).Load(slots[5]).With(arena.Placed))
	require.Zero(t, m.pending(), "another timer uses the slot")
	require.False(t, m.waiting())
	require.Zero(t, m.ready)
}

// playDue performs the operations that pick chooses on a list and compares it with the reference
// after each step.
func playDue(t *testing.T, pick choices) {
	m := newDueModel(t, 2000)
	for pick.more() {
		switch pick.below(7) {
		case 0:
			for n := min(pick.below(80), len(m.unused)/2); n > 0; n-- {
				m.putOne()
			}
		case 1:
			m.addBucket(min(pick.below(80), len(m.unused)/2))
		case 2: // a worker puts back what it has taken
			n := min(pick.below(batchSize), len(m.unused)/2)
			var back []entry
			var slots []uint32
			for range n {
				slots = append(slots, m.slot())
				back = append(back, m.entryOf(slots[len(slots)-1]))
			}
			m.putBack(back)
			m.entries = append(slots, m.entries...)
		case 3:
			if e, ok := m.takeEntry(); ok != (len(m.entries) > 0) || ok && e.index != m.entries[0] {
				t.Fatalf("took %d (%v) of %v", e.index, ok, m.entries)
			} else if ok {
				m.end(m.entries[:1])
				m.entries = m.entries[1:]
			}
		case 4, 5:
			m.takeSome(1 + pick.below(chunkSize))
		case 6:
			if pick.below(8) == 0 {
				n := len(m.takeEntries())
				if n != len(m.entries) {
					t.Fatalf("took %d entries of %d", n, len(m.entries))
				}
				m.end(m.entries)
				m.entries = nil
			}
		}
		m.check()
	}
}

// takeSome takes slots from the first non-empty bucket.
func (m *dueModel) takeSome(most int) {
	var to [chunkSize]uint32
	n := m.takeSlots(&to, most)
	for len(m.buckets) > 0 && len(*m.buckets[0]) == 0 {
		m.buckets = m.buckets[1:]
	}
	if len(m.buckets) == 0 {
		if n != 0 {
			m.t.Fatalf("took %v from an empty list", to[:n])
		}
		return
	}
	first := m.buckets[0]
	if n == 0 || n > most || n > len(*first) || !slices.Equal(to[:n], (*first)[:n]) {
		m.t.Fatalf("took %v of %v", to[:n], *first)
	}
	if first == m.open {
		m.open = nil // closed
	}
	m.end((*first)[:n])
	*first = (*first)[n:]
}

func TestModelDueList(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			playDue(t, newSeeded(seed, 400))
		})
	}
}

func FuzzDueList(f *testing.F) {
	addModelSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) { playDue(t, &scripted{data[:min(len(data), 1024)]}) })
}

// A timer with zero delay that is armed after a Flush runs after the flushed timers.
func TestTimerWithZeroDelayWaitsBehindAFlush(t *testing.T) {
	t.Parallel()
	h := &held{}
	bubble(t, Options{Executor: h}, func(t *testing.T, tw *TimingWheel) {
		var order []int
		for k := range 5 {
			tw.AfterFunc(time.Duration(k)*time.Hour, func() { order = append(order, k) })
		}
		require.Equal(t, 5, tw.Flush())
		tw.AfterFunc(0, func() { order = append(order, 5) })
		synctest.Wait()
		h.release()
		require.Len(t, order, 6)
		require.Equal(t, 5, order[5])
	})
}

// A flushed timer that is rescheduled before its claim runs at the new time only.
func TestRescheduleOfAFlushedTimer(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{time.Minute, time.Hour, 3 * time.Hour, oneYear} {
		h := &held{}
		bubble(t, Options{Executor: h}, func(t *testing.T, tw *TimingWheel) {
			sh := &tw.engine.shards[0].shard
			start := time.Now()
			var ran []time.Duration
			timer := tw.AfterFunc(time.Hour, func() { ran = append(ran, time.Since(start)) })
			require.Equal(t, 1, tw.Flush())
			synctest.Wait()
			require.True(t, timer.Reschedule(d))
			require.Equal(t, 1, tw.Len())
			verifyShard(t, sh)
			h.release()
			synctest.Wait()
			if d != time.Hour { // else nothing has changed
				require.Empty(t, ran)
				require.Equal(t, 1, tw.Len())
			}
			verifyShard(t, sh)
			pass(d)
			h.release()
			require.Len(t, ran, 1)
			if d != time.Hour {
				require.Equal(t, d, ran[0])
			}
			require.Zero(t, tw.Len())
			require.True(t, sh.slotIsFree(timer.index))
			verifyShard(t, sh)
		})
	}
}

// Stop, Len and a second Flush see the timers that a Flush has made due.
func TestFlushedTimersArePending(t *testing.T) {
	t.Parallel()
	h := &held{}
	bubble(t, Options{Executor: h}, func(t *testing.T, tw *TimingWheel) {
		sh := &tw.engine.shards[0].shard
		ran := 0
		timers := make([]Timer, 100)
		for k := range timers {
			timers[k] = tw.AfterFunc(time.Duration(k)*time.Hour, func() { ran++ })
		}
		require.Equal(t, 100, tw.Flush())
		requireAllStop(t, timers[:30])
		require.Equal(t, 70, tw.Len())
		require.Equal(t, 70, tw.Flush())
		verifyShard(t, sh)
		_, ok := tw.Next()
		require.True(t, ok)
		synctest.Wait()
		h.release()
		synctest.Wait()
		h.release()
		require.Equal(t, 70, ran)
		_, ok = tw.Next()
		require.False(t, ok)
		for _, timer := range timers {
			require.True(t, sh.slotIsFree(timer.index))
		}
		verifyShard(t, sh)
	})
}

// RemoveAll takes due, cascading and queued timers, and those that a worker has put back.
func TestRemoveAllTakesEverything(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &held{}
		w, err := NewTimeouts(Options{Shards: 1, Executor: h, WheelSize: 4, Levels: 3}, func([]int) { t.Error("ran") })
		require.NoError(t, err)
		defer w.Stop()
		s := w.engine.shards[0]
		var want []int
		add := func(d time.Duration) Timer {
			want = append(want, len(want))
			return w.Add(d, len(want)-1)
		}
		for range 40 {
			add(5 * ms)
		}
		pass(10 * ms)
		for range 40 {
			add(0)
			add(50 * ms)
		}
		synctest.Wait()
		s.own(func() {
			s.drainAll()
			entries, _ := s.owner.fill(nil, 7, never)
			require.Len(t, entries, 7)
			s.owner.due.putBack(entries)
			s.owner.tick += 45 // the bucket of those of 50 ms expires and begins to move
			s.owner.expire()
			require.True(t, s.owner.wheel.cascade.waiting())
			require.NoError(t, s.verify())
		})
		postponed := add(time.Hour)
		require.True(t, postponed.Reschedule(2*time.Hour))
		require.True(t, postponed.Reschedule(30*time.Minute))
		require.ElementsMatch(t, want, w.RemoveAll())
		require.Zero(t, w.Len())
		require.EqualValues(t, len(want), w.Stats().Stopped)
		verifyShard(t, &s.shard)
		h.release()
		assert.False(t, postponed.Stop())
	})
}

// A flushed timer is rescheduled to the tick that it had before, and runs at that tick.
func TestRescheduleOfAFlushedTimerToItsOldTick(t *testing.T) {
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

// A due timer that was postponed is pending, so a Flush makes it due.
func TestFlushIncludesPostponedDueTimers(t *testing.T) {
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
