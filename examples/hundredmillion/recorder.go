package main

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// checksum is a checksum of a set of timers. It does not depend on the order or the grouping of the
// additions.
type checksum struct {
	count    uint64
	sum, xor uint64 // of two different hashes of the numbers
}

func (c *checksum) add(id uint64) {
	c.count++
	c.sum += mix(id + 1)
	c.xor ^= mix(^id)
}

func (c *checksum) merge(o checksum) {
	c.count += o.count
	c.sum += o.sum
	c.xor ^= o.xor
}

// recorder records the expired timers. The wheel calls it from several goroutines.
type recorder struct {
	plan  *plan
	start time.Time // beginning of the plan
	n     uint64
	seen  bitmap
	fired atomic.Int64 // checksum.count, readable without the lock

	mu sync.Mutex
	record
	lateness *hdrhistogram.Histogram // in microseconds
}

// record is the record of a set of expired timers.
type record struct {
	checksum
	twice, early, unknown faultCount
	earliest, latest      time.Duration // largest distance before and after a deadline
}

// faultCount counts the timers with a fault and keeps one example.
type faultCount struct {
	count   int
	example uint64
}

func (t *faultCount) add(id uint64) {
	t.count++
	t.example = id
}

func (t *faultCount) merge(o faultCount) {
	if o.count > 0 {
		t.count += o.count
		t.example = o.example
	}
}

func newRecorder(p *plan, start time.Time, n int) *recorder {
	return &recorder{
		plan: p, start: start, n: uint64(n), seen: newBitmap(n),
		lateness: hdrhistogram.New(1, (10 * time.Minute).Microseconds(), 3),
	}
}

// expire is the callback of the wheel.
func (r *recorder) expire(batch []uint64) { r.expireAt(time.Since(r.start), batch) }

func (r *recorder) expireAt(now time.Duration, batch []uint64) {
	var late [256]int64 // the largest batch
	var b record
	lates := late[:0]
	for _, id := range batch {
		b.add(id)
		if id >= r.n {
			b.unknown.add(id)
			continue
		}
		if !r.seen.add(id) {
			b.twice.add(id)
		}
		_, due := r.plan.of(id)
		if now < due {
			b.early.add(id)
			b.earliest = max(b.earliest, due-now)
			continue
		}
		b.latest = max(b.latest, now-due)
		lates = append(lates, (now - due).Microseconds())
	}
	r.merge(b, lates)
	r.fired.Add(int64(len(batch)))
}

func (r *recorder) merge(b record, lates []int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checksum.merge(b.checksum)
	r.twice.merge(b.twice)
	r.early.merge(b.early)
	r.unknown.merge(b.unknown)
	r.earliest = max(r.earliest, b.earliest)
	r.latest = max(r.latest, b.latest)
	for _, us := range lates {
		_ = r.lateness.RecordValue(min(us, r.lateness.HighestTrackableValue()))
	}
}

// result returns the records so far.
func (r *recorder) result() record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.record
}

// late returns percentiles of the lateness and its maximum, or nil if no timer has expired.
func (r *recorder) late(percentiles ...float64) (late []time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lateness.TotalCount() == 0 {
		return nil
	}
	for _, p := range percentiles {
		late = append(late, time.Duration(r.lateness.ValueAtPercentile(p))*time.Microsecond)
	}
	return append(late, r.latest)
}
