package timingwheel

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"math/bits"
	"reflect"
	"slices"
	"time"
	"unsafe"

	"github.com/timingwheel-go/timingwheel/internal/arena"
	"github.com/timingwheel-go/timingwheel/internal/metrics"
)

// Stats is a snapshot of a wheel. The shards are read one after the other, so over several shards
// the figures are not of one moment. Fields of type uint64 are counters that only grow, except
// Bytes.
type Stats struct {
	Name   string        // Options.Name
	Tick   time.Duration // Options.Tick, or its default
	Shards int           // Options.Shards, or its default

	Pending   int           // timers that are armed and neither claimed nor stopped
	Due       int           // pending timers that have expired or were flushed
	MostDue   int           // most timers that one shard has had due at a claim
	Overdue   time.Duration // time since the earliest deadline of the expired timers that are not claimed
	Armed     uint64        // timers that were added; each run of a plan counts
	Fired     uint64        // callbacks and payloads that were claimed
	Stopped   uint64        // calls of Stop that returned true, and timers of RemoveAll
	Discarded uint64        // timers that were pending when the wheel was stopped
	Postponed uint64        // moves by Reschedule; for the time at which a move counts see docs/semantics.md
	Rejected  uint64        // timers that were not armed because the wheel was stopped
	Flushed   uint64        // timers that Flush made due
	Moved     uint64        // timers that were taken out of a bucket of a coarser level and placed again
	Wakeups   uint64        // times that the runtime's timer woke the wheel

	Running     int    // callbacks (with Timeouts: batches) that have started and not returned
	SlowRunning int    // slow callbacks that have not returned
	Slow        uint64 // callbacks (batches) that took Options.SlowAfter or longer, or have so far
	Panics      uint64 // panics of callbacks that were reported to Options.OnPanic
	Workers     int    // goroutines of the default executor, including those that begin or end
	Buckets     int    // non-empty buckets
	Levels      int    // largest number of levels in use in a shard
	Bytes       uint64 // memory held for timers, payloads, buckets and slots, in bytes

	Expired int // entries of a keyed.Map that have expired and wait to be reported; else 0

	// Lateness is the distribution of the time from the tick to which a deadline was rounded up to
	// the claim. With Timeouts and in Manual mode every timer is measured, otherwise a sample of at
	// most one in 16.
	Lateness Histogram
}

func (e *engine[T]) stats() Stats {
	st := Stats{Name: e.name, Tick: time.Duration(e.ticks.Length()), Shards: len(e.shards), Panics: e.panics.Load()}
	if e.watch != nil {
		st.Slow, st.SlowRunning = e.watch.Slow()
	}
	now := e.reading()
	for _, s := range e.shards {
		s.addStats(&st, now)
	}
	return st
}

// describe returns a line about the wheel for String. kind is the name of the wheel's type.
func (e *engine[T]) describe(kind string) string {
	st := e.stats()
	if st.Name != "" {
		kind += fmt.Sprintf(" %q", st.Name)
	}
	levels := "levels"
	if st.Levels == 1 {
		levels = "level"
	}
	return fmt.Sprintf("%s: %d pending, %d %s", kind, st.Pending, st.Levels, levels)
}

// addStats adds the figures of the shard. It holds wheelMu throughout. Apart from draining the
// backlog, it takes a short time that does not depend on the number of timers.
func (s *shardOf[T]) addStats(st *Stats, now int64) {
	s.wheelMu.Lock()
	defer s.unlockAndDrain()
	closed := s.closed.Load()
	if !closed {
		s.drainAll()
	}
	s.armMu.Lock()
	ib, runs := s.inbox, s.claims.runs.Load()
	ib.armed, ib.stopped = s.funcTimers.counts(&s.inbox, &s.slots)
	s.armMu.Unlock()
	if !closed {
		s.addPending(st, now)
		st.Pending += s.owner.counters.pending(ib.armed, ib.stopped, runs)
	}
	s.addCounters(st, &ib, runs)
	st.Bytes += s.bytes()
}

