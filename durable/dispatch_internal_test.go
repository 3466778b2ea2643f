package durable

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Messages that are ready and go before a taker comes leave nothing behind, and those that stay keep
// their order.
func TestReadyMessagesThatAreGone(t *testing.T) {
	t.Parallel()
	opts := ConsumerOptions{Prefetch: 1 << 20}
	d := &dispatcher{ctx: t.Context(), opts: &opts}
	d.admission.opts = &opts
	d.leases.held = make(map[*held]struct{})
	part := &consumerPart{share: share{wake: func() {}}}
	var stay []*held
	for i := range 10_000 {
		h := &held{state: heldReady, part: part}
		d.leases.held[h] = struct{}{}
		d.admission.claimed(&part.share, 0)
		d.ready.push(h)
		if i%1000 == 0 {
			stay = append(stay, h)
			continue
		}
		require.True(t, d.forget(h))
		require.LessOrEqual(t, d.ready.len(), 64)
	}
	for _, want := range stay {
		h := d.ready.pop()
		for h.state != heldReady {
			h = d.ready.pop()
		}
		require.Same(t, want, h)
	}
}

// A process stands still between taking a message and handing it to its receiver, for longer than the
// lease. The receiver does not get it, and the loss is reported once, whether the keeper of the
// leases has noticed it before or not.
func TestMessageIsNotHandedOutAfterItsLease(t *testing.T) {
	t.Parallel()
	for name, renews := range map[string]bool{"unnoticed": false, "noticed by the renewal": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var told []error
			q := &Queue{parts: []*part{{}}}
			q.options.Logger = slog.New(slog.DiscardHandler)
			q.lateness = new(lateness)
			q.options.OnError = func(err error) { told = append(told, err) }
			d := &dispatcher{q: q, ctx: t.Context()}
			d.leases = leases{visibility: time.Second, hold: time.Second, held: make(map[*held]struct{})}
			h := &held{record: driver.Record{ID: "m", Body: (&content{}).encode()}, part: &consumerPart{part: q.parts[0]}, state: heldTaken}
			d.leases.held[h] = struct{}{}
			h.until = time.Now()
			if renews {
				d.renew(time.Now())
			}
			require.Nil(t, d.delivery(h, false))
			require.Equal(t, heldGone, h.state)
			require.Len(t, told, 1)
			require.ErrorIs(t, told[0], ErrLeaseLost)
		})
	}
}
