package durable

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Healthy returns nil if the store answers for each partition and is configured safely. Otherwise
// the error says what is wrong and what to do. Healthy is meant for health probes:
//
//   - [ErrUnavailable]: the store is unreachable. The queue continues when the store is reachable
//     again.
//   - [ErrBroken]: the store must be closed and opened again.
//   - [ErrUnsafe]: a server may lose messages, or has too few replicas. The queue checks this when
//     it is opened and once a minute, and every five seconds while the store is unsafe. Healthy
//     returns the result of the last check.
//
// A queue that is paused or has no consumers is healthy: see [Queue.Stats].
//
// Healthy looks up a missing message in all partitions concurrently. This costs one O(1) call to
// the store per partition. ctx should end before the timeout of the probe. If ctx ends, Healthy
// returns its cause.
func (q *Queue) Healthy(ctx context.Context) error {
	if err := q.checkOpen(ctx); err != nil {
		return err
	}
	errs := make([]error, len(q.parts))
	var all sync.WaitGroup
	for i := range q.parts {
		all.Go(func() {
			if _, err := q.backend.Get(ctx, i, probeID); err != nil && !errors.Is(err, ErrNotFound) {
				errs[i] = fmt.Errorf("partition %d: %w", i, err)
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if errors.Is(err, ErrUnavailable) {
			err = fmt.Errorf("%w; check that it is running and reachable from this process", err)
		}
		if err != nil {
			return fmt.Errorf("durable: queue %q is not healthy: %w", q.options.Queue, err)
		}
	}
	if err := q.unsafe.Load(); err != nil {
		return fmt.Errorf("durable: queue %q is not healthy: %w", q.options.Queue, *err)
	}
	return nil
}

// probeID is the id that Healthy looks up. It is well-formed for stores, and checkID refuses it.
const probeID = "timingwheel.probe"

// The times between two checks for lost messages and of a server's settings.
const (
	checkInterval   = time.Minute
	recheckInterval = 5 * time.Second // while the store is unsafe
)

// check reports when the store is not configured safely, and again when the reason changes. It also
// reports lost messages. It runs until the queue is closed. Each argument may be nil.
func (q *Queue) check(checker driver.Checker, auditor driver.Auditor) {
	known := make(map[int]uint64) // numbers of lost messages by partition
	for reported := ""; q.ctx.Err() == nil; {
		if auditor != nil {
			checkLost(q, auditor, known)
		}
		pause := checkInterval
		if checker != nil {
			reported = checkSettings(q, checker, reported)
			if q.unsafe.Load() != nil {
				pause = recheckInterval
			}
		}
		sleep(q.ctx, pause)
	}
}

// checkSettings checks the store, and returns the error that was reported last; "" means none.
func checkSettings(q *Queue, checker driver.Checker, reported string) string {
	err := checker.Check(q.ctx)
	if errors.Is(err, ErrUnavailable) || q.ctx.Err() != nil {
		return reported
	}
	unsafe := &err
	if err == nil || errors.Is(err, errors.ErrUnsupported) {
		unsafe = nil
	}
	q.unsafe.Store(unsafe)
	if err == nil {
		return ""
	}
	if err.Error() != reported {
		q.report("%w", err)
	}
	return err.Error()
}

// checkLost reports how many messages were lost since the last call that has read their number. If
// a call fails, a later one reports them.
func checkLost(q *Queue, auditor driver.Auditor, known map[int]uint64) {
	for i := range q.parts {
		lost, err := auditor.Lost(q.ctx, i)
		if err != nil {
			continue
		}
		if before, ok := known[i]; ok && lost > before {
			q.reportFault(fault{partition: i, err: fmt.Errorf(
				"%d messages are lost: the server has evicted their records, or another client has deleted them", lost-before)})
		}
		known[i] = lost // less than before if the counter itself was lost
	}
}

// Audit checks all partitions for damage that a fault may have left, such as a deleted key, and
// repairs it if repair is true: see [driver.Auditor]. The cost is O(n) in the messages of the
// queue. On Redis an audit works in small steps. In a directory, which is not repaired, other calls
// wait while a partition is audited. After an error the report contains the faults that were found
// before it. The error wraps [errors.ErrUnsupported] if the store has no audit.
func (q *Queue) Audit(ctx context.Context, repair bool) (driver.AuditReport, error) {
	var sum driver.AuditReport
	if err := q.checkOpen(ctx); err != nil {
		return sum, err
	}
	auditor, ok := q.backend.(driver.Auditor)
	if !ok {
		return sum, fmt.Errorf("durable: audit: %w: the store of queue %q has no audit", errors.ErrUnsupported, q.options.Queue)
	}
	for i := range q.parts {
		r, err := auditor.Audit(ctx, i, repair)
		sum.Records += r.Records
		sum.Orphans += r.Orphans
		sum.Strays += r.Strays
		sum.Unreadable += r.Unreadable
		sum.Wrong += r.Wrong
		sum.Repaired += r.Repaired
		if err != nil {
			return sum, fmt.Errorf("durable: audit of partition %d: %w", i, err)
		}
	}
	return sum, nil
}
