package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Apply implements [driver.Backend]. It takes O(log n) for each message in a partition of n.
func (b *backend) Apply(ctx context.Context, batch driver.Batch) ([]driver.Outcome, error) {
	if err := batch.Op.Check(); err != nil {
		return nil, fmt.Errorf("redisstore: %w", err)
	}
	if err := b.store.usable(ctx); err != nil || len(batch.Changes) == 0 {
		return nil, err
	}
	s := opScripts[batch.Op]
	v, err := b.runLine(ctx, batch.Partition, s, b.applyLine(batch))
	if err != nil {
		return nil, err
	}
	r, err := b.calledReply(batch.Partition, s, v)
	if err != nil {
		return nil, err
	}
	outcomes, err := readOutcomes(r, len(batch.Changes))
	return outcomes, b.failure(ctx, batch.Partition, s, err)
}

// Pause implements [driver.Backend]. It is O(1).
func (b *backend) Pause(ctx context.Context, pause driver.Pause) error {
	if err := b.store.usable(ctx); err != nil {
		return err
	}
	v, err := b.run(ctx, pause.Partition, pauseScript, append(b.calling(pause.Partition, &pause.Call), flag(pause.Paused))...)
	if err == nil {
		_, err = b.calledReply(pause.Partition, pauseScript, v)
	}
	return err
}

// applyLine has the arguments that the file of the transition's script tells.
func (b *backend) applyLine(batch driver.Batch) []any {
	args := b.line(batch.Partition, 6+argsOf(batch.Op)*len(batch.Changes))
	switch batch.Op {
	case driver.OpBegin:
		args = append(args, millis(batch.Visibility), int64(floor(batch.Lead, time.Microsecond)))
	case driver.OpAck:
		args = append(args, "acked")
	case driver.OpExpire:
		args = append(args, "expired")
	case driver.OpCancel, driver.OpReschedule, driver.OpReplay, driver.OpPurge:
		args = append(args, b.calling(batch.Partition, &batch.Call)...)
	case driver.OpRetry, driver.OpRelease:
		args = append(args, b.hinting(batch.Partition)...)
	case driver.OpBury:
		args = append(args, b.deadBounds()...)
	}
	for i := range batch.Changes {
		args = appendChange(args, batch.Op, &batch.Changes[i])
	}
	return args
}

// argsOf is the number of arguments for each change.
func argsOf(op driver.Op) int {
	switch op {
	case driver.OpRetry:
		return 5
	case driver.OpExtend:
		return 4
	case driver.OpBury, driver.OpReplay:
		return 3
	default:
		return 2
	}
}

func appendChange(args []any, op driver.Op, c *driver.Change) []any {
	args = append(args, c.ID)
	switch op {
	case driver.OpBegin, driver.OpAck, driver.OpExpire, driver.OpRelease:
		return append(args, packToken(c.Token))
	case driver.OpRetry:
		return append(args, packToken(c.Token), when(0, c.Delay), flag(!c.Uncounted), driver.CutReason(c.Reason))
	case driver.OpBury:
		return append(args, packToken(c.Token), driver.CutReason(c.Reason))
	case driver.OpExtend:
		begun := c.Begun
		if begun <= 0 {
			begun = c.Delay
		}
		return append(args, packToken(c.Token), millis(c.Delay), millis(begun))
	case driver.OpReschedule:
		return append(args, when(c.At, c.Delay))
	case driver.OpReplay:
		return append(args, when(0, c.Delay), packIncarnation(c.Incarnation))
	default: // Cancel, Purge
		return append(args, packIncarnation(c.Incarnation))
	}
}

// floor is a duration in units, rounded down also where it is negative.
func floor(d, unit time.Duration) time.Duration {
	n := d / unit
	if d%unit < 0 {
		n--
	}
	return n
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