// addCounters adds the counters, which count from the making of the wheel. ib and runs are the
// copies by which pending timers were counted, so that the sums agree. wheelMu is held.
func (s *shardOf[T]) addCounters(st *Stats, ib *inbox, runs uint64) {
	o := &s.owner
	c := &o.counters
	st.Armed += ib.armed
	st.Rejected += ib.rejected
	// late is the number of Stops that took effect before the wheel's Stop and pushed their slots
	// after it. halt has counted their timers as discarded.
	late := uint64(0)
	if s.closed.Load() {
		late = min(uint64(s.removals.len()), c.discarded)
	}
	st.Stopped += c.stopped + ib.stopped + s.claims.planEnds.Load() + late
	st.Postponed += c.postponed + ib.rescheduled
	st.Fired += c.fired + runs
	st.Discarded += c.discarded - late
	st.Flushed += c.flushed
	st.Moved += c.cascaded
	st.Wakeups += s.alarm.fired.Load()
	st.Running += o.pool.running
	st.Workers += o.pool.serving + o.pool.starting
	st.MostDue = max(st.MostDue, c.mostDue)
	st.Lateness.add(&c.lateness)
}

// addPending adds the present state of the shard, apart from the number of pending timers, and
// counts the claims of all batches. wheelMu is held and everything is drained.
func (s *shard) addPending(st *Stats, now int64) {
	o := &s.owner
	st.Due += o.due.ready
	for _, b := range o.pool.batches {
		o.countBatch(b)
		st.Due += b.unclaimed()
	}
	o.due.first() // frees empty buckets
	st.Buckets += len(o.store.all) - len(o.store.spare) - o.wheel.empties
	levels := 0
	for _, l := range o.wheel.levels {
		if l.slots != nil {
			levels++
		}
	}
	st.Levels = max(st.Levels, levels)
	st.Overdue = max(st.Overdue, o.overdue(max(now, s.now.Load())))
}

// overdue returns how long, at now, the earliest expired timer has waited to be claimed. It looks
// at the first chunk of each list in which expired timers wait. It also looks at the first bucket
// on the wheel, in case no driver takes that bucket off. overdue misses the earliest timer only if
// whole chunks of postponed timers precede it.
func (o *owner) overdue(now int64) time.Duration {
	tick := o.ticks.Floor(now)
	first := min(o.earliest(o.due.first()), o.earliest(o.wheel.cascade.levels[0].head))
	for _, e := range o.due.entries[o.due.taken:] {
		first = min(first, e.word.Tick())
		break
	}
	for _, b := range o.pool.batches {
		for _, e := range b.entries {
			if e.page.Load(e.index) == e.word {
				first = min(first, e.word.Tick())
			}
		}
	}
	if at, ok := o.wheel.first(); ok && at <= tick {
		if top, _ := o.wheel.queue.Min(); top.at <= tick { // before top.at none of its timers has expired
			first = min(first, o.earliest(top))
		}
	}
	return time.Duration(max(0, now-o.ticks.Begin(first)))
}

// earliest returns the first tick in the first chunk of a bucket, or never.
func (o *owner) earliest(b *bucket) int64 {
	first := int64(never)
	if b == nil || b.live == 0 {
		return first
	}
	m, entries := o.store.chunks.both(b.head)
	for alive := m.alive; alive != 0; alive &= alive - 1 {
		if w := o.store.word(entries[bits.TrailingZeros32(alive)]); w.Kind() == arena.Placed {
			first = min(first, w.Tick())
		}
	}
	return first
}

