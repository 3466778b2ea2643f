package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

// Put implements [driver.Backend]. It stores nothing and returns [driver.ErrFull] if the server is
// out of memory, or the partition has reached Options.PartitionMessages or PartitionBytes.
//
// Put takes O(log n) per message in a partition with n messages.
func (b *backend) Put(ctx context.Context, put driver.Put) (all []driver.Status, err error) {
	if len(put.Items) == 0 {
		return nil, b.store.usable(ctx)
	}
	args := append(b.callArgs(put.Partition, &put.Call), put.Replace)
	for i := range put.Items {
		item := &put.Items[i]
		args = append(args, item.ID, timeArg(item.At, item.Delay), packItem(item), item.Repeat)
	}
	err = b.ask(ctx, put.Partition, putScript, func(r *reply) {
		r.time()
		all = r.statuses(len(put.Items))
	}, append(args, b.limits...)...)
	return all, err
}

// Claim implements [driver.Backend]. A call ends at most 256 expired leases; if more have expired,
// Claimed.Lease is in the past. The call also removes up to 256 dead letters beyond the limits. The
// client does not repeat the call on its own.
//
// Claim takes O(log n) per message in a partition with n messages. If keys were lost, it first puts
// back, in steps, the messages that are in no set, which takes O(n log n).
func (b *backend) Claim(ctx context.Context, claim driver.Claim) (claimed driver.Claimed, err error) {
	args := append(b.hintArgs(claim.Partition),
		millis(claim.Horizon), claim.Max, max(0, claim.MaxBytes), millis(claim.Visibility),
		max(0, claim.MaxCrashes))
	args = append(append(args, b.deadBounds()...), max(0, claim.Begin),
		millis(cmp.Or(claim.Hold, claim.Visibility)), claim.Consumer, claim.Seen, contract.ClaimConsumers, claim.Seq, claim.Repeat, contract.Process())
	for lost := false; ; lost = true {
		err = b.ask(ctx, claim.Partition, claimScript, func(r *reply) { claimed = readClaimed(r) }, args...)
		if err == nil && claimed.Lost {
			if err = b.mend(ctx, claim.Partition, claim.Visibility); err == nil {
				continue
			}
		}
		claimed.Lost = claimed.Lost || lost
		return claimed, err
	}
}

// readClaimed reads the reply of claim.lua. Only Lost is set if keys were lost.
func readClaimed(r *reply) driver.Claimed {
	if len(r.values) == 1 && r.text() == "lost" {
		return driver.Claimed{Lost: true}
	}
	claimed := driver.Claimed{Now: r.time(), Next: r.instant(), Lease: r.instant()}
	leases := r.text()
	claimed.Unreadable, claimed.Paused = int(r.number()), r.text() == "1"
	n := len(leases) / width
	if r.err == nil && (len(leases) != width*n || len(r.values) != 3*n) {
		r.err = fmt.Errorf("%w: %d values and %d bytes of lease ends for %d messages", errReply, len(r.values),
			len(leases), n)
	}
	if r.err != nil {
		return driver.Claimed{}
	}
	if n > 0 {
		claimed.Records = make([]driver.Record, n)
	}
	for i := range claimed.Records {
		record, err := decodeRecord(r.text(), r.text(), r.text())
		if r.err = cmp.Or(err, r.err); r.err != nil {
			return driver.Claimed{}
		}
		record.LeaseEnd = unpackInstant(leases[i*width:])
		claimed.Records[i] = record
	}
	return claimed
}

// Apply implements [driver.Backend]. It takes O(log n) per message in a partition with n messages.
func (b *backend) Apply(ctx context.Context, batch driver.Batch) (outcomes []driver.Outcome, err error) {
	if err := contract.CheckOp(batch.Op); err != nil {
		return nil, fmt.Errorf("redisstore: %w", err)
	}
	if len(batch.Changes) == 0 {
		return nil, b.store.usable(ctx)
	}
	err = b.ask(ctx, batch.Partition, opScripts[batch.Op], func(r *reply) {
		outcomes = readOutcomes(r, len(batch.Changes))
	}, b.applyArgs(batch)...)
	return outcomes, err
}

// applyArgs returns the arguments of a transition: see its script.
func (b *backend) applyArgs(batch driver.Batch) []any {
	args := make([]any, 0, 6+3*len(batch.Changes)) // most have 2 or 3 each
	switch batch.Op {
	case driver.OpBegin:
		args = append(args, millis(batch.Visibility), int64(math.Floor(float64(batch.Lead)/1000)), contract.Process())
	case driver.OpAck:
		args = append(args, "acked")
	case driver.OpExpire:
		args = append(args, "expired")
	case driver.OpCancel, driver.OpReschedule, driver.OpRepeat, driver.OpReplay, driver.OpPurge:
		args = append(args, b.callArgs(batch.Partition, &batch.Call)...)
	case driver.OpRetry, driver.OpRelease:
		args = append(args, b.hintArgs(batch.Partition)...)
	case driver.OpBury:
		args = append(args, b.deadBounds()...)
	}
	for i := range batch.Changes {
		args = appendChange(args, batch.Op, &batch.Changes[i])
	}
	return args
}

func appendChange(args []any, op driver.Op, c *driver.Change) []any {
	args = append(args, c.ID)
	switch op {
	case driver.OpBegin, driver.OpAck, driver.OpExpire, driver.OpRelease:
		return append(args, packToken(c.Token))
	case driver.OpRetry:
		return append(args, packToken(c.Token), timeArg(c.At, c.Delay), c.Uncounted, c.Again, contract.CutReason(c.Reason),
			packIncarnation(c.Incarnation))
	case driver.OpBury:
		return append(args, packToken(c.Token), contract.CutReason(c.Reason))
	case driver.OpExtend:
		return append(args, packToken(c.Token), millis(c.Delay), millis(cmp.Or(max(0, c.Begun), c.Delay)))
	case driver.OpReschedule, driver.OpRepeat:
		return append(args, timeArg(c.At, c.Delay), op == driver.OpRepeat, c.Repeat)
	case driver.OpReplay:
		return append(args, timeArg(0, c.Delay), packIncarnation(c.Incarnation))
	case driver.OpCancel:
		return append(args, packIncarnation(c.Incarnation), c.Interrupt)
	default: // Purge
		return append(args, packIncarnation(c.Incarnation))
	}
}

func readOutcomes(r *reply, n int) []driver.Outcome {
	now, statuses, dues, leases := r.time(), r.statuses(n), r.column(n), r.column(n)
	if r.err != nil {
		return nil
	}
	outcomes := make([]driver.Outcome, n)
	for i := range outcomes {
		o := &outcomes[i]
		o.Status, o.Now = statuses[i], now
		if dues != "" {
			o.Due = unpackInstant(dues[i*width:])
		}
		if leases != "" {
			o.Lease = unpackInstant(leases[i*width:])
		}
	}
	return outcomes
}

// Pause implements [driver.Backend]. It is O(1).
func (b *backend) Pause(ctx context.Context, pause driver.Pause) error {
	args := append(b.callArgs(pause.Partition, &pause.Call), pause.Paused)
	return b.ask(ctx, pause.Partition, pauseScript, func(r *reply) { r.time() }, args...)
}
