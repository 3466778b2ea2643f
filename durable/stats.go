package durable

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Counts holds the message counts and transition counters of a partition or a queue.
type Counts struct {
	Now time.Time // the store's clock, in milliseconds

	Scheduled int64     // scheduled messages, including those that are due
	Due       int64     // scheduled messages that are due; may be an estimate beyond a million
	InFlight  int64     // leased or firing messages
	Dead      int64     // dead letters
	DeadBytes int64     // size of the bodies of dead letters with their envelopes, in bytes
	NextDue   time.Time // the earliest due time of a scheduled message; zero if there is none
	Paused    bool      // see [Queue.Pause]; for a queue: at least one partition is paused

	// Unreadable is the number of scheduled messages that a consumer has tried to claim and that
	// this version of the program cannot read: a newer version enqueued them, or they are damaged.
	// They stay for a newer version, delay no other messages, and are not counted in Scheduled.
	Unreadable int64

	driver.Counters // since the queue was created

	// Lost is the number of messages whose records are gone because a Redis key was evicted or
	// deleted, including messages since removed from the queue. Each key that was lost as a whole
	// counts as one more, because the number of messages in it is unknown.
	Lost uint64
}

// newCounts converts the counts of the store.
func newCounts(c driver.Counts) Counts {
	return Counts{
		Now: c.Now.Time(), Scheduled: c.Scheduled, Due: c.Due, InFlight: c.InFlight, Dead: c.Dead,
		DeadBytes: c.DeadBytes, NextDue: timeOf(c.NextDue), Paused: c.Paused,
		Unreadable: c.Unreadable, Counters: c.Counters,
	}
}

// DueFor returns the time since NextDue, or 0 if no message is due.
func (c *Counts) DueFor() time.Duration {
	if c.Due == 0 || c.NextDue.IsZero() {
		return 0
	}
	return max(0, c.Now.Sub(c.NextDue))
}

// add adds the counts of a partition to the queue's counts. Now becomes the latest and NextDue the
// earliest of all.
func (c *Counts) add(o Counts) {
	if o.Now.After(c.Now) {
		c.Now = o.Now
	}
	c.Scheduled += o.Scheduled
	c.Due += o.Due
	c.InFlight += o.InFlight
	c.Dead += o.Dead
	c.DeadBytes += o.DeadBytes
	if c.NextDue.IsZero() || !o.NextDue.IsZero() && o.NextDue.Before(c.NextDue) {
		c.NextDue = o.NextDue
	}
	c.Paused = c.Paused || o.Paused
	c.Enqueued += o.Enqueued
	c.Acked += o.Acked
	c.Retried += o.Retried
	c.Buried += o.Buried
	c.Cancelled += o.Cancelled
	c.Crashed += o.Crashed
	c.Expired += o.Expired
	c.Trimmed += o.Trimmed
	c.Unreadable += o.Unreadable
	c.Lost += o.Lost
}

// lateness records how late this process delivers messages.
type lateness struct {
	mu sync.Mutex
	h  timingwheel.Histogram
}

func (l *lateness) record(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.h.Record(d)
}

// Lateness summarizes how long after their due times this process delivered messages, that is,
// called their handlers or returned them from Take. The values are based on this process's estimate
// of the store's clock, so they may be too low by the duration of a round trip. P50, P99 and P999
// are upper bounds on the quantiles, too high by at most a quarter: see
// [timingwheel.Histogram.Quantile].
type Lateness struct {
	P50, P99, P999, Max time.Duration         // quantiles (upper bounds), exact maximum
	Histogram           timingwheel.Histogram // of all deliveries by this process
}

func (l *lateness) summary() Lateness {
	l.mu.Lock()
	h := l.h
	l.mu.Unlock()
	return Lateness{
		P50: h.Quantile(0.5), P99: h.Quantile(0.99), P999: h.Quantile(0.999), Max: h.Max, Histogram: h,
	}
}

// Stats is the state of a queue.
type Stats struct {
	Counts              // sums; NextDue is the earliest and Now the latest of all partitions
	Partitions []Counts // one element per partition
	Prefetched int      // messages that this process has claimed and not begun
	Firing     int      // messages that this process has begun and not settled
	Consumers  int      // in all processes: see [Queue.Consumers]
	Unowned    int      // partitions without an owner, according to the last heartbeats
	Lateness   Lateness // of this process

	// According to the last heartbeats of all consumers, which are up to Membership/3 old.
	Overdue    int64         // messages that are due and not in a handler: Due, and those waiting in consumers
	OverdueFor time.Duration // time since the first of them was due
	OldestRun  time.Duration // time since the longest-running message was passed to a handler or returned by Take; 0: none
}