// bytes returns the memory held for the timers of the shard, apart from the shard itself. wheelMu
// is held.
func (s *shardOf[T]) bytes() uint64 {
	o := &s.owner
	s.armMu.Lock()
	pages, table := uintptr(s.slots.OpenPages), uintptr(s.slots.Pages.Cap()+s.values.Cap())
	word := unsafe.Sizeof(uintptr(0))
	states := uintptr(s.slots.Pager.Len()) * (arena.PageStateSize + word + unsafe.Sizeof(pageRef{}))
	var order uintptr
	if s.order != nil {
		order = pages * unsafe.Sizeof([arena.PageSize]uint64{})
	}
	s.armMu.Unlock()
	n := pages*(unsafe.Sizeof(arena.Page{})+unsafe.Sizeof([arena.PageSize]T{})) + table*word + states + order
	n += uintptr(o.store.chunks.openPages)*unsafe.Sizeof(chunkPage{}) + uintptr(cap(o.store.chunks.pages))*word
	n += uintptr(o.store.chunks.pager.Len()) * arena.PageStateSize
	n += uintptr(len(o.store.all)) * (unsafe.Sizeof(bucket{}) + 2*word)
	for _, l := range o.wheel.levels {
		n += uintptr(len(l.slots)) * word
	}
	return uint64(n)
}

// LogValue returns the figures as a group of attributes, for [slog]. It leaves out options and most
// figures that are zero. It implements [slog.LogValuer].
func (st Stats) LogValue() slog.Value {
	attrs := make([]slog.Attr, 0, 24)
	if st.Name != "" {
		attrs = append(attrs, slog.String("name", st.Name))
	}
	for m, v := range metrics.Numbers(&st) {
		if m.Main || m.Kind != metrics.Setting && !reflect.ValueOf(v).IsZero() {
			attrs = append(attrs, slog.Any(m.Key(), v))
		}
	}
	if h := &st.Lateness; h.Count() > 0 {
		attrs = append(attrs, slog.Group("lateness",
			slog.Duration("p50", h.Quantile(0.5)),
			slog.Duration("p99", h.Quantile(0.99)),
			slog.Duration("max", h.Max),
		))
	}
	return slog.GroupValue(attrs...)
}

// Occupancy is the distribution of the pending timers over the levels and slots of a wheel, see
// [TimingWheel.Occupancy]. Pending is the sum of Due, Moving, Unseen and the Timers of all levels.
type Occupancy struct {
	Now       time.Time     // time of the snapshot on the wheel's clock
	Tick      time.Duration // interval of a slot of the finest level
	WheelSize int           // slots of each level
	Shards    int           // shards of the wheel, whose timers are added up
	Stopped   bool          // the wheel was stopped, and nothing is pending

	Pending int              // pending timers
	Due     int              // timers that are due and have not been claimed
	Moving  int              // timers that have left a slot and are being moved to a finer level
	Unseen  int              // timers that moved during the call, or that it did not reach on a very full wheel
	Levels  []LevelOccupancy // the finest level first; levels without timers included
	Next    []Expiration     // the earliest expirations, at most 16, in order of time
}

// LevelOccupancy is the occupancy of one level of a wheel, over all shards.
type LevelOccupancy struct {
	Interval time.Duration // interval of a slot; the largest Duration if the interval is longer
	Hand     int           // slot of the current interval, from 0 to WheelSize-1
	Timers   int           // pending timers of the level, which is the sum of Cells
	Later    int           // those of Timers in slots with nothing due in this round; only on the last level
	Cells    []int         // timers by slot, from Hand on; a cell has several slots if WheelSize > 512
}

// Expiration describes the buckets of one level that expire at one time. Timers of level 0 are due
// then. Timers of other levels move to a finer level.
type Expiration struct {
	At     time.Time // on the wheel's clock
	Level  int       // 0 is the finest level
	Timers int       // pending timers of the buckets
}

// Limits of one call of Occupancy and of its result.
const (
	occupancyCells = 512     // cells of a level; the slots of a larger wheel share them
	occupancyNext  = 16      // expirations in Next
	occupancyWhole = 1024    // non-empty buckets of a shard that are counted in one hold of its lock
	occupancyStep  = quantum // buckets or slots per hold of the lock of a larger shard; each may be a cache miss
	occupancySlots = 1 << 18 // buckets or slots that are looked at, of all larger shards together
	occupancyPeek  = 128     // buckets that are looked at for the next expirations of a shard
)

