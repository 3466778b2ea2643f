package payment_test

import (
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/examples/testing/payment"
)

func TestUnpaidOrderInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw, err := timingwheel.New(timingwheel.Options{}) // inside: it belongs to this bubble
		require.NoError(t, err)
		defer tw.Stop() // before the bubble ends

		s := payment.New(tw, nil)
		require.NoError(t, s.Place("A1"))
		time.Sleep(payment.Timeout - time.Millisecond) // returns immediately
		assert.Equal(t, payment.Reminded, s.State("A1"))

		time.Sleep(2 * time.Millisecond) // the deadline, and a tick of the wheel
		synctest.Wait()                  // for the callback, which runs on another goroutine
		assert.Equal(t, payment.Cancelled, s.State("A1"))
		assert.ErrorIs(t, s.Pay("A1"), payment.ErrTooLate)
	})
}

func TestPaidOrderInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw, err := timingwheel.New(timingwheel.Options{})
		require.NoError(t, err)
		defer tw.Stop()

		s := payment.New(tw, func(e payment.Event) { t.Errorf("unexpected: %v", e) })
		require.NoError(t, s.Place("A1"))
		require.NoError(t, s.Pay("A1"))
		assert.Zero(t, tw.Len()) // nothing is armed, so nothing can fire

		time.Sleep(24 * time.Hour) // and nothing has
		synctest.Wait()
		assert.Equal(t, payment.Paid, s.State("A1"))
	})
}

func TestIdleConnectionInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw, err := timingwheel.New(timingwheel.Options{})
		require.NoError(t, err)
		defer tw.Stop()
		client, server := net.Pipe() // not a socket: a goroutine that waits for one keeps the clock of the bubble still
		defer client.Close()

		timeout := tw.AfterFunc(time.Hour, func() { server.Close() })
		go func() {
			buf := make([]byte, 1)
			for {
				if _, err := server.Read(buf); err != nil {
					return
				}
				timeout.Reschedule(time.Hour)
			}
		}()

		for range 3 {
			time.Sleep(59 * time.Minute)
			_, err = client.Write([]byte{1})
			require.NoError(t, err)
			synctest.Wait() // until the server has seen it
		}
		time.Sleep(time.Hour + time.Millisecond)
		synctest.Wait()
		_, err = client.Write([]byte{1})
		assert.Error(t, err)
	})
}

func TestOrderOfCallbacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw, err := timingwheel.New(timingwheel.Options{})
		require.NoError(t, err)
		defer tw.Stop()

		var mu sync.Mutex
		var cancelled []string
		s := payment.New(tw, func(e payment.Event) {
			mu.Lock() // callbacks run at the same time
			defer mu.Unlock()
			if e.State == payment.Cancelled {
				cancelled = append(cancelled, e.Order)
			}
		})
		for _, id := range []string{"A1", "A2", "A3"} {
			require.NoError(t, s.Place(id))
		}
		time.Sleep(time.Hour)
		synctest.Wait()

		mu.Lock()
		defer mu.Unlock()
		slices.Sort(cancelled) // which of them comes first is not promised
		assert.Equal(t, []string{"A1", "A2", "A3"}, cancelled)
	})
}

func TestNothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw, err := timingwheel.New(timingwheel.Options{})
		require.NoError(t, err)
		s := payment.New(tw, func(payment.Event) { time.Sleep(time.Second) }) // a slow callback
		require.NoError(t, s.Place("A1"))
		time.Sleep(payment.Reminder + 2*time.Millisecond)

		// Stop would not wait for the callback; Shutdown does.
		require.NoError(t, tw.Shutdown(t.Context()))
		assert.Zero(t, tw.Stats().Running)
		assert.Zero(t, tw.Len())
	}) // fails, and shows the stacks, if a goroutine of the bubble is left that waits for ever
}
