package durable

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

func TestLeaseIsExtendedOrLostInTime(t *testing.T) {
	t.Parallel()
	now := time.Now()
	l := leases{visibility: 24 * time.Second, hold: 12 * time.Second} // checked every 1.5 s
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
		{"the receiver's lease has expired", heldTaken, 0, false, false, leaseForget},
		{"not passed to a receiver", heldTaken, 0, false, false, leaseLose},
	} {
		h := &heldMessage{state: test.state, until: now.Add(test.left), extending: test.asked, renew: test.runs, handed: test.what != "not passed to a receiver"}
		assert.Equal(t, test.want, l.action(h, now), test.what)
	}
}

// A message begins without a new lease if enough of the lease of its claim is left.
func TestBeginRenewsOnlyShortLeases(t *testing.T) {
	t.Parallel()
	now := time.Now()
	l := leases{visibility: 8 * time.Second, held: make(map[*heldMessage]struct{})}
	h := &heldMessage{record: driver.Record{ID: "m", Token: 7, LeaseEnd: driver.InstantOf(now) + 8000}}
	l.add(h, now, driver.InstantOf(now).Time())
	assert.Equal(t, now.Add(8*time.Second), h.until)
	assert.Equal(t, driver.Change{ID: "m", Token: 7}, l.begin(h, now))
	assert.Equal(t, driver.Change{ID: "m", Token: 7, Delay: 8 * time.Second}, l.begin(h, now.Add(1)))

	a := answer{Outcome: driver.Outcome{Now: driver.InstantOf(now).Time()}, sent: now}
	assert.False(t, l.began(h, a, now), "the whole lease is left")
	assert.True(t, l.began(h, a, now.Add(1100*time.Millisecond)), "the call was slow")
	a.Now = a.Now.Add(2 * time.Second)
	assert.True(t, l.began(h, a, now), "the store's clock was set forward")
	a.Lease = driver.InstantOf(a.Now) + 8000
	assert.False(t, l.began(h, a, now), "the begin call renewed the lease")
	assert.Equal(t, now.Add(8*time.Second), h.until)
	l.remove(h)
	assert.Empty(t, l.held)
}

// A message begins while its lease is being extended. The store has made the extension first, with
// the shorter lease, and the answer to the extension arrives last.
func TestExtensionDoesNotShortenTheLeaseOfABegin(t *testing.T) {
	t.Parallel()
	now := time.Now()
	l := leases{visibility: 8 * time.Second, hold: 2 * time.Second, held: make(map[*heldMessage]struct{})}
	h := &heldMessage{state: heldReady, record: driver.Record{ID: "m", Token: 7, LeaseEnd: driver.InstantOf(now) + 1000}}
	l.add(h, now, driver.InstantOf(now).Time())
	assert.Equal(t, driver.Change{ID: "m", Token: 7, Delay: 2 * time.Second, Begun: 8 * time.Second}, l.extend(h))
	assert.True(t, h.extending)
	end := func(length driver.Instant) answer {
		return answer{Outcome: driver.Outcome{Now: driver.InstantOf(now).Time(), Lease: driver.InstantOf(now) + length}, sent: now}
	}
	assert.False(t, l.began(h, end(8000), now))
	l.extended(h, end(2000))
	assert.Equal(t, now.Add(8*time.Second), h.until)
	l.extended(h, end(9000))
	assert.Equal(t, now.Add(9*time.Second), h.until)
}
