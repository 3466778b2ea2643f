package payment_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/examples/testing/payment"
)

var start = time.Date(2030, time.March, 1, 9, 0, 0, 0, time.UTC)

// newManual returns a wheel whose clock stands at start until the test moves it.
func newManual(t *testing.T) *timingwheel.TimingWheel {
	t.Helper()
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: start})
	require.NoError(t, err)
	t.Cleanup(tw.Stop)
	return tw
}

func TestUnpaidOrder(t *testing.T) {
	t.Parallel()
	tw := newManual(t)
	s := payment.New(tw, nil)
	require.NoError(t, s.Place("A1"))

	tw.Advance(start.Add(payment.Timeout - 1)) // a nanosecond before
	assert.Equal(t, payment.Reminded, s.State("A1"))

	tw.Advance(start.Add(payment.Timeout)) // returns when the callback has run
	assert.Equal(t, payment.Cancelled, s.State("A1"))
}

func TestManyOrdersForAnHour(t *testing.T) {
	t.Parallel()
	tw := newManual(t)
	var events []payment.Event // no lock: callbacks run in Advance
	s := payment.New(tw, func(e payment.Event) { events = append(events, e) })
	for i := range 1000 {
		arrival := time.Duration(i) * 1800 * time.Millisecond // half an hour of them
		tw.AfterFunc(arrival, func() { assert.NoError(t, s.Place(fmt.Sprint(i))) })
	}

	for next, ok := tw.Next(); ok; next, ok = tw.Next() { // until nothing is pending
		tw.Advance(next)
	}

	require.Len(t, events, 2000)
	assert.True(t, tw.Now().Before(start.Add(time.Hour)))
	assert.True(t, slices.IsSortedFunc(events, func(a, b payment.Event) int { return a.At.Compare(b.At) }))
	assert.Equal(t, payment.Event{Order: "0", State: payment.Reminded, At: start.Add(payment.Reminder)}, events[0])
	assert.Equal(t, "999", events[len(events)-1].Order)
}

func TestPaidOrderIsNotCancelled(t *testing.T) {
	t.Parallel()
	tw := newManual(t)
	s := payment.New(tw, func(e payment.Event) { t.Errorf("unexpected: %v", e) })
	require.NoError(t, s.Place("A1"))
	assert.Equal(t, 2, tw.Len()) // the test would notice a timer that was never armed

	require.NoError(t, s.Pay("A1"))
	assert.Zero(t, tw.Len())
	_, ok := tw.Next()
	assert.False(t, ok)
	assert.Zero(t, tw.Advance(start.Add(24*time.Hour))) // callbacks that have run
	assert.Equal(t, payment.Paid, s.State("A1"))
}

func TestDeadlineOfAContext(t *testing.T) {
	t.Parallel()
	tw := newManual(t)
	ctx, cancel := tw.WithTimeout(context.Background(), time.Hour)
	defer cancel()

	tw.Advance(start.Add(time.Hour - 1))
	assert.NoError(t, ctx.Err())
	tw.Advance(start.Add(time.Hour))
	assert.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
}

func TestPaymentAgainstTimeout(t *testing.T) {
	t.Parallel()
	for range 200 {
		tw := newManual(t)
		s := payment.New(tw, nil)
		require.NoError(t, s.Place("A1"))
		tw.Advance(start.Add(payment.Reminder))

		var err error
		var paying sync.WaitGroup
		paying.Go(func() { err = s.Pay("A1") }) // at the same moment as the timeout
		tw.Advance(start.Add(payment.Timeout))
		paying.Wait()

		if err == nil {
			assert.Equal(t, payment.Paid, s.State("A1"))
		} else {
			assert.Equal(t, payment.Cancelled, s.State("A1"))
		}
	}
}

func TestOrdersByHand(t *testing.T) {
	t.Parallel()
	tw := newManual(t)
	var cancelled []string
	s := payment.New(tw, func(e payment.Event) {
		if e.State == payment.Cancelled {
			cancelled = append(cancelled, e.Order)
		}
	})
	for _, id := range []string{"A1", "A2", "A3"} {
		require.NoError(t, s.Place(id))
	}
	tw.Advance(start.Add(time.Hour))
	assert.Equal(t, []string{"A1", "A2", "A3"}, cancelled) // one shard: first armed, first run
}

func TestErrors(t *testing.T) {
	t.Parallel()
	s := payment.New(newManual(t), nil)
	assert.ErrorContains(t, s.Pay("A1"), `no order "A1"`)
	assert.Empty(t, s.State("A1"))
	require.NoError(t, s.Place("A1"))
	assert.ErrorContains(t, s.Place("A1"), `order "A1" exists`)
	require.NoError(t, s.Pay("A1"))
	assert.ErrorIs(t, s.Pay("A1"), payment.ErrTooLate)
}
