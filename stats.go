package timingwheel

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
	"unsafe"
)

// Stats is a snapshot of a wheel. Counters start at 0 with the wheel and only grow. Over several shards
// the snapshot is taken shard by shard.
type Stats struct {
	Name   string        // Options.Name
	Tick   time.Duration // Options.Tick, as all that follows with its default filled in
	Shards int

	Pending   int    // timers armed and neither claimed nor stopped
	Armed     uint64 // timers added; each run of a plan is one
	Fired     uint64 // callbacks and payloads claimed
	Stopped   uint64 // successful Stops and removals, Stops of a plan during a run included
	Discarded uint64 // timers that were pending when the wheel was stopped
	Postponed uint64 // successful calls of Timer.Reschedule, to earlier times too
	Rejected  uint64 // timers that were to be added to the stopped wheel
	Flushed   uint64 // timers that Flush made due
	Moved     uint64 // moves of a timer from one wheel to a finer one
	Wakeups   uint64 // times that a driver was woken by its alarm
	Running   int    // callbacks (batches) that have started and not returned
	Workers   int    // goroutines of the default executor, those included that are about to begin or to end
	Buckets   int    // non-empty buckets
	Levels    int    // wheels in use, of the shard that has most
	Bytes     uint64 // memory held for timers, payloads, buckets and slots

	// Due is how many of the pending timers have expired, or were flushed, and wait for a goroutine that claims them:
	// the queue in front of the callbacks. MostDue is the longest that one shard has had when something was claimed.
	// Timers that in Manual mode wait for the next Advance are not among them.
	Due     int
	MostDue int

	// Overdue is how long ago the earliest deadline of the expired timers was, 0 if there is none: how long that has waited,
	// unless its deadline had passed when it was armed. A timer expires when the tick to which its deadline was rounded up
	// begins. Unlike Lateness, which is
	// about timers that were claimed, it grows while nothing is claimed at all: where an [Inline] callback blocks, or
	// an executor does not run what it was given. In Manual mode the wheel's clock is the one that counts.
	Overdue time.Duration

	Panics      uint64 // panics of callbacks that Options.OnPanic was told of
	Slow        uint64 // callbacks (batches) that took, or have been running for, Options.SlowAfter or longer
	SlowRunning int    // those of them that have not returned

	// Lateness is how long after its deadline a timer was claimed. With Timeouts and in Manual mode
	// each one counts; single callbacks are sampled: a worker's first and then about one in 16 or fewer.
	Lateness Histogram
}

// counters are the counters of a shard.
type counters struct {
	armed, fired, stopped, postponed, moved, wakeups uint64
	mostDue                                          int
	discarded, rejected, flushed                     uint64
	lateness                                         Histogram
}

// tally counts what happens rarely, by any goroutine, without the lock of a shard.
type tally struct{ atomic.Uint64 }

const (
	histogramSub     = 2 // log2 of the buckets for each power of two
	histogramFirst   = 8 // everything below 2^8 ns is in the first bucket
	histogramBuckets = (48 - histogramFirst) << histogramSub
)

// Histogram counts durations in buckets whose bounds grow by at most a quarter, from 256ns to 2.4 days.
// The zero value is empty.
type Histogram struct {
	Counts [histogramBuckets]uint64
	Sum    time.Duration // saturates
	Max    time.Duration
}

// record counts d; a negative one counts as 0.
func (h *Histogram) record(d time.Duration) {
	d = max(d, 0)
	h.Counts[histogramBucket(d)]++
	h.Sum = time.Duration(later(int64(h.Sum), int64(d)))
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

// Bound returns the upper bound of bucket i, exclusive; the last bucket has none and gives the largest
// duration. It panics where i is not an index of Counts.
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

// Mean returns the mean, 0 for an empty histogram.
func (h *Histogram) Mean() time.Duration {
	if n := h.Count(); n > 0 {
		return h.Sum / time.Duration(n)
	}
	return 0
}

// Quantile returns an upper bound of the q-quantile; 0 for an empty histogram. It is at most a quarter
// above the quantile, below 256ns 256ns, and beyond 2.4 days the maximum. A q below 0 or not a number counts
// as 0, one above 1 as 1.
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
	h.Sum = time.Duration(later(int64(h.Sum), int64(o.Sum)))
	h.Max = max(h.Max, o.Max)
}

func (e *engine[T]) stats() Stats {
	st := Stats{Name: e.name, Tick: e.tick, Shards: len(e.shards), Panics: e.panics.Load()}
	if e.watch != nil {
		st.Slow, st.SlowRunning = e.watch.slowCalls()
	}
	now := int64(0)
	if !e.manual {
		now = e.clock()
	}
	for _, s := range e.shards {
		s.mu.Lock()
		s.addStats(&st)
		st.Overdue = max(st.Overdue, s.overdue(max(now, s.now)))
		st.Bytes += s.bytes() + s.valueBytes()
		s.mu.Unlock()
	}
	return st
}

func (s *shard) addStats(st *Stats) {
	s.settleLots()
	s.settleWheel()
	c := &s.counters
	st.Pending += s.pending
	st.Armed += c.armed
	st.Fired += c.fired
	st.Stopped += c.stopped
	st.Discarded += c.discarded
	st.Postponed += c.postponed
	st.Rejected += c.rejected
	st.Flushed += c.flushed
	st.Moved += c.moved
	st.Wakeups += c.wakeups
	st.Running += s.running
	st.Workers += s.serving + s.spares
	st.Due += s.ready
	st.MostDue = max(st.MostDue, c.mostDue)
	st.Buckets += s.queue.len() - s.hollow
	for b := range s.expired {
		if b.live > 0 {
			st.Buckets++
		}
	}
	for _, l := range s.lots {
		st.Due += l.b.live
		if l.b.live > 0 {
			st.Buckets++
		}
	}
	levels := 0
	for _, l := range s.levels {
		if l.slots != nil {
			levels++
		}
	}
	st.Levels = max(st.Levels, levels)
	st.Lateness.add(&c.lateness)
}

// bytes is the memory held by the untyped part, apart from the shard itself.
func (s *shard) bytes() uint64 {
	var n uintptr
	for _, pg := range s.nodes.pages {
		if pg != nil {
			n += unsafe.Sizeof(*pg)
		}
	}
	for _, pg := range s.chunks.pages {
		if pg != nil {
			n += unsafe.Sizeof(*pg)
		}
	}
	for _, pg := range s.seqs {
		if pg != nil {
			n += unsafe.Sizeof(*pg)
		}
	}
	n += uintptr(cap(s.nodes.pages)) * (unsafe.Sizeof(s.nodes.pages[:1][0]) + 4)
	n += uintptr(cap(s.nodes.state)+cap(s.chunks.state)) * unsafe.Sizeof(pageState{})
	n += uintptr(cap(s.chunks.pages)) * unsafe.Sizeof(s.chunks.pages[:1][0])
	n += uintptr(len(s.all)) * (unsafe.Sizeof(bucket{}) + 2*unsafe.Sizeof(s))
	for _, l := range s.levels {
		n += uintptr(len(l.slots)) * unsafe.Sizeof(l.slots[:1][0])
	}
	return uint64(n)
}

func (s *shardOf[T]) valueBytes() uint64 {
	var n uintptr
	for _, pg := range s.values {
		if pg != nil {
			n += unsafe.Sizeof(*pg)
		}
	}
	return uint64(n + uintptr(cap(s.values))*unsafe.Sizeof(s.engine))
}
