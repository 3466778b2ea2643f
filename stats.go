package timingwheel

import (
	"fmt"
	"log/slog"
	"math/bits"
	"reflect"
	"time"
	"unsafe"

	"github.com/timingwheel-go/timingwheel/internal/arena"
	"github.com/timingwheel-go/timingwheel/internal/metrics"
	"github.com/timingwheel-go/timingwheel/internal/survey"
)

// Stats is a snapshot of a wheel. The shards are read one after the other, so over several shards
// the figures are not of one moment. Fields of type uint64 are counters that only grow, except
// Bytes.
type Stats struct {
	Name   string        // Options.Name
	Tick   time.Duration // Options.Tick, or its default
	Shards int           // Options.Shards, or its default

	Pending   int           // timers that are armed and neither claimed nor stopped
	Due       int           // timers that have expired, or were flushed, and whose callbacks have not begun
	MostDue   int           // most timers that were queued as due at a time
	Overdue   time.Duration // time since the earliest deadline of the expired timers that are not claimed
	Armed     uint64        // timers that were added; each run of a plan counts
	Fired     uint64        // callbacks and payloads that were claimed
	Stopped   uint64        // calls of Stop that returned true, and timers of RemoveAll
	Discarded uint64        // timers that were pending when the wheel was stopped
	Postponed uint64        // moves by Reschedule; for the time at which a move counts see docs/semantics.md
	Rejected  uint64        // timers that were not armed because the wheel was stopped
	Flushed   uint64        // timers that Flush made due
	Moved     uint64        // timers that were taken out of a bucket of a coarser level and placed again
	Wakeups   uint64        // times that an alarm woke the wheel

	Running int    // callbacks (with Timeouts: batches) that have started and not returned
	Panics  uint64 // panics of callbacks that were reported to Options.OnPanic
	Workers int    // goroutines of the default executor, including those that begin or end
	Buckets int    // non-empty buckets
	Levels  int    // largest number of levels in use in a shard
	Bytes   uint64 // memory held for timers, payloads, buckets and slots, in bytes

	Expired int // entries of a keyed.Map that have expired and wait to be reported; else 0

	// Lateness is the distribution of the time from the tick to which a deadline was rounded up to
	// the beginning of the batch in which the timer was claimed.
	Lateness Histogram
}

func (e *engine[T]) stats() Stats {
	st := Stats{Name: e.name, Tick: time.Duration(e.ticks.Length()), Shards: len(e.shards), Panics: e.panics.Load()}
	now := e.reading()
	waits := e.funcTimers.waits.Load()
	replaced := e.funcTimers.replaced.Load() // before the shards, so that the arms and the Stops are counted
	for _, s := range e.shards {
		s.addStats(&st, now)
	}
	for _, d := range e.dues {
		of := d.Stats()
		st.Running += of.Running
		st.Workers += of.Workers
		st.MostDue = max(st.MostDue, of.Most)
		if first := earliestOf(d.Waiting(chunkSize)); first != never {
			st.Overdue = max(st.Overdue, time.Duration(e.reading()-e.ticks.Begin(first)))
		}
	}
	st.Lateness = e.claims.lateness.snapshot()
	st.Armed -= replaced + waits
	st.Stopped -= replaced
	st.Postponed += replaced
	st.Fired -= waits
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
	ib := s.inbox
	ib.stopped += ib.ended(&s.slots)
	s.armMu.Unlock()
	fired := s.claims.fired.Load()
	if !closed {
		s.addPending(st, s.owner.counters.pendingOf(ib.armed, ib.stopped, fired), now)
	}
	st.Fired += fired + s.claims.flushBegun.Load()
	s.addCounters(st, &ib)
	st.Bytes += s.bytes()
}

// addCounters adds the other counters, which count from the making of the wheel. ib is the copy by
// which pending timers were counted, so that the sums agree. wheelMu is held.
func (s *shardOf[T]) addCounters(st *Stats, ib *inbox) {
	c := &s.owner.counters
	st.Armed += ib.armed
	st.Rejected += ib.rejected
	st.Stopped += c.stopped + ib.stopped
	if s.closed.Load() {
		st.Stopped += uint64(s.removals.len()) // Stops that were under way
	}
	st.Postponed += c.postponed + ib.rescheduled
	st.Discarded += c.discarded
	st.Flushed += c.flushed
	st.Moved += c.cascaded
	st.Wakeups += s.alarm.rings.Load()
}

