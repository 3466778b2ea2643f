package durable

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestLeaseIsExtendedOrLostInTime(t *testing.T) {
	t.Parallel()
	now := time.Now()
	opts := &ConsumerOptions{Visibility: 24 * time.Second, Membership: 12 * time.Second} // checked every 1.5 s
	for _, test := range []struct {
		what        string
		state       heldState
		left        time.Duration
		asked, runs bool
		want        leaseAction
	}{
		{"armed messages have leases beyond their due times", heldArmed, time.Second, false, false, leaseKeep},
		{"two thirds are left", heldReady, 8 * time.Second, false, false, leaseKeep},
		{"less than two thirds are left", heldReady, 8*time.Second - 1, false, false, leaseExtend},
		{"it is being extended", heldReady, 5 * time.Second, true, false, leaseKeep},
		{"the next check may be too late", heldReady, 3*time.Second - 1, true, false, leaseLose},
		{"beginning", heldBeginning, 5 * time.Second, false, false, leaseExtend},
		{"begun, and two thirds are left", heldBegun, 16 * time.Second, false, false, leaseKeep},
		{"waiting", heldWaiting, 10 * time.Second, false, false, leaseExtend},
		{"begun", heldBegun, 10 * time.Second, false, false, leaseExtend},
		{"a handler runs", heldTaken, 10 * time.Second, false, true, leaseExtend},
		{"a handler runs and loses its lease", heldTaken, 5 * time.Second, false, true, leaseLose},
		{"a receiver has it", heldTaken, 1, false, false, leaseKeep},
		{"the receiver's lease has expired", heldTaken, 0, false, false, leaseLose},
	} {
		h := &heldMessage{state: test.state, until: now.Add(test.left), extending: test.asked, renew: test.runs}
		assert.Equal(t, test.want, h.leaseAction(opts, now), test.what)
	}
}
