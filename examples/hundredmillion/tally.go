package main

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// checksum is of a set of timers. Neither the order nor the grouping in which they are added
// matters.
type checksum struct {
	count    uint64
	sum, xor uint64 // of two different mixtures of the numbers
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

// tally is what the timers that expire leave behind. The wheel calls it from several goroutines at
// once.
type tally struct {
	plan  *plan
	start time.Time // that the plan's deadlines count from
	n     uint64
	seen  bitmap
	fired atomic.Int64 // what checksum counts, for those who look on

	mu sync.Mutex
	tallied
	lateness *hdrhistogram.Histogram // in microseconds
}

// tallied is what a batch adds to a tally.
type tallied struct {
	checksum
	twice, early, unknown tallyOf
	earliest, latest      time.Duration // by how much before and after its deadline
}

// tallyOf counts what is wrong and names one of them.
type tallyOf struct {
	count   int
	example uint64
}

func (t *tallyOf) add(id uint64) {
	t.count++
	t.example = id
}

func (t *tallyOf) merge(o tallyOf) {
	if o.count > 0 {
		t.count += o.count
		t.example = o.example
	}
}

func newTally(p *plan, start time.Time, n int) *tally {
	return &tally{
		plan: p, start: start, n: uint64(n), seen: newBitmap(n),
		lateness: hdrhistogram.New(1, (10 * time.Minute).Microseconds(), 3),
	}
}

// expire is the function that the wheel hands what has expired.
func (t *tally) expire(batch []uint64) { t.expireAt(time.Since(t.start), batch) }

func (t *tally) expireAt(now time.Duration, batch []uint64) {
	var late [256]int64 // as many as a batch may have
	var b tallied
	lates := late[:0]
	for _, id := range batch {
		b.add(id)
		if id >= t.n {
			b.unknown.add(id)
			continue
		}
		if !t.seen.add(id) {
			b.twice.add(id)
		}
		_, due := t.plan.of(id)
		if now < due {
			b.early.add(id)
			b.earliest = max(b.earliest, due-now)
			continue
		}
		b.latest = max(b.latest, now-due)
		lates = append(lates, (now - due).Microseconds())
	}
	t.merge(b, lates)
	t.fired.Add(int64(len(batch)))
}

func (t *tally) merge(b tallied, lates []int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.checksum.merge(b.checksum)
	t.twice.merge(b.twice)
	t.early.merge(b.early)
	t.unknown.merge(b.unknown)
	t.earliest = max(t.earliest, b.earliest)
	t.latest = max(t.latest, b.latest)
	for _, us := range lates {
		_ = t.lateness.RecordValue(min(us, t.lateness.HighestTrackableValue()))
	}
}

// result is what has been tallied so far.
func (t *tally) result() tallied {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tallied
}

// late returns percentiles of how late timers expired, and the most; nil if none has.
func (t *tally) late(percentiles ...float64) (late []time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lateness.TotalCount() == 0 {
		return nil
	}
	for _, p := range percentiles {
		late = append(late, time.Duration(t.lateness.ValueAtPercentile(p))*time.Microsecond)
	}
	return append(late, t.latest)
}
