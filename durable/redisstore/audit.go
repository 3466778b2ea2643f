package redisstore

import (
	"context"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Bounds of one step of an audit: ids, and bytes of records, which the server reads together with the ids.
const (
	auditIDs   = 256
	auditBytes = 1 << 20
)

// Audit implements [driver.Backend]. It goes through the partition in small steps, between which others may work; what is moved at the
// same time may be counted twice. Members and states without a record are counted one by one. A dead letter whose state was
// lost counts as an orphan; it stays dead, without what had become of it. It takes O(n log n) in a partition of n.
func (b *backend) Audit(ctx context.Context, part int, repair bool) (driver.AuditReport, error) {
	var report driver.AuditReport
	if err := b.auditRecords(ctx, part, repair, &report); err != nil {
		return report, err
	}
	for _, key := range []int{keyScheduled, keyLeased, keyDead, keyStates} {
		if err := b.auditStrays(ctx, part, key, repair, &report); err != nil {
			return report, err
		}
	}
	return report, nil
}

// auditRecords looks for orphans. The size of a step follows that of the records that the last one has met.
func (b *backend) auditRecords(ctx context.Context, part int, repair bool, report *driver.AuditReport) error {
	cursor, step := "0", 8
	for {
		if err := b.check(ctx, part); err != nil {
			return err
		}
		args := append(b.hinting(part), cursor, step, flag(repair))
		v, err := b.run(ctx, part, auditRecordsScript, args...)
		if err != nil {
			return err
		}
		r := newReply(v)
		cursor = r.text()
		report.Records += r.number()
		report.Orphans += r.number()
		report.Unreadable += r.number()
		report.Repaired += r.number()
		bytes := r.number()
		if r.err != nil {
			return b.failure(ctx, part, auditRecordsScript, r.err)
		}
		if cursor == "0" {
			return nil
		}
		if bytes > auditBytes {
			step = max(1, step/2)
		} else if bytes < auditBytes/4 {
			step = min(auditIDs, 2*step)
		}
	}
}

// auditStrays looks for members of a set, or for states, without a record.
func (b *backend) auditStrays(ctx context.Context, part, key int, repair bool, report *driver.AuditReport) error {
	cursor := "0"
	for {
		if err := b.check(ctx, part); err != nil {
			return err
		}
		v, err := b.run(ctx, part, auditStraysScript, key, cursor, auditIDs, flag(repair))
		if err != nil {
			return err
		}
		r := newReply(v)
		cursor = r.text()
		report.Strays += r.number()
		report.Repaired += r.number()
		if r.err != nil {
			return b.failure(ctx, part, auditStraysScript, r.err)
		}
		if cursor == "0" {
			return nil
		}
	}
}
