package timingwheel

import (
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/bits"
	"reflect"
	"slices"
	"strings"
	"sync/atomic" // its 64-bit types are aligned on 32-bit platforms
	"time"
	"unsafe"

	"github.com/timingwheel-go/timingwheel/internal/arena"
	"github.com/timingwheel-go/timingwheel/internal/clock"
	"github.com/timingwheel-go/timingwheel/internal/sampling"
	"github.com/timingwheel-go/timingwheel/internal/survey"
)

// Stats is a snapshot of a wheel. The shards are read one after the other, so with several shards
// the figures are not from the same instant. Fields of type uint64, except Bytes, are counters that
// only grow.
type Stats struct {
	Name   string        // Options.Name
	Tick   time.Duration // Options.Tick, or its default
	Shards int           // Options.Shards, or its default

	Pending   int           // timers that are armed and neither claimed nor stopped
	Due       int           // expired or flushed timers that are waiting for a goroutine
	Overdue   time.Duration // time since the earliest unclaimed timer, or bucket of timers, was due; 0 if none is due
	Armed     uint64        // timers that were added; each run of a plan counts
	Fired     uint64        // callbacks and payloads that were claimed
	Stopped   uint64        // timers that Stop or RemoveAll removed, except plans that were stopped during a run
	Discarded uint64        // timers that were pending when the wheel was stopped
	Postponed uint64        // deadline changes; changes to a later deadline count once, if the old bucket expires
	Rejected  uint64        // timers that were not armed because the wheel was stopped
	Flushed   uint64        // timers that Flush made due
	Moved     uint64        // timers that were taken out of a bucket in a coarser level and placed again
	Wakeups   uint64        // times that an alarm woke the wheel

	Running int    // callbacks (with Timeouts: batches) that have started and not returned
	Panics  uint64 // panics in callbacks that were reported to Options.OnPanic
	Buckets int    // non-empty buckets
	Levels  int    // largest number of levels in use in any shard
	Bytes   uint64 // memory held for timers, payloads, buckets and slots, in bytes

	Expired int // entries in a keyed.Map that have expired and are waiting to be reported; 0 for other wheels

	// Lateness is the distribution of the delay between a timer's deadline, rounded up to a tick,
	// and the beginning of the batch in which the timer was claimed. The last timers in a batch of
	// callbacks are recorded when the batch ends. A timer that was flushed early counts as on time.
	Lateness Histogram
}

func (e *engine) stats() Stats {
	st := Stats{Name: e.opts.Name, Tick: time.Duration(e.config.ticks.Length()), Shards: len(e.shards), Panics: e.panics.Load()}
	now := e.config.Read()
	waits := e.funcTimers.planWaits.Load()
	replaced := e.funcTimers.replaced.Load() // before the shards, so that the arms and the Stops are counted
	for _, s := range e.shards {
		s.addStats(&st, now)
	}
	for _, d := range e.dues {
		st.Running += d.Running()
		first := earliestOf(d.Waiting(chunkSize))
		if first == never { // these were stopped
			first = earliestOf(d.Waiting(math.MaxInt))
		}
		if first != never {
			st.Overdue = max(st.Overdue, time.Duration(e.config.Read()-e.config.ticks.Begin(first)))
		}
	}
	st.Lateness = e.lateness.snapshot()
	st.Armed -= replaced + waits
	st.Stopped -= replaced
	st.Postponed += replaced
	st.Fired -= waits
	return st
}

