package durable

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// What the readings of some seconds ago have promised is forgotten, also where a clock was set back by so little that no reading contradicts them.
func TestServerClockForgets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c serverClock
		back := time.Duration(0)
		server := func() time.Time { return time.Now().Add(-back) }
		ask := func(trip time.Duration) {
			sent := time.Now()
			time.Sleep(trip)
			reading := server()
			time.Sleep(trip)
			c.observe(reading, sent)
		}
		ask(time.Millisecond)
		back = 20 * time.Millisecond
		for range 30 {
			ask(50 * time.Millisecond)
			time.Sleep(time.Second)
		}
		assert.False(t, c.now().After(server()))
	})
}
