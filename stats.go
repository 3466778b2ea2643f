package timingwheel

import (
	"log/slog"
	"math"
	"math/bits"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/timingwheel-go/timingwheel/internal/arena"
	"github.com/timingwheel-go/timingwheel/internal/clock"
)

// Stats is a snapshot of a wheel. Counters start at 0 with the wheel and only grow. Over several
// shards the snapshot is taken shard by shard.
type Stats struct {
	Name   string        // Options.Name
	Tick   time.Duration // Options.Tick, or its default
	Shards int           // Options.Shards, or its default

	Pending   int    // timers armed and neither claimed nor stopped
	Armed     uint64 // timers added; each run of a plan is one
	Fired     uint64 // callbacks and payloads claimed
	Stopped   uint64 // successful Stops, those during a run of a plan included, and removals
	Discarded uint64 // timers that were pending when the wheel was stopped
	Postponed uint64 // Reschedules that the wheel has noticed; see docs/semantics.md
	Rejected  uint64 // timers that were to be added to the stopped wheel
	Flushed   uint64 // timers that Flush made due
	Moved     uint64 // timers taken out of a bucket of a coarser level, to be placed anew
	Wakeups   uint64 // times that the alarm woke a driver
	Running   int    // callbacks (batches) that have started and not returned
	Workers   int    // goroutines of the default executor, also those about to begin or to end
	Buckets   int    // non-empty buckets
	Levels    int    // levels in use, of the shard with the most
	Bytes     uint64 // memory held for timers, payloads, buckets and slots

	// Due is the number of pending timers that have expired, or were flushed, and wait for a
	// goroutine to claim them: the queue in front of the callbacks. MostDue is the longest queue
	// that one shard has had at a claim. In Manual mode timers that have become due since the last
	// Advance began are not counted.
	Due     int
	MostDue int

	// Overdue is the time since the earliest deadline of the expired timers, or 0 if no timer has
	// expired. That timer has waited so long, unless its deadline had passed when it was armed. A
	// timer expires when the tick begins to which its deadline was rounded up. Lateness covers only
	// timers that were claimed. Overdue also grows while nothing is claimed at all, because an
	// [Inline] callback blocks or an executor does not run its calls. In Manual mode Overdue is
	// measured on the wheel's clock.
	Overdue time.Duration

	Panics      uint64 // panics of callbacks that were reported to Options.OnPanic
	Slow        uint64 // callbacks (batches) that took Options.SlowAfter or longer, or have so far
	SlowRunning int    // slow callbacks that have not returned

	// Lateness is how long after its deadline a timer was claimed. With Timeouts and in Manual mode
	// every claim counts. Single callbacks are sampled: the first claim of each shard, and then
	// about one in 16 or fewer.
	Lateness Histogram
}

// counters are the counters of a shard.
type counters struct {
	fired, stopped, postponed, moved uint64
	taken                            uint64 // timers that workers have taken in order to claim them
	mostDue                          int
	discarded, flushed               uint64
	lateness                         Histogram
	unread                           int // claims since the last one whose lateness was measured
}

// sampleEvery is the number of claims for which the lateness of one is measured. A reading of the
// clock costs as much as the rest of a claim.
const sampleEvery = 16

// sample reports whether the lateness of one of n claims is measured.
func (c *counters) sample(n int) bool {
	first := c.unread == 0
	c.unread += n
	if !first && c.unread <= sampleEvery {
		return false
	}
	c.unread = n
	return true
}

// tally counts rare events of any goroutine, without the lock of a shard.
type tally struct{ atomic.Uint64 }

const (
	histogramSub     = 2 // log2 of the buckets for each power of two
	histogramFirst   = 8 // everything below 2^8 ns is in the first bucket
	histogramBuckets = (48 - histogramFirst) << histogramSub
)