// Stats returns the counts of all partitions. It makes one or two calls to the store per partition,
// and one for the consumers. The calls follow one another, so the counts are not an atomic
// snapshot. If any call fails, Stats returns its error and no counts.
func (q *Queue) Stats(ctx context.Context) (Stats, error) {
	if err := q.checkOpen(ctx); err != nil {
		return Stats{}, err
	}
	s := Stats{Lateness: q.lateness.summary()}
	auditor, _ := q.backend.(driver.Auditor)
	for i := range q.parts {
		c, err := q.backend.Count(ctx, i)
		counts := newCounts(c)
		if err == nil && auditor != nil {
			counts.Lost, _, err = auditor.Lost(ctx, i)
		}
		if err != nil {
			return Stats{}, fmt.Errorf("durable: stats of partition %d: %w", i, err)
		}
		s.Partitions = append(s.Partitions, counts)
		s.Counts.add(counts)
	}
	consumers, err := q.Consumers(ctx)
	if err != nil {
		return Stats{}, err
	}
	s.Consumers, s.Unowned = len(consumers), unowned(consumers, len(q.parts))
	s.Overdue, s.OverdueFor = s.Due, s.DueFor()
	for _, c := range consumers {
		s.Overdue += int64(c.Waiting)
		s.OverdueFor, s.OldestRun = max(s.OverdueFor, c.WaitingFor), max(s.OldestRun, c.OldestRun)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for c := range q.claiming {
		unbegun, begun, _ := c.dispatcher.load()
		s.Prefetched += unbegun
		s.Firing += begun
	}
	return s, nil
}

// CountDue returns, for each duration, the number of scheduled messages that are due within that
// time from now, on the store's clock. 0 counts the messages that are already due. There must be 1
// to 64 durations, in ascending order and not negative. Otherwise the error is [ErrInvalid].
//
// CountDue makes one call to the store per partition, in turn, so the counts are not an atomic
// snapshot. For each duration a call is O(log n) on Redis and, in PostgreSQL, O(n) in the messages
// counted. Other stores visit a few thousand messages that are not due, and estimate the rest.
func (q *Queue) CountDue(ctx context.Context, within ...time.Duration) ([]int64, error) {
	if err := q.checkOpen(ctx); err != nil {
		return nil, err
	}
	if len(within) < 1 || len(within) > 64 {
		return nil, fmt.Errorf("durable: count due: %w number of durations %d; it must be from 1 to %d",
			ErrInvalid, len(within), 64)
	}
	for i, d := range within {
		if d < 0 || i > 0 && d <= within[i-1] {
			return nil, fmt.Errorf("durable: count due: %w durations %v; they must be ascending and not negative",
				ErrInvalid, within)
		}
	}
	sums := make([]int64, len(within))
	for i := range q.parts {
		counts, err := q.backend.CountDue(ctx, i, within)
		if err != nil {
			return nil, fmt.Errorf("durable: count due messages of partition %d: %w", i, err)
		}
		for j, n := range counts {
			sums[j] += n
		}
	}
	return sums, nil
}

// Consumer is a consumer of a queue in any process: a call to [Queue.Consume] or a [Receiver].
// Package durabledebug uses the same JSON names.
type Consumer struct {
	ID            string    `json:"id"`             // unique among the consumers of the queue
	Host          string    `json:"host"`           // host name, at most 255 bytes; empty if unknown
	PID           int       `json:"pid"`            // process id on the host
	Partitions    []int     `json:"partitions"`     // owned at the last heartbeat, ascending
	LastHeartbeat time.Time `json:"last_heartbeat"` // on the store's clock
	Expires       time.Time `json:"expires"`        // when other consumers get its partitions unless it sends a heartbeat

	// At the last heartbeat.
	Waiting    int           `json:"waiting"`       // messages that are due and wait in the consumer for a handler
	WaitingFor time.Duration `json:"waiting_ns"`    // time since the first of them was due
	OldestRun  time.Duration `json:"oldest_run_ns"` // time since the longest-running message was passed to a handler or returned by Take; 0: none
}

// Consumers returns the consumers of the queue in all processes, according to their last heartbeats
// and sorted by ID. A consumer sends three heartbeats per ConsumerOptions.Membership, and one
// whenever its partitions change. A consumer that crashed or is suspended is listed until it
// expires. Two consumers may list a partition that is moving from one to the other. Consumers makes
// one call to the store. It returns the store's error, such as [ErrUnavailable].
func (q *Queue) Consumers(ctx context.Context) ([]Consumer, error) {
	if err := q.checkOpen(ctx); err != nil {
		return nil, err
	}
	members, err := q.backend.Members(ctx)
	if err != nil {
		return nil, fmt.Errorf("durable: consumers: %w", err)
	}
	all := make([]Consumer, len(members))
	for i, m := range members {
		all[i] = Consumer{
			ID: m.Name, Host: m.Host, PID: m.PID, Partitions: m.Partitions,
			LastHeartbeat: timeOf(m.Seen), Expires: timeOf(m.Until),
			Waiting: m.Waiting, WaitingFor: m.WaitingFor, OldestRun: m.OldestRun,
		}
	}
	return all, nil
}

// unowned returns the number of partitions without an owner.
func unowned(consumers []Consumer, partitions int) int {
	owned := make(map[int]bool)
	for _, c := range consumers {
		for _, p := range c.Partitions {
			if p >= 0 && p < partitions {
				owned[p] = true
			}
		}
	}
	return partitions - len(owned)
}
