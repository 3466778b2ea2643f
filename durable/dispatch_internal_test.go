package durable

import (
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
			q := &Queue{parts: []*part{{}}}
			q.options.Logger = slog.New(slog.DiscardHandler)
			q.lateness = new(lateness)
			q.options.OnError = func(err error) { reported = append(reported, err) }
			d := &dispatcher{q: q, ctx: t.Context()}
			d.admission.handover = &d.handover
			d.leases = leases{visibility: time.Second, hold: time.Second, held: make(map[*heldMessage]struct{})}
			h := &heldMessage{record: driver.Record{ID: "m", Body: (&content{}).encode()}, part: &consumerPart{part: q.parts[0]}, state: heldTaken}
			d.leases.held[h] = struct{}{}
			h.until = time.Now()
			if renews {
				d.renew(time.Now())
			}
			require.Nil(t, newDelivery(d, h, false))
			require.Equal(t, heldGone, h.state)
			require.Len(t, reported, 1)
			require.ErrorIs(t, reported[0], ErrLeaseLost)
		})
	}
}

// The next step depends on the answer to the begin call, on whether the message was dropped in the
// meantime, and on whether the consumer has ended.
func TestAnswerToBeginDeterminesTheNextStep(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_000_000)
	at := func(status driver.Status, due time.Duration) answer {
		return answer{Outcome: driver.Outcome{Status: status, Now: now, Due: driver.InstantOf(now.Add(due))}}
	}
	for _, test := range []struct {
		what   string
		state  heldState
		answer answer
		err    error
		ended  bool
		next   beginResult
		wait   time.Duration
	}{
		{"due now", heldBeginning, at(driver.StatusDone, 0), nil, false, beginDeliver, 0},
		{"due soon", heldBeginning, at(driver.StatusDone, 2*time.Millisecond), nil, false, beginWait, 2 * time.Millisecond},
		{"due now, but the consumer ends", heldBeginning, at(driver.StatusDone, 0), nil, true, beginDeliver, 0},
		{"dropped", heldGone, at(driver.StatusDone, 0), nil, false, beginRelease, 0},
		{"clock set back", heldBeginning, at(driver.StatusEarly, time.Minute), nil, false, beginRepeat, time.Minute - beginLead},
		{"clock set back by little", heldBeginning, at(driver.StatusEarly, beginLead), nil, false, beginRepeat, time.Millisecond},
		{"clock set back, and the consumer ends", heldBeginning, at(driver.StatusEarly, time.Minute), nil, true, beginRelease, 0},
		{"clock set back, and dropped", heldGone, at(driver.StatusEarly, time.Minute), nil, false, beginForget, 0},
		{"cancelled", heldBeginning, at(driver.StatusNotFound, 0), nil, false, beginForget, 0},
		{"no answer", heldBeginning, answer{}, ErrUnavailable, false, beginForget, 0},
		{"no answer, and dropped", heldGone, answer{}, ErrUnavailable, true, beginForget, 0},
	} {
		next, wait := (&heldMessage{state: test.state}).beginResult(test.answer, test.err, test.ended)
		require.Equal(t, test.next, next, test.what)
		require.Equal(t, test.wait, wait, test.what)
	}
}

// A wait ends when all pending operations are done. Later operations do not matter.
func TestPendingIsOverWhenAllIsDone(t *testing.T) {
	t.Parallel()
	var p pending
	closed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	p.add()
	p.add()
	first, second := p.over(), p.over()
	p.done()
	require.False(t, closed(first))
	p.done()
	require.True(t, closed(first))
	require.True(t, closed(second))
	p.add()
	require.False(t, closed(p.over()))
}
