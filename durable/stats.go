package durable

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// lateness is how late this process has delivered.
type lateness struct {
	mu  sync.Mutex
	h   *hdrhistogram.Histogram // in µs
	sum time.Duration
}

// mostLate is where the histogram ends: an hour. What is later counts as that.
const mostLate = time.Hour

func newLateness() *lateness {
	return &lateness{h: hdrhistogram.New(1, mostLate.Microseconds(), 2)}
}

func (l *lateness) record(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d = min(max(d, 0), mostLate)
	_ = l.h.RecordValue(d.Microseconds()) // which is in range
	l.sum += d
}

// Lateness is a summary of how long after their due times this process has delivered messages: when their handlers were called, or Take
// returned. It is measured on the store's clock as this process knows it, so it may be too small by the time of a round trip.
type Lateness struct {
	Count               int64
	Sum                 time.Duration
	P50, P99, P999, Max time.Duration
	Buckets             []LatenessBucket // those with deliveries, in order
}

// LatenessBucket is a number of deliveries with about the same lateness: at most UpTo, and later
// than UpTo of the bucket before. A bucket is 1 µs or less than 1% of UpTo wide, up to an hour; what
// is later counts as an hour late.
type LatenessBucket struct {
	UpTo  time.Duration
	Count int64
}

func (l *lateness) summary() Lateness {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := func(q float64) time.Duration { return time.Duration(l.h.ValueAtQuantile(q)) * time.Microsecond }
	s := Lateness{
		Count: l.h.TotalCount(), Sum: l.sum, P50: at(50), P99: at(99), P999: at(99.9), Max: time.Duration(l.h.Max()) * time.Microsecond,
	}
	for _, bar := range l.h.Distribution() {
		if bar.Count > 0 {
			s.Buckets = append(s.Buckets, LatenessBucket{time.Duration(bar.To) * time.Microsecond, bar.Count})
		}
	}
	return s
}

// Stats is the state of a queue.
type Stats struct {
	Counts     // of the whole queue: sums, the earliest NextDue, and one of the partitions' Now
	Partitions []Counts
	Prefetched int      // messages that this process has claimed and not begun
	Begun      int      // that it has begun and not settled
	Consumers  int      // of all processes, that have given a sign of life within their Membership
	Lateness   Lateness // of this process
}

// Stats reads the counts of all partitions, one after the other, so they are not of one moment. It costs a call of the store for each,
// and one more.
func (q *Queue) Stats(ctx context.Context) (Stats, error) {
	if err := q.usable(ctx); err != nil {
		return Stats{}, err
	}
	s := Stats{Lateness: q.lateness.summary()}
	for i := range q.parts {
		c, err := q.backend.Count(ctx, i)
		if err != nil {
			return Stats{}, fmt.Errorf("durable: stats of partition %d: %w", i, err)
		}
		s.Partitions = append(s.Partitions, newCounts(c))
		s.Counts.add(newCounts(c))
	}
	members, err := q.backend.Heartbeat(ctx, "stats", 0) // no consumer has this name
	if err != nil {
		return Stats{}, fmt.Errorf("durable: stats of the consumers: %w", err)
	}
	s.Consumers = len(members)
	q.mu.Lock()
	defer q.mu.Unlock()
	for c := range q.claiming {
		unbegun, begun := c.dispatcher.holds()
		s.Prefetched += unbegun
		s.Begun += begun
	}
	return s, nil
}

// Audit looks through all partitions for what a fault may have left behind, such as a key that somebody has deleted, and repairs it if told to:
// see [driver.Backend]. It takes time in proportion to the queue, in small steps; the queue may be in use meanwhile.
func (q *Queue) Audit(ctx context.Context, repair bool) (AuditReport, error) {
	var sum AuditReport
	if err := q.usable(ctx); err != nil {
		return sum, err
	}
	for i := range q.parts {
		r, err := q.backend.Audit(ctx, i, repair)
		sum.Records += r.Records
		sum.Orphans += r.Orphans
		sum.Strays += r.Strays
		sum.Wrong += r.Wrong
		sum.Repaired += r.Repaired
		if err != nil {
			return sum, fmt.Errorf("durable: audit of partition %d: %w", i, err)
		}
	}
	return sum, nil
}