// Histogram counts durations in buckets whose bounds grow by at most a quarter, from 256ns to 2.4
// days. The zero value is empty.
type Histogram struct {
	Counts [histogramBuckets]uint64
	Sum    time.Duration // saturates
	Max    time.Duration
}

// record counts d. A negative d counts as 0.
func (h *Histogram) record(d time.Duration) {
	d = max(d, 0)
	h.Counts[histogramBucket(d)]++
	h.Sum = time.Duration(clock.Later(int64(h.Sum), int64(d)))
	h.Max = max(h.Max, d)
}

func histogramBucket(d time.Duration) int {
	if d < 1<<histogramFirst {
		return 0
	}
	e := bits.Len64(uint64(d)) - 1
	sub := int(uint64(d)>>(e-histogramSub)) & (1<<histogramSub - 1)
	return min((e-histogramFirst)<<histogramSub+sub+1, histogramBuckets-1)
}

// Bound returns the upper bound of bucket i, exclusive. The last bucket has no bound, and Bound
// returns the largest duration for it. Bound panics if i is not an index of Counts.
func (h *Histogram) Bound(i int) time.Duration {
	_ = h.Counts[i]
	if i == histogramBuckets-1 {
		return math.MaxInt64
	}
	e := i>>histogramSub + histogramFirst
	sub := time.Duration(i & (1<<histogramSub - 1))
	return 1<<e + sub<<(e-histogramSub)
}

