package redisstore

import (
	"context"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

const (
	auditIDs    = 256              // of one step of an audit
	auditBytes  = 1 << 20          // of the records that the server reads in a step
	orphanLease = 30 * time.Second // for messages in flight put back, at least: the default Visibility
)

// Audit implements [driver.Auditor]. It goes through the partition in small steps, between which
// other calls run. A message that moves at the same time may be counted twice. Each member and each
// state without a record is counted. A dead letter without a state counts as an orphan; it stays
// dead, but loses its reason and its counts. A repair counts missing keys as lost. The total size
// of the bodies of dead letters is not checked if their set keeps changing. Audit takes O(n log n).
func (b *backend) Audit(ctx context.Context, part int, repair bool) (report driver.AuditReport, err error) {
	var damaged string
	if repair { // keys that no claim has missed count as lost
		if damaged, err = b.createKeys(ctx, part, ""); err != nil {
			return report, err
		}
	}
	if err := b.auditRecords(ctx, part, "0", repair, 0, &report); err != nil {
		return report, err
	}
	for _, key := range []int{keyScheduled, keyLeased, keyDead, keyStates} {
		if err := b.auditStrays(ctx, part, key, repair, &report); err != nil {
			return report, err
		}
	}
	err = b.auditDead(ctx, part, repair, &report)
	if err == nil && damaged != "" {
		_, err = b.createKeys(ctx, part, damaged)
	}
	return report, err
}

// createKeys creates the missing keys of a partition, and returns those that were lost, or "". If
// they are equal to repaired, they are forgotten. See create.lua.
func (b *backend) createKeys(ctx context.Context, part int, repaired string) (damaged string, err error) {
	err = b.ask(ctx, part, createScript, func(r *reply) { damaged = r.text() }, b.createArgs(repaired)...)
	return damaged, err
}

// mend creates the missing keys of a partition, and puts the messages back that are in no set. If
// mend is interrupted, the partition has no claims until another call has continued.
func (b *backend) mend(ctx context.Context, part int, visibility time.Duration) error {
	if _, err := b.createKeys(ctx, part, ""); err != nil {
		return err
	}
	return b.auditRecords(ctx, part, "", true, visibility, new(driver.AuditReport))
}

// auditRecords looks for orphans, from the beginning ("0") or as a part of mend (""). The size of a
// step depends on the sizes of the records of the previous step.
func (b *backend) auditRecords(ctx context.Context, part int, from string, repair bool, lease time.Duration, report *driver.AuditReport) error {
	cursor, step := from, 8
	for {
		if from == "" {
			cursor = "" // other consumers may have made steps
		}
		var bytes int64
		err := b.ask(ctx, part, auditRecordsScript, func(r *reply) {
			cursor = r.text()
			report.Records += r.number()
			report.Orphans += r.number()
			report.Unreadable += r.number()
			report.Repaired += r.number()
			bytes = r.number()
		}, append(b.hintArgs(part), cursor, step, repair, millis(max(lease, orphanLease)))...)
		if err != nil || cursor == "0" {
			return err
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
		err := b.ask(ctx, part, auditStraysScript, func(r *reply) {
			cursor = r.text()
			report.Strays += r.number()
			report.Repaired += r.number()
		}, key, cursor, auditIDs, repair)
		if err != nil || cursor == "0" {
			return err
		}
	}
}

// auditDead compares Counts.DeadBytes with the dead letters, again if they change, at most twice.
func (b *backend) auditDead(ctx context.Context, part int, repair bool, report *driver.AuditReport) error {
	var rank, sum int64
	var set string
	for restarts := 0; rank >= 0 && restarts < 3; {
		err := b.ask(ctx, part, auditDeadScript, func(r *reply) {
			rank, sum, set = r.number(), r.number(), r.text()
			report.Wrong += r.number()
			report.Repaired += r.number()
		}, rank, auditIDs, sum, set, repair)
		if err != nil {
			return err
		}
		if rank == 0 {
			restarts++
		}
	}
	return nil
}