// survey builds an Occupancy.
type survey struct {
	Occupancy
	config
	tick  int64            // tick of the survey, to which the hands are set
	whole int              // a shard with up to so many buckets is counted in one hold of its lock
	step  int              // buckets or slots per hold of the lock of a larger shard
	each  int              // slots of a level that are looked at, from the hand on, if there are more buckets
	fold  uint             // log2 of the slots of a cell
	soon  map[expiry]int   // timers of the next expirations
	hand  [maxLevels]int64 // current interval of each level, counted from tick 0
}

type expiry struct {
	tick  int64
	level int32
}

func (e *engine[T]) occupancy(whole, slots int) Occupancy {
	v := e.survey(whole, slots)
	v.Stopped = true
	for _, s := range e.shards {
		s.wheelMu.Lock()
		v.add(&s.shard)
		v.Stopped = v.Stopped && s.closed.Load()
		s.unlockAndDrain()
	}
	for l := range v.Levels {
		v.Pending += v.Levels[l].Timers
	}
	v.Pending += v.Due + v.Moving + v.Unseen
	v.Next = v.expirations(e.TimeAt)
	return v.Occupancy
}

// survey returns a new survey with empty levels.
func (e *engine[T]) survey(whole, slots int) *survey {
	now := e.reading()
	levels := e.last + 1
	v := &survey{
		Occupancy: Occupancy{
			Now: e.TimeAt(now), Tick: time.Duration(e.ticks.Length()), WheelSize: int(e.size), Shards: len(e.shards),
			Levels: make([]LevelOccupancy, levels),
		},
		config: e.config,
		tick:   e.ticks.Floor(now),
		whole:  whole,
		step:   min(whole, occupancyStep),
		each:   int(min(e.size, int64(max(1, slots/(levels*len(e.shards)))))),
		soon:   make(map[expiry]int),
	}
	for e.size>>v.fold > occupancyCells {
		v.fold++
	}
	v.setHands(v.tick)
	for l := range v.Levels {
		v.Levels[l] = LevelOccupancy{
			Interval: time.Duration(e.ticks.Begin(1 << (uint(l) * e.bits))),
			Hand:     int(v.hand[l] & (e.size - 1)),
			Cells:    make([]int, e.size>>v.fold),
		}
	}
	return v
}

// setHands sets the hands of all levels to the given tick.
func (v *survey) setHands(tick int64) {
	for l := range v.Levels {
		v.hand[l] = tick >> (uint(l) * v.bits)
	}
}

// count adds the timers of a bucket that is in a slot. A bucket whose time has passed counts in the
// current slot: no driver has taken it off yet.
func (v *survey) count(b *bucket) {
	l := &v.Levels[b.level]
	ahead := max(0, b.at>>(uint(b.level)*v.bits)-v.hand[b.level])
	switch {
	case ahead < v.size:
	case int(b.level) < v.last:
		ahead = v.size - 1 // the shard's clock advanced while its lock was free
	default:
		l.Later += b.live
		ahead &= v.size - 1
	}
	l.Cells[ahead>>v.fold] += b.live
	l.Timers += b.live
}

// add adds the timers of the shard. wheelMu is held; add releases it in between if the shard has
// many buckets.
func (v *survey) add(s *shard) {
	if s.closed.Load() {
		return
	}
	s.drainAll()
	o := &s.owner
	v.setHands(max(v.tick, o.wheel.cur)) // the shard may have read the clock later
	v.addNext(s)
	before := v.found()
	switch {
	case o.wheel.queue.Len() <= v.whole:
		for b := range o.wheel.buckets {
			v.count(b)
		}
	case len(o.store.all) <= v.each*len(v.Levels):
		v.addBuckets(s)
	default:
		v.addSlots(s)
	}
	v.addExpired(s)
	if !s.closed.Load() {
		v.Unseen += max(0, s.pending()-(v.found()-before))
	}
}

// found returns the number of timers that have been counted so far.
func (v *survey) found() int {
	n := v.Due + v.Moving
	for l := range v.Levels {
		n += v.Levels[l].Timers
	}
	return n
}

