package durable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Healthy returns nil if the store answers for each partition, is configured safely and has lost no
// keys. Otherwise the error says what is wrong and what to do. Healthy is meant for health probes:
//
//   - [ErrUnavailable]: the store is unreachable. The queue continues when the store is reachable
//     again.
//   - [ErrBroken]: the store must be closed and opened again.
//   - [ErrUnsafe]: a server may lose messages, has too few replicas, or has lost keys that
//     [Queue.Audit] has not repaired. The queue checks this when it is opened, when a claim finds
//     lost keys, and once a minute, or every five seconds while the store is unsafe. Healthy
//     returns the result of the last check, and waits for the first one.
//
// A queue that is paused or has no consumers is healthy: see [Queue.Stats].
//
// Healthy looks up an unused id in all partitions concurrently. This costs one O(1) call to the
// store per partition. ctx should end before the probe's timeout. If ctx ends, Healthy returns its
// cause.
func (q *Queue) Healthy(ctx context.Context) error {
	if err := q.checkOpen(ctx); err != nil {
		return err
	}
	failures := onParts(q, func(p *part) error {
		_, err := q.backend.Get(ctx, p.index, probeID)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		return err
	})
	err := cmp.Or(failures...)
	if err == nil {
		select {
		case <-q.health.checked:
			err = *q.health.unsafe.Load()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	} else if errors.Is(err, ErrUnavailable) {
		err = fmt.Errorf("%w; check that it is running and reachable from this process", err)
	}
	if err != nil {
		err = fmt.Errorf("durable: queue %q is not healthy: %w", q.options.Queue, err)
	}
	return err
}

// probeID is an id that no message has. It is well-formed for stores, and checkID refuses it.
const probeID = "timingwheel.probe"

// health is the result of the checks of the store.
type health struct {
	unsafe  atomic.Pointer[error] // why the store may lose messages, as of the last check; not nil after the first
	checked chan struct{}         // closed after the first check
	again   chan struct{}         // capacity 1: the next check follows immediately
}

// The times between two checks for lost messages and of a server's settings.
const (
	checkInterval   = time.Minute
	recheckInterval = 5 * time.Second // while the store is unsafe
)

// check reports when the store is not configured safely, again when the reason changes, and lost
// messages, until q is closed. Healthy already returns a reported ErrUnsafe.
func (q *Queue) check() {
	checker, _ := q.backend.(driver.Checker)
	auditor, _ := q.backend.(driver.Auditor)
	var settings error
	losses := make([]loss, len(q.parts))
	for done := sync.OnceFunc(func() { close(q.health.checked) }); ; {
		var faults []fault
		if checker != nil {
			faults, settings = checkSettings(q, checker, settings)
		}
		unsafe := settings
		if errors.Is(settings, errors.ErrUnsupported) {
			unsafe = nil
		}
		if auditor != nil {
			lost, damage := checkLost(q, auditor, losses)
			unsafe, faults = cmp.Or(unsafe, damage), append(faults, lost...)
		}
		q.health.unsafe.Store(&unsafe)
		for _, f := range faults {
			q.reportFault(f)
		}
		done()
		pause := checkInterval
		if unsafe != nil {
			pause = recheckInterval
		}
		select {
		case <-time.After(pause):
		case <-q.health.again:
		case <-q.ctx.Done():
			return
		}
	}
}

// checkSettings checks the store. It returns the store's last answer, as a fault if it is new.
func checkSettings(q *Queue, checker driver.Checker, last error) (faults []fault, unsafe error) {
	err := checker.Check(q.ctx)
	if errors.Is(err, ErrUnavailable) || q.ctx.Err() != nil {
		return nil, last
	}
	if err != nil && (last == nil || err.Error() != last.Error()) {
		faults = append(faults, fault{partition: -1, err: err})
	}
	return faults, err
}

// loss has the last answers of Auditor.Lost for a partition.
type loss struct {
	known  bool
	number uint64
	damage error
}

// checkLost returns damage that wraps ErrUnsafe, and the new faults: damage, or the number of
// messages lost since the last answer. A later call returns faults that a failed call misses.
func checkLost(q *Queue, auditor driver.Auditor, losses []loss) (faults []fault, unsafe error) {
	for i := range losses {
		last := &losses[i]
		number, damage, err := auditor.Lost(q.ctx, i)
		switch {
		case err != nil:
			number, damage = last.number, last.damage
		case damage != nil && (last.damage == nil || damage.Error() != last.damage.Error()):
			faults = append(faults, fault{partition: i, err: damage})
		case last.known && number > last.number:
			faults = append(faults, fault{partition: i, err: fmt.Errorf(
				"%d messages are lost: the server has evicted their records, or another client has deleted them", number-last.number)})
		}
		*last = loss{last.known || err == nil, number, damage} // less than before if the counter itself was lost
		if errors.Is(damage, ErrUnsafe) {
			unsafe = errors.Join(unsafe, fmt.Errorf("partition %d: %w", i, damage))
		}
	}
	return faults, unsafe
}

// Audit checks all partitions for damage that a fault may have left, such as a deleted key, and
// repairs it if repair is true: see [driver.Auditor]. The cost is O(n log n) for n messages. On
// Redis an audit works in small steps. In a directory nothing is repaired, and other calls wait
// while a partition is audited. After an error the report contains the faults that were found
// before it. The error wraps [errors.ErrUnsupported] if the store does not support audits.
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
