package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Put implements [driver.Backend]. It stores nothing and returns [driver.ErrFull] if the server is
// out of memory, or the partition has reached Options.PartitionMessages or PartitionBytes.
//
// Put takes O(log n) for each message in a partition of n.
func (b *backend) Put(ctx context.Context, put driver.Put) ([]driver.Status, error) {
	if err := b.store.usable(ctx); err != nil || len(put.Items) == 0 {
		return nil, err
	}
	r, err := b.call(ctx, put.Partition, putScript, b.putLine(put))
	if err != nil {
		return nil, err
	}
	r.time()
	text := r.column(len(put.Items), 1)
	if r.err == nil && text == "" {
		r.err = errNoStatuses
	}
	if r.err != nil {
		return nil, b.failure(ctx, put.Partition, putScript, r.err)
	}
	return statuses(text), nil
}

// putLine returns the command line of put.lua.
func (b *backend) putLine(put driver.Put) []any {
	line := b.line(put.Partition, 9+4*len(put.Items))
	line = append(append(line, b.callArgs(put.Partition, &put.Call)...), flag(put.Replace))
	for i := range put.Items {
		item := &put.Items[i]
		line = append(line, item.ID, timeArg(item.At, item.Delay), packItem(item), packRare(item))
	}
	return append(line, b.limits...)
}

// Claim implements [driver.Backend]. A call ends at most 256 expired leases; if more have expired,
// Claimed.Lease is in the past. The call also removes up to 256 dead letters beyond the limits. The
// client does not repeat the call by itself.
//
// Claim takes O(log n) for each message in a partition of n. If keys were lost, it first puts the
// messages back that are in no set, in steps, which takes O(n log n).
func (b *backend) Claim(ctx context.Context, claim driver.Claim) (driver.Claimed, error) {
	args := append(b.hintArgs(claim.Partition),
		millis(claim.Horizon), claim.Max, max(0, claim.MaxBytes), millis(claim.Visibility),
		max(0, claim.MaxCrashes))
	bounds := b.deadBounds()
	args = append(args, bounds[0], bounds[1], max(0, claim.Begin), bounds[2],
		millis(cmp.Or(claim.Hold, claim.Visibility)), claim.Consumer, claim.Seen, driver.ClaimConsumers, claim.Seq, flag(claim.Repeat), driver.Process())
	for lost := false; ; {
		r, err := ask(ctx, b, claim.Partition, claimScript, args...)
		if err == nil && len(r.values) == 1 {
			lost = true
			if err = mend(ctx, b, claim.Partition, claim.Visibility); err == nil {
				continue
			}
		}
		if err != nil {
			return driver.Claimed{Lost: lost}, err
		}
		claimed, err := readClaimed(r)
		claimed.Lost = lost
		return claimed, b.failure(ctx, claim.Partition, claimScript, err)
	}
}

func readClaimed(r *reply) (driver.Claimed, error) {
	claimed := driver.Claimed{Now: r.time(), Next: r.instant(), Lease: r.instant()}
	leases := r.text()
	claimed.Unreadable, claimed.Paused = int(r.number()), r.text() == "1"
	n := len(leases) / width
	if r.err == nil && (len(leases) != width*n || len(r.values) != 3*n) {
		r.err = fmt.Errorf("%w: %d values and %d bytes of lease ends for %d messages", errReply, len(r.values),
			len(leases), n)
	}
	if r.err != nil {
		return driver.Claimed{}, r.err
	}
	if n > 0 {
		claimed.Records = make([]driver.Record, n)
	}
	for i := range claimed.Records {
		record, err := decodeRecord(r.text(), r.text(), r.text())
		if err := cmp.Or(err, r.err); err != nil {
			return driver.Claimed{}, err
		}
		record.LeaseEnd = unpackInstant(leases[i*width:])
		claimed.Records[i] = record
	}
	return claimed, nil
}

// Apply implements [driver.Backend]. It takes O(log n) for each message in a partition of n.
func (b *backend) Apply(ctx context.Context, batch driver.Batch) ([]driver.Outcome, error) {
	if err := batch.Op.Check(); err != nil {
		return nil, fmt.Errorf("redisstore: %w", err)
	}
	if err := b.store.usable(ctx); err != nil || len(batch.Changes) == 0 {
		return nil, err
	}
	s := opScripts[batch.Op]
	r, err := b.call(ctx, batch.Partition, s, b.applyLine(batch))
	if err != nil {
		return nil, err
	}
	outcomes, err := readOutcomes(r, len(batch.Changes))
	return outcomes, b.failure(ctx, batch.Partition, s, err)
}

// applyLine returns the command line of a transition: see its script.
func (b *backend) applyLine(batch driver.Batch) []any {
	args := b.line(batch.Partition, 6+3*len(batch.Changes)) // most have 2 or 3 each
	switch batch.Op {
	case driver.OpBegin:
		args = append(args, millis(batch.Visibility), int64(math.Floor(float64(batch.Lead)/1000)), driver.Process())
	case driver.OpAck:
		args = append(args, "acked")
	case driver.OpExpire:
		args = append(args, "expired")
	case driver.OpCancel, driver.OpReschedule, driver.OpReplay, driver.OpPurge:
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
		reason := driver.CutReason(c.Reason)
		return append(args, packToken(c.Token), timeArg(0, c.Delay), flag(!c.Uncounted), reason)
	case driver.OpBury:
		return append(args, packToken(c.Token), driver.CutReason(c.Reason))
	case driver.OpExtend:
		begun := c.Begun
		if begun <= 0 {
			begun = c.Delay
		}
		return append(args, packToken(c.Token), millis(c.Delay), millis(begun))
	case driver.OpReschedule:
		return append(args, timeArg(c.At, c.Delay))
	case driver.OpReplay:
		return append(args, timeArg(0, c.Delay), packIncarnation(c.Incarnation))
	default: // Cancel, Purge
		return append(args, packIncarnation(c.Incarnation))
	}
}

func readOutcomes(r *reply, n int) ([]driver.Outcome, error) {
	now := r.time()
	text, dues, leases := r.column(n, 1), r.column(n, width), r.column(n, width)
	if r.err == nil && len(text) != n {
		r.err = errNoStatuses
	}
	if r.err != nil {
		return nil, r.err
	}
	outcomes := make([]driver.Outcome, n)
	for i := range outcomes {
		o := driver.Outcome{Status: driver.Status(text[i] - '0'), Now: now}
		if dues != "" {
			o.Due = unpackInstant(dues[i*width:])
		}
		if leases != "" {
			o.Lease = unpackInstant(leases[i*width:])
		}
		outcomes[i] = o
	}
	return outcomes, nil
}

// Pause implements [driver.Backend]. It is O(1).
func (b *backend) Pause(ctx context.Context, pause driver.Pause) error {
	if err := b.store.usable(ctx); err != nil {
		return err
	}
	args := append(b.callArgs(pause.Partition, &pause.Call), flag(pause.Paused))
	_, err := b.call(ctx, pause.Partition, pauseScript, append(b.line(pause.Partition, len(args)), args...))
	return err
}