// addPending adds the present state of the shard. wheelMu is held and everything is drained.
func (s *shardOf[T]) addPending(st *Stats, pending int, now int64) {
	o := &s.owner
	pending = max(pending, 0)
	st.Pending += pending
	st.Due += max(0, pending-o.live()) + int((s.owner.counters.flushed - s.claims.flushBegun.Load()))
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

// overdue returns how long, at now, the earliest expired timer has waited that is in a bucket, or
// is about to be queued. It looks at the first chunk of a bucket, and so misses the earliest timer
// only if a whole chunk of postponed timers precedes it.
func (o *owner) overdue(now int64) time.Duration {
	tick := o.ticks.Floor(now)
	first := min(o.earliest(o.wheel.cascade.fine.head), earliestOf(o.expired))
	if at, ok := o.wheel.first(); ok && at <= tick {
		if top, _ := o.wheel.queue.Min(); top.at <= tick { // before top.at none of its timers has expired
			first = min(first, o.earliest(top))
		}
	}
	return time.Duration(max(0, now-o.ticks.Begin(first)))
}

// earliestOf returns the first tick of pending timers, or never.
func earliestOf(timers []Timer) int64 {
	first := int64(never)
	for _, t := range timers {
		if _, w, ok := t.pending(); ok {
			first = min(first, w.Tick())
		}
	}
	return first
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
	n := s.countedFuncs.bytes()
	if s.inbox.order != nil {
		n += pages * unsafe.Sizeof([arena.PageSize]uint64{})
	}
	s.armMu.Unlock()
	n += pages*(unsafe.Sizeof(arena.Page{})+unsafe.Sizeof([arena.PageSize]T{})) + table*word + states
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

// survey is [survey.Take]. It holds the wheelMu of a shard for step buckets at a time.
func (e *engine[T]) survey(step int) survey.Wheel {
	now := e.reading()
	tick := e.ticks.Floor(now)
	v := survey.Wheel{Now: e.TimeAt(now), WheelSize: int(e.size), Stopped: isClosed(e.survivors.halted)}
	for l := range uint(e.last + 1) {
		interval, hand := e.ticks.Begin(1<<(l*e.bits)), tick>>(l*e.bits)&(e.size-1)
		cells := make([]int, min(e.size, survey.MaxCells))
		v.Levels = append(v.Levels, survey.Level{Interval: time.Duration(interval), Hand: int(hand), Cells: cells})
	}
	for _, s := range e.shards {
		s.survey(&v, tick, step)
	}
	seen := v.Due + v.Moving
	for _, l := range v.Levels {
		seen += l.Timers
	}
	v.Pending = max(v.Pending, seen) // a timer that moved may have been counted twice
	v.Unseen = v.Pending - seen
	return v
}

// survey adds the timers of the shard, whose clock may be ahead of tick.
func (s *shardOf[T]) survey(v *survey.Wheel, tick int64, step int) {
	s.wheelMu.Lock()
	defer s.unlockAndDrain()
	o := &s.owner
	for k := 0; k == 0 || k < len(o.store.all); k += step {
		if s.yield(); s.closed.Load() {
			return
		}
		s.drainAll()
		for _, b := range o.store.all[k:min(k+step, len(o.store.all))] {
			switch {
			case b.state == bucketCascading:
				v.Moving += b.live
			case b.state == bucketQueued && b.live > 0:
				shift := uint(b.level) * s.bits
				ahead := max(0, b.at>>shift-max(tick, o.wheel.cur)>>shift) // 0 if the bucket has expired
				v.Add(survey.Expiration{At: s.TimeAt(s.ticks.Begin(b.key)), Level: int(b.level), Timers: b.live}, ahead)
			}
		}
	}
	pending := s.pending()
	v.Pending += pending
	v.Due += max(0, pending-o.live())
}
