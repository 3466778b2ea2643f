package durable

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// A process is suspended for longer than the lease, after it has taken a message and before it
// passes the message to its receiver. The receiver does not get the message, and the lost lease is
// reported once, whether or not the renewal noticed it first.
func TestMessageIsNotDeliveredAfterItsLease(t *testing.T) {
	t.Parallel()
	for name, renews := range map[string]bool{"unnoticed": false, "noticed by the renewal": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var reported []error
			q := &Queue{}
			q.parts = []*part{{q: q}}
			released := make(chan struct{})
			releases := &q.parts[0].changes[driver.OpRelease]
			releases.key = func(c driver.Change) string { return c.ID }
			releases.flush = func(context.Context, []driver.Change) ([]answer, error) {
				close(released)
				return make([]answer, 1), nil
			}
			q.options.Logger = slog.New(slog.DiscardHandler)
			q.lateness = new(lateness)
			q.options.OnError = func(err error) { reported = append(reported, err) }
			d := &dispatcher{q: q, ctx: t.Context(), held: make(map[*heldMessage]struct{})}
			d.opts = &ConsumerOptions{Visibility: time.Second, Membership: time.Second}
			d.admission.handover = &d.handover
			h := &heldMessage{record: driver.Record{ID: "m", Body: (&content{}).encode()}, part: &consumerPart{part: q.parts[0], d: d}, state: heldTaken}
			d.held[h] = struct{}{}
			h.until = time.Now()
			if renews {
				d.renew(time.Now())
			}
			require.Nil(t, newDelivery(d, h, nil))
			require.Equal(t, heldGone, h.state)
			require.Len(t, reported, 1)
			require.ErrorIs(t, reported[0], ErrLeaseLost)
			<-released
		})
	}
}