// addBuckets counts the buckets in the order of their ids, which stay the same while the lock is
// free. Places in the queue do not. Unlike addSlots, addBuckets does not look at empty slots, and
// most slots of a large wheel are empty.
func (v *survey) addBuckets(s *shard) {
	for k, steps := 0, 0; k < len(s.owner.store.all); k++ { // empty if the wheel was stopped
		if steps == v.step {
			steps = 0
			yieldAndDrain(s)
			if k >= len(s.owner.store.all) {
				return
			}
		}
		steps++
		if b := s.owner.store.all[k]; b.heapIndex >= 0 {
			v.count(b)
		}
	}
}

// yieldAndDrain releases the lock for a moment and then places the timers that arrived meanwhile.
func yieldAndDrain(s *shard) {
	s.yield()
	if !s.closed.Load() {
		s.drainAll()
	}
}

// addSlots counts the buckets in the order of their slots. It begins with the coarsest level, so a
// timer that moves to a finer level while the lock is free is counted twice and not missed.
func (v *survey) addSlots(s *shard) {
	steps := 0
	for l := len(s.owner.wheel.levels) - 1; l >= 0; l-- {
		for k := 0; k < v.each; k++ {
			if steps == v.step {
				steps = 0
				yieldAndDrain(s)
			}
			// If the wheel was stopped meanwhile, it has no levels.
			if l >= len(s.owner.wheel.levels) || s.owner.wheel.levels[l].slots == nil {
				break
			}
			steps++
			if b := s.owner.wheel.levels[l].slots[(v.hand[l]+int64(k))&(s.size-1)]; b != nil {
				v.count(b)
			}
		}
	}
}

// addExpired counts the timers that have left their slots. The number of cascading buckets is not
// bounded, so at most whole of them are counted.
func (v *survey) addExpired(s *shard) {
	if s.closed.Load() {
		return
	}
	o := &s.owner
	v.Due += o.due.pending()
	for _, b := range o.pool.batches {
		v.Due += b.unclaimed()
	}
	steps := 0
	for b := range o.wheel.cascade.all {
		if steps++; steps > v.whole {
			break
		}
		v.Moving += b.live
	}
}

// addNext finds the earliest buckets with timers. The queue is a heap, so addNext searches it from
// the top: among the buckets whose parents were visited, it visits the earliest one next. It skips
// buckets without timers, and visits at most occupancyPeek buckets.
func (v *survey) addNext(s *shard) {
	var open []int // indices of the queue
	queue := &s.owner.wheel.queue
	if queue.Len() > 0 {
		open = append(open, 0)
	}
	for found, looks := 0, 0; len(open) > 0 && found < occupancyNext && looks < occupancyPeek; looks++ {
		first := 0
		for k := range open {
			if queue.At(open[k]).Before(queue.At(open[first])) {
				first = k
			}
		}
		i := open[first]
		open[first] = open[len(open)-1]
		open = open[:len(open)-1]
		for child := 2*i + 1; child <= 2*i+2 && child < queue.Len(); child++ {
			open = append(open, child)
		}
		if b := queue.At(i); b.live > 0 {
			v.soon[expiry{b.key, b.level}] += b.live
			found++
		}
	}
}

// expirations returns the earliest of the expirations that addNext has found. Each shard has
// contributed up to occupancyNext of them, so none is missing or counted in part.
func (v *survey) expirations(timeAt func(ns int64) time.Time) []Expiration {
	all := slices.SortedFunc(maps.Keys(v.soon), func(a, b expiry) int {
		return cmp.Or(cmp.Compare(a.tick, b.tick), cmp.Compare(a.level, b.level))
	})
	next := make([]Expiration, 0, occupancyNext)
	for _, x := range all[:min(len(all), occupancyNext)] {
		next = append(next, Expiration{At: timeAt(v.ticks.Begin(x.tick)), Level: int(x.level), Timers: v.soon[x]})
	}
	return next
}