// Count returns how many durations were recorded.
func (h *Histogram) Count() uint64 {
	n := uint64(0)
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// Mean returns the mean duration, or 0 for an empty histogram.
func (h *Histogram) Mean() time.Duration {
	if n := h.Count(); n > 0 {
		return h.Sum / time.Duration(n)
	}
	return 0
}

// Quantile returns an upper bound of the q-quantile, or 0 for an empty histogram. The bound is at
// most a quarter above the quantile and never above Max. For a quantile below 256ns it is 256ns or
// Max, whichever is less. For a quantile beyond 2.4 days it is Max. A q below 0 or not a number
// counts as 0, a q above 1 as 1.
func (h *Histogram) Quantile(q float64) time.Duration {
	if math.IsNaN(q) {
		q = 0
	}
	n := h.Count()
	rank := uint64(math.Ceil(min(max(q, 0), 1) * float64(n)))
	seen := uint64(0)
	for i, c := range h.Counts {
		seen += c
		if c > 0 && seen >= rank {
			return min(h.Bound(i), h.Max)
		}
	}
	return 0
}

func (h *Histogram) add(o *Histogram) {
	for i, c := range o.Counts {
		h.Counts[i] += c
	}
	h.Sum = time.Duration(clock.Later(int64(h.Sum), int64(o.Sum)))
	h.Max = max(h.Max, o.Max)
}

func (e *engine[T]) stats() Stats {
	st := Stats{Name: e.name, Tick: e.tick, Shards: len(e.shards), Panics: e.panics.Load()}
	if e.watch != nil {
		st.Slow, st.SlowRunning = e.watch.Slow()
	}
	now := int64(0)
	if !e.Manual {
		now = e.Read()
	}
	for _, s := range e.shards {
		s.addStats(&st, now)
		st.Bytes += s.bytes()
	}
	return st
}

// addStats adds the figures of the shard. It holds wheelMu throughout. After the backlog is settled
// it takes a short time that does not depend on the number of timers.
func (s *shard) addStats(st *Stats, now int64) {
	s.wheelMu.Lock()
	defer s.unlock()
	if !s.closed.Load() {
		s.settleAll()
	}
	o := &s.owner
	c := &o.counters
	pending := s.pending()
	s.armMu.Lock()
	ib := s.inbox
	s.armMu.Unlock()
	st.Armed += ib.armed
	st.Rejected += ib.rejected
	// late is the number of Stops that took effect before the wheel's Stop and pushed their slots
	// after it. halt has counted their timers as discarded.
	late := uint64(0)
	if s.closed.Load() {
		late = min(uint64(s.removals.len()), c.discarded)
	}
	st.Stopped += c.stopped + ib.stopped + s.claims.planEnds.Load() + late
	st.Postponed += c.postponed + ib.moved
	st.Fired += c.fired + s.claims.planRuns.Load()
	st.Discarded += c.discarded - late
	st.Flushed += c.flushed
	st.Moved += c.moved
	st.Wakeups += s.alarm.rung.Load()
	st.Running += o.crew.running
	st.Workers += o.crew.serving + o.crew.coming
	st.MostDue = max(st.MostDue, c.mostDue)
	st.Lateness.add(&c.lateness)
	if s.closed.Load() {
		return
	}
	st.Pending += pending
	st.Due += o.due.ready
	for _, b := range o.crew.batches {
		st.Due += b.unclaimed()
	}
	o.due.first() // frees empty buckets
	st.Buckets += len(o.store.all) - len(o.store.spare) - o.wheel.hollow
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

// bytes returns the memory held for the timers of the shard, apart from the shard itself.
func (s *shardOf[T]) bytes() uint64 {
	s.wheelMu.Lock()
	defer s.unlock()
	o := &s.owner
	s.armMu.Lock()
	pages, table := uintptr(s.slots.Here), uintptr(s.slots.Pages.Cap()+s.values.Cap())
	states := uintptr(s.slots.Pager.Len()) * (arena.PageStateSize + 4)
	var order uintptr
	if s.order != nil {
		order = pages * unsafe.Sizeof([arena.PageSize]uint64{})
	}
	s.armMu.Unlock()
	word := unsafe.Sizeof(uintptr(0))
	n := pages*(unsafe.Sizeof(arena.Page{})+unsafe.Sizeof([arena.PageSize]T{})) + table*word + states + order
	n += uintptr(o.store.chunks.here)*unsafe.Sizeof(chunkPage{}) + uintptr(cap(o.store.chunks.pages))*word
	n += uintptr(o.store.chunks.pager.Len()) * arena.PageStateSize
	n += uintptr(len(o.store.all)) * (unsafe.Sizeof(bucket{}) + 2*word)
	for _, l := range o.wheel.levels {
		n += uintptr(len(l.slots)) * word
	}
	return uint64(n)
}

// LogValue implements [slog.LogValuer]. It returns a group of the main fields, with quantiles in
// place of the histogram's counts. Fields that are zero are left out, except pending, armed, fired,
// stopped and running.
func (st Stats) LogValue() slog.Value {
	attrs := make([]slog.Attr, 0, 24)
	if st.Name != "" {
		attrs = append(attrs, slog.String("name", st.Name))
	}
	attrs = append(attrs,
		slog.Int("pending", st.Pending),
		slog.Uint64("armed", st.Armed),
		slog.Uint64("fired", st.Fired),
		slog.Uint64("stopped", st.Stopped),
		slog.Int("running", st.Running),
	)
	attrs = appendCounts(attrs, []count{
		{"postponed", st.Postponed},
		{"discarded", st.Discarded},
		{"rejected", st.Rejected},
		{"flushed", st.Flushed},
		{"moved", st.Moved},
		{"wakeups", st.Wakeups},
		{"workers", uint64(st.Workers)},
		{"buckets", uint64(st.Buckets)},
		{"bytes", st.Bytes},
		{"due", uint64(st.Due)},
		{"panics", st.Panics},
		{"slow", st.Slow},
		{"slow_running", uint64(st.SlowRunning)},
	})
	if st.Overdue > 0 {
		attrs = append(attrs, slog.Duration("overdue", st.Overdue))
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

// count is an attribute that is left out if it is 0.
type count struct {
	key   string
	value uint64
}

func appendCounts(attrs []slog.Attr, counts []count) []slog.Attr {
	for _, c := range counts {
		if c.value > 0 {
			attrs = append(attrs, slog.Uint64(c.key, c.value))
		}
	}
	return attrs
}
