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
)

// Stats is a snapshot of a wheel, taken shard by shard. Counters only grow.
type Stats struct {
	Name   string        // Options.Name
	Tick   time.Duration // Options.Tick, or its default
	Shards int           // Options.Shards, or its default

	Pending   int           // timers armed and neither claimed nor stopped
	Due       int           // pending timers that have expired, or were flushed
	MostDue   int           // the most that one shard has had due at a claim
	Overdue   time.Duration // since the earliest deadline of the expired timers that are not claimed
	Armed     uint64        // timers added; each run of a plan is one
	Fired     uint64        // callbacks and payloads claimed
	Stopped   uint64        // successful Stops, those during a run of a plan included, and removals
	Discarded uint64        // timers that were pending when the wheel was stopped
	Postponed uint64        // Reschedules that the wheel has noticed; see docs/semantics.md
	Rejected  uint64        // timers that were to be added to the stopped wheel
	Flushed   uint64        // timers that Flush made due
	Moved     uint64        // timers taken out of a bucket of a coarser level, to be placed anew
	Wakeups   uint64        // times that the alarm woke a driver

	Running     int    // callbacks (batches) that have started and not returned
	SlowRunning int    // slow callbacks that have not returned
	Slow        uint64 // callbacks (batches) that took Options.SlowAfter or longer, or have so far
	Panics      uint64 // panics of callbacks that were reported to Options.OnPanic
	Workers     int    // goroutines of the default executor, also those about to begin or to end
	Buckets     int    // non-empty buckets
	Levels      int    // levels in use, of the shard with the most
	Bytes       uint64 // memory held for timers, payloads, buckets and slots

	// Lateness is the time from the tick to which the deadline was rounded up, to the claim. About
	// one in 16 or fewer single callbacks is measured; in Manual mode and with Timeouts, each.
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

// describe returns a line about the wheel, which is of the named type.
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

// addStats adds the figures of the shard. It holds wheelMu throughout. After the backlog is settled
// it takes a short time that does not depend on the number of timers.
func (s *shardOf[T]) addStats(st *Stats, now int64) {
	s.wheelMu.Lock()
	defer s.unlockAndTend()
	closed := s.closed.Load()
	if !closed {
		s.settleAll()
	}
	s.armMu.Lock()
	ib, runs := s.inbox, s.claims.runs.Load()
	ib.armed, ib.stopped = s.again.counts(&s.inbox, &s.slots)
	s.armMu.Unlock()
	if !closed {
		s.addPending(st, now)
		st.Pending += s.owner.counters.pending(ib.armed, ib.stopped, runs)
	}
	s.addCounters(st, &ib, runs)
	st.Bytes += s.bytes()
}

// addCounters adds what has happened since the wheel was made. ib and runs are those by which
// pending timers were counted, so that the sums agree. wheelMu is held.
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
	st.Wakeups += s.alarm.rung.Load()
	st.Running += o.crew.running
	st.Workers += o.crew.serving + o.crew.coming
	st.MostDue = max(st.MostDue, c.mostDue)
	st.Lateness.add(&c.lateness)
}

// addPending adds how the shard is now, apart from the number of pending timers, and counts the
// claims of all batches. wheelMu is held and everything is settled.
func (s *shard) addPending(st *Stats, now int64) {
	o := &s.owner
	st.Due += o.due.ready
	for _, b := range o.crew.batches {
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
// on the wheel, in case no driver takes that bucket off. The earliest timer is there unless whole
// chunks of postponed timers stand before it.
func (o *owner) overdue(now int64) time.Duration {
	tick := o.ticks.Floor(now)
	first := min(o.earliest(o.due.first()), o.earliest(o.wheel.cascade.levels[0].head))
	for _, e := range o.due.entries[o.due.taken:] {
		if at, ok := o.decode(e.word, o.tick); ok {
			first = min(first, at)
			break
		}
	}
	for _, b := range o.crew.batches {
		for _, e := range b.entries {
			if at, ok := o.decode(e.word, o.tick); ok && e.page.Load(e.index) == e.word {
				first = min(first, at)
			}
		}
	}
	if at, ok := o.wheel.first(); ok && at <= tick {
		if top, _ := o.wheel.queue.Min(); top.at <= tick { // before that no timer of it has expired
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
		w := o.store.word(entries[bits.TrailingZeros32(alive)])
		if w.Kind() != arena.Placed {
			continue
		}
		if tick, ok := o.decode(w, o.tick); ok {
			first = min(first, tick)
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
	states := uintptr(s.slots.Pager.Len()) * (arena.PageStateSize + word + unsafe.Sizeof(home{}))
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

// LogValue returns a group for [slog], without options and most zeros.
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