// describe returns a line about the wheel for String. kind is the name of the wheel's type.
func (e *engine) describe(kind string) string {
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

// addStats adds the figures of the shard. It holds owner.mu throughout. Apart from draining the
// backlog, it takes a short time that does not depend on the number of timers.
func (s *shard) addStats(st *Stats, now int64) {
	s.owner.mu.Lock()
	defer s.unlockAndDrain()
	closed := s.closed.Load()
	if !closed {
		s.owner.drainAll()
	}
	s.inbox.mu.Lock()
	counts := s.inbox.count()
	s.inbox.mu.Unlock()
	fired, begun := s.claimed.fired.Load(), s.claimed.flushBegun.Load()
	c := &s.owner.counters
	if !closed {
		s.addPending(st, c.pendingOf(counts.armed, counts.stopped, fired), int(c.flushed-begun), now)
	}
	st.Armed += counts.armed
	st.Rejected += counts.rejected
	st.Fired += fired + begun
	st.Stopped += c.stopped + counts.stopped
	st.Postponed += c.postponed + counts.rescheduled
	st.Discarded += c.discarded
	st.Flushed += c.flushed
	st.Moved += c.cascaded
	st.Wakeups += s.alarm.rings.Load()
	st.Bytes += s.bytes()
}

// addPending adds the state of the drained shard. flushed timers have not begun. owner.mu is held.
func (s *shard) addPending(st *Stats, pending, flushed int, now int64) {
	o := &s.owner
	pending = max(pending, 0)
	st.Pending += pending
	st.Due += max(0, pending-o.live()) + flushed
	st.Buckets += len(o.store.all) - len(o.store.spare)
	levels := 0
	for _, l := range o.wheel.levels {
		if l != nil {
			levels++
		}
	}
	st.Levels = max(st.Levels, levels)
	st.Overdue = max(st.Overdue, o.overdue(max(now, s.now.Load())))
}

// overdue returns how long, at now, the first expired timer has waited that is in a bucket, or is
// about to be queued. All timers of a bucket count as if they were due at its expiration.
func (o *owner) overdue(now int64) time.Duration {
	first := earliestOf(o.expired)
	if fine := o.wheel.cascade.fine; len(fine) > 0 {
		first = min(first, fine[0].at)
	}
	if b, ok := o.wheel.queue.Min(); ok && b.at <= o.shard.config.ticks.Floor(now) {
		first = min(first, b.at)
	}
	return time.Duration(max(0, now-o.shard.config.ticks.Begin(first)))
}

// earliestOf returns the first tick of pending timers, or never.
func earliestOf(timers []Timer) int64 {
	first := int64(never)
	for _, t := range timers {
		if pg, w := t.pending(); pg != nil {
			first = min(first, w.Tick())
		}
	}
	return first
}

// bytes returns the memory held for the timers of the shard. owner.mu is held.
func (s *shard) bytes() uint64 {
	o := &s.owner
	s.inbox.mu.Lock()
	records := &s.inbox.records
	n := records.Bytes() + s.pages.Bytes()
	perRecord := s.engine.job.payloadSize()
	if s.config.Manual != nil {
		perRecord += unsafe.Sizeof(s.inbox.stamp)
	}
	n += uintptr(records.OpenPages) * (arena.PageSize*perRecord + unsafe.Sizeof(page{}) + unsafe.Sizeof(pageRef{}))
	s.inbox.mu.Unlock()
	word := unsafe.Sizeof(uintptr(0))
	n += o.store.chunks.Bytes()
	n += uintptr(len(o.store.all)) * (unsafe.Sizeof(bucket{}) + 2*word)
	for _, l := range o.wheel.levels {
		n += uintptr(len(l)) * word
	}
	return uint64(n)
}

// LogValue returns the figures as a group of attributes, for [slog]. It leaves out options and most
// figures that are zero. It implements [slog.LogValuer].
func (st Stats) LogValue() slog.Value {
	const (
		always  = "Pending Armed Fired Stopped Running"
		nonzero = "Due Overdue Discarded Postponed Rejected Flushed Panics Expired Moved Wakeups Buckets Levels Bytes"
	)
	var attrs []slog.Attr
	fields := reflect.ValueOf(st)
	for _, name := range strings.Fields("Name " + always + " " + nonzero) {
		if v := fields.FieldByName(name); !v.IsZero() || strings.Contains(always, name) {
			attrs = append(attrs, slog.Any(strings.ToLower(name), v.Interface()))
		}
	}
	if h := &st.Lateness; h.Count() > 0 {
		attrs = append(attrs, slog.Group("lateness", slog.Duration("p50", h.Quantile(0.5)),
			slog.Duration("p99", h.Quantile(0.99)),
			slog.Duration("max", h.Max)))
	}
	return slog.GroupValue(attrs...)
}

// survey is [survey.Take]. It holds the owner.mu of a shard for step buckets at a time.
func (e *engine) survey(step int) survey.Wheel {
	now := e.config.Read()
	tick := e.config.ticks.Floor(now)
	v := survey.Wheel{Now: e.config.TimeAt(now), WheelSize: int(e.config.size), Stopped: isClosed(e.stopped)}
	for l := range uint(e.config.last + 1) {
		interval, hand := e.config.ticks.Begin(1<<(l*e.config.bits)), tick>>(l*e.config.bits)&(e.config.size-1)
		cells := make([]int, min(e.config.size, survey.MaxCells))
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
func (s *shard) survey(v *survey.Wheel, tick int64, step int) {
	s.owner.mu.Lock()
	defer s.unlockAndDrain()
	o := &s.owner
	for k := 0; k == 0 || k < len(o.store.all); k += step {
		if s.yield(); s.closed.Load() {
			return
		}
		s.owner.drainAll()
		for _, b := range o.store.all[k:min(k+step, len(o.store.all))] {
			switch {
			case b.state == bucketCascading:
				v.Moving += b.live
			case b.state == bucketQueued && b.live > 0:
				shift := uint(b.level) * s.config.bits
				ahead := max(0, b.at>>shift-max(tick, o.wheel.cur)>>shift) // 0 if the bucket has expired
				v.Add(survey.Expiration{At: s.config.TimeAt(s.config.ticks.Begin(b.key)), Level: int(b.level), Timers: b.live}, ahead)
			}
		}
	}
	pending := s.pending()
	v.Pending += pending
	v.Due += max(0, pending-o.live())
}

const (
	histogramSub     = 2 // log2 of the buckets for each power of two
	histogramFirst   = 8 // everything below 2^8 ns is in the first bucket
	histogramBuckets = (48 - histogramFirst) << histogramSub
)

// Histogram counts durations in buckets. The upper bounds rise from 256ns to 2.4 days, by at most a
// quarter per bucket. The last bucket has no upper bound. The zero value is an empty histogram.
type Histogram struct {
	// Counts holds the number of durations in each bucket: Counts[i] counts the durations less than
	// Bound(i) that are in no earlier bucket.
	Counts [histogramBuckets]uint64
	// Sum is the sum of the durations, or math.MaxInt64 if the sum is larger.
	Sum time.Duration
	// Max is the largest duration, or 0 for an empty histogram.
	Max time.Duration
}

// Record counts d, or 0 if d is negative. Calls must not be concurrent.
func (h *Histogram) Record(d time.Duration) {
	d = max(d, 0)
	h.Counts[histogramBucket(d)]++
	h.Sum = time.Duration(clock.Later(int64(h.Sum), int64(d)))
	h.Max = max(h.Max, d)
}

// histogramBucket returns the index of the bucket of d. d must not be negative.
func histogramBucket(d time.Duration) int {
	if d < 1<<histogramFirst {
		return 0
	}
	e := bits.Len64(uint64(d)) - 1
	sub := int(uint64(d)>>(e-histogramSub)) & (1<<histogramSub - 1)
	return min((e-histogramFirst)<<histogramSub+sub+1, histogramBuckets-1)
}

// Bound returns the exclusive upper bound of bucket i of Counts, or math.MaxInt64 for the last one.
// It panics if i is out of range.
func (h Histogram) Bound(i int) time.Duration {
	_ = h.Counts[i]
	if i == histogramBuckets-1 {
		return math.MaxInt64
	}
	e := i>>histogramSub + histogramFirst
	sub := time.Duration(i & (1<<histogramSub - 1))
	return 1<<e + sub<<(e-histogramSub)
}

// Count returns the number of recorded durations.
func (h Histogram) Count() uint64 {
	n := uint64(0)
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// Quantile returns an upper bound on the q-quantile, at most a quarter or 256ns too high up to 2.4
// days. It returns 0 for an empty histogram. q is clamped to [0, 1], and NaN counts as 0.
func (h Histogram) Quantile(q float64) time.Duration {
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

// latenessCount is a histogram that is written without a lock: on a busy machine, a goroutine that
// is preempted while it holds a lock stops all workers.
type latenessCount struct {
	counts   [histogramBuckets]atomic.Uint64
	sum, max atomic.Int64
}

func (l *latenessCount) record(d time.Duration, n uint64) {
	d = max(d, 0)
	l.counts[histogramBucket(d)].Add(n)
	all := int64(min(d, math.MaxInt64/time.Duration(n)) * time.Duration(n))
	for sum := l.sum.Load(); !l.sum.CompareAndSwap(sum, clock.Later(sum, all)); {
		sum = l.sum.Load()
	}
	for m := l.max.Load(); m < int64(d) && !l.max.CompareAndSwap(m, int64(d)); {
		m = l.max.Load()
	}
}

func (l *latenessCount) snapshot() (h Histogram) {
	for i := range h.Counts {
		h.Counts[i] = l.counts[i].Load()
	}
	h.Sum, h.Max = time.Duration(l.sum.Load()), time.Duration(l.max.Load())
	return h
}

// writeProfile is [TimingWheel.WriteProfile].
func (e *engine) writeProfile(w io.Writer) error {
	if e.opts.ProfileRate == 0 {
		return fmt.Errorf("%w: Options.ProfileRate is 0, so there is no profile; it must be from 1 to 2^30", ErrOption)
	}
	p := sampling.NewProfile(reflect.TypeFor[Timer]().PkgPath(), e.opts.Name, e.opts.ProfileRate)
	e.eachSample(p.Add)
	return p.Write(w)
}

// eachSample calls yield for each sampled timer that is pending. age is the time since the timer
// was armed, and expires the time until its deadline, in ns.
func (e *engine) eachSample(yield func(o *sampling.Origin, age, expires int64)) {
	for _, s := range e.shards {
		s.inbox.mu.Lock()
		samples := slices.Clone(s.inbox.samples.All)
		s.inbox.mu.Unlock()
		now := s.config.Read()
		for _, x := range samples {
			if pg, w := x.Timer.pending(); pg != nil {
				yield(x.Origin, now-x.Origin.Armed, s.config.ticks.Begin(w.Tick())-now)
			}
		}
	}
}

// sample samples a timer that is being armed. inbox.mu is held.
func (ib *inbox) sample(t Timer) {
	ib.untilSample = ib.samples.Distance()
	ib.samples.Set(t, sampling.Here(ib.shard.config.Read()))
}

// isOver reports whether the timer has ended.
func (t Timer) isOver() bool {
	pg, _ := t.pending()
	return pg == nil
}

// origin returns the origin of the timer if it was sampled, or else nil.
func (t Timer) origin() (o *sampling.Origin) {
	t.withSamples(func(all *sampling.Table[Timer]) { o = all.Origin(t) })
	return o
}

// sampleAs makes o the origin of the timer. A nil o removes the timer from the sample. A ticker
// arms a timer for each tick, and a plan for each run. sampleAs passes the origin of the first one
// on to the others.
func (t Timer) sampleAs(o *sampling.Origin) {
	t.withSamples(func(all *sampling.Table[Timer]) { all.Set(t, o) })
}

// withSamples calls f with the samples of the timer's shard, unless the wheel takes none. inbox.mu
// is held during the call.
func (t Timer) withSamples(f func(all *sampling.Table[Timer])) {
	if t.ref == nil || t.ref.shard.engine.opts.ProfileRate == 0 {
		return
	}
	s := t.ref.shard
	s.inbox.mu.Lock()
	defer s.inbox.mu.Unlock()
	if !s.closed.Load() {
		f(&s.inbox.samples)
	}
}
