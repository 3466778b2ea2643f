package redisstore

import (
	"context"
	"fmt"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Claim implements [driver.Backend]. A call ends at most 256 leases; if more are over, Claimed.Lease is in the past. It also
// removes dead letters that are too old, too many or too large, at most 256. The client does not
// repeat it by itself.
//
// It takes O(log n) for each message in a partition of n. To find what a lost answer gave, it also
// reads the messages whose leases end at the same time as those, at most all in flight.
func (b *backend) Claim(ctx context.Context, claim driver.Claim) (driver.Claimed, error) {
	if err := b.store.usable(ctx); err != nil {
		return driver.Claimed{}, err
	}
	hold := claim.Hold
	if hold <= 0 {
		hold = claim.Visibility
	}
	args := append(b.hinting(claim.Partition),
		millis(claim.Horizon), claim.Max, max(0, claim.MaxBytes), millis(claim.Visibility), max(0, claim.MaxCrashes))
	bounds := b.deadBounds()
	args = append(args, bounds[0], bounds[1], max(0, claim.Begin), bounds[2],
		millis(hold), claim.Consumer, claim.Seen, driver.ClaimConsumers, claim.Seq, flag(claim.Repeat))
	v, err := b.run(ctx, claim.Partition, claimScript, args...)
	if err != nil {
		return driver.Claimed{}, err
	}
	claimed, err := readClaimed(newReply(v))
	return claimed, b.failure(ctx, claim.Partition, claimScript, err)
}

func readClaimed(r *reply) (driver.Claimed, error) {
	claimed := driver.Claimed{Now: r.time(), Next: r.instant(), Lease: r.instant()}
	leases := r.text()
	claimed.Lost, claimed.Unreadable, claimed.Paused = int(r.number()), int(r.number()), r.text() == "1"
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
		if err == nil {
			err = r.err
		}
		if err != nil {
			return driver.Claimed{}, err
		}
		record.LeaseEnd = unpackInstant(leases[i*width:])
		claimed.Records[i] = record
	}
	return claimed, nil
}
