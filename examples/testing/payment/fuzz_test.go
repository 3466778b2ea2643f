package payment_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/examples/testing/payment"
)

func FuzzOrders(f *testing.F) {
	f.Add([]byte{0x40, 25, 0x41, 0x80, 35, 0x81}) // places A, waits, places B, pays A, waits, pays B too late
	f.Fuzz(func(t *testing.T, steps []byte) {
		tw := newManual(t)
		s := payment.New(tw, nil)
		placed := make(map[string]time.Time) // the model: when each order was placed
		paid := make(map[string]bool)
		for _, b := range steps {
			id := string('A' + rune(b%4))
			now := tw.Now()
			at, ok := placed[id]
			switch {
			case b < 0x40:
				tw.Advance(now.Add(time.Duration(b) * time.Minute))
			case b < 0x80:
				require.Equal(t, ok, s.Place(id) != nil)
				if !ok {
					placed[id] = now
				}
			default:
				mayPay := ok && !paid[id] && now.Before(at.Add(payment.Timeout))
				require.Equal(t, mayPay, s.Pay(id) == nil)
				paid[id] = paid[id] || mayPay
			}
			for id, at := range placed {
				assert.Equal(t, want(tw.Now().Sub(at), paid[id]), s.State(id), "order %s after %v", id, tw.Now().Sub(at))
			}
		}
	})
}

// want is the state of an order of that age.
func want(age time.Duration, paid bool) payment.State {
	switch {
	case paid:
		return payment.Paid
	case age >= payment.Timeout:
		return payment.Cancelled
	case age >= payment.Reminder:
		return payment.Reminded
	default:
		return payment.Waiting
	}
}
