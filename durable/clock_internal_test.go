package durable

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// The estimate is never later than the server's clock, and as close as the fastest reply of the
// last seconds permits.
func TestServerClockIsALowerBound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c serverClock
		assert.LessOrEqual(t, c.until(driver.Never), 292*365*24*time.Hour)
		server := func() time.Time { return time.Now().Add(5 * time.Minute) }
		for i := range 100 {
			sent, reading := time.Now(), server()
			time.Sleep(time.Duration(1+i%7) * 10 * time.Millisecond) // until the reply arrives
			c.observe(reading, sent)
			assert.False(t, c.now().After(server()))
			if i > 7 {
				assert.Equal(t, 10*time.Millisecond, server().Sub(c.now()), "the fastest reply took 10 ms")
			}
			time.Sleep(300 * time.Millisecond)
		}
		due := driver.InstantOf(server().Add(time.Second))
		assert.InDelta(t, 1.010, c.until(due).Seconds(), 0.002)
		assert.Negative(t, c.until(driver.InstantOf(server().Add(-time.Second))))

		for _, back := range []time.Duration{-5 * time.Minute, -5*time.Minute - 20*time.Millisecond} {
			sent, reading := time.Now(), time.Now().Add(back)
			time.Sleep(10 * time.Millisecond)
			c.observe(reading, sent)
			assert.Equal(t, 10*time.Millisecond, time.Now().Add(back).Sub(c.now()), "older readings are discarded")
		}
	})
}

// Readings are discarded after a few seconds, even if the clock was set back by so little that no
// reading contradicts them.
func TestServerClockDiscardsOldReadings(t *testing.T) {
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

// The next call starts from the instant that a rejection returned, whether this process's estimate
// was too late or too early. The instant is not a reading of the clock: a store whose clock was set
// back returns an instant that the clock no longer shows.
func TestRejectionChangesTheCallTimeButNotTheClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c serverClock
		start := time.Now()
		assert.Equal(t, driver.InstantOf(start), c.callTime(), "no reading is known")
		c.observe(start.Add(time.Hour), start)
		assert.Equal(t, driver.InstantOf(start.Add(time.Hour)), c.callTime())
		for _, named := range []time.Duration{-3 * time.Hour, 3 * time.Hour} {
			c.refused(driver.InstantOf(time.Now().Add(named)))
			time.Sleep(time.Second)
			assert.Equal(t, driver.InstantOf(time.Now().Add(named)), c.callTime())
			assert.True(t, time.Now().Add(time.Hour).Equal(c.now()), "the estimate depends only on readings")
		}
	})
}
