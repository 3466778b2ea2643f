package durable

import (
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// serverClock estimates a lower bound of a store's clock from this process's monotonic clock. A
// reply contains a reading of the store's clock that was made before the reply arrived. At any
// later time the store's clock shows at least that reading plus the elapsed time. The bound is the
// highest that follows from the recent readings.
//
// If the store's clock is set back, older readings yield too high a bound. They are discarded when
// a reading contradicts them, and otherwise a few seconds after newer readings. Until then the
// store refuses to begin messages too early.
//
// A call without a token must take effect before an instant of the store's clock. If the store
// rejects a call, it returns an instant: its clock, or an earlier reading if its clock was set
// back. Such an instant is not a bound, so it is stored separately.
type serverClock struct {
	mu      sync.Mutex
	epochs  [2]clockEpoch // the current one and the previous one
	started time.Time
	refusal clockEpoch // the instant of the last rejection
}

// clockEpoch is the highest bound from the readings of a few seconds.
type clockEpoch struct {
	known bool
	ahead time.Duration // the store's time since 1970, minus this process's since processStart
}

const clockEpochLength = 5 * time.Second

// processStart is the origin of the process's monotonic clock.
var processStart = time.Now()

// observe records a reading of the store's clock that has just arrived, with the reply to a call
// that began at sent. If the clock was set back, it returns by how much.
func (c *serverClock) observe(reading, sent time.Time) (back time.Duration) {
	now := time.Now()
	by := time.Duration(reading.UnixNano()) - now.Sub(processStart)
	c.mu.Lock()
	defer c.mu.Unlock()
	if promised, known := c.ahead(); known && promised+sent.Sub(processStart) > time.Duration(reading.UnixNano()) {
		back = promised + sent.Sub(processStart) - time.Duration(reading.UnixNano())
		c.epochs = [2]clockEpoch{}
		c.started = time.Time{}
	}
	if c.started.IsZero() || now.Sub(c.started) > clockEpochLength {
		c.epochs[1], c.epochs[0] = c.epochs[0], clockEpoch{}
		c.started = now
	}
	if e := &c.epochs[0]; !e.known || by > e.ahead {
		*e = clockEpoch{known: true, ahead: by}
	}
	return back
}

// until returns an upper bound of the time until the store's clock reaches an instant. The result
// is 0 or less if the clock has reached the instant, and 0 before the first reading.
func (c *serverClock) until(i driver.Instant) time.Duration {
	c.mu.Lock()
	ahead, known := c.ahead()
	c.mu.Unlock()
	if !known {
		return 0
	}
	return time.Duration(min(i, maxNanoInstant))*time.Millisecond - ahead - time.Since(processStart)
}

// now returns the lower bound of the store's clock. Before the first reading it returns this
// process's clock.
func (c *serverClock) now() time.Time {
	c.mu.Lock()
	ahead, known := c.ahead()
	c.mu.Unlock()
	if !known {
		return time.Now()
	}
	return time.Unix(0, int64(ahead+time.Since(processStart)))
}

// fresh reports whether there is a reading of the last seconds.
func (c *serverClock) fresh() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.started.IsZero() && time.Since(c.started) < 2*clockEpochLength
}

// refused records the instant that the store returned in a rejection.
func (c *serverClock) refused(named driver.Instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refusal = clockEpoch{known: true, ahead: time.Duration(named)*time.Millisecond - time.Since(processStart)}
}

// callTime returns the base for the deadline of a call without a token: the instant of the last
// rejection plus the elapsed time, or now.
func (c *serverClock) callTime() driver.Instant {
	c.mu.Lock()
	refusal := c.refusal
	c.mu.Unlock()
	if !refusal.known {
		return driver.InstantOf(c.now())
	}
	return driver.InstantOf(time.Unix(0, int64(refusal.ahead+time.Since(processStart))))
}

// ahead returns the highest bound, or false before the first reading. mu is held.
func (c *serverClock) ahead() (time.Duration, bool) {
	e := c.epochs[0]
	if o := c.epochs[1]; o.known && (!e.known || o.ahead > e.ahead) {
		e = o
	}
	return e.ahead, e.known
}

// maxNanoInstant is the last instant that fits into nanoseconds since 1970, minus a year for sums.
const maxNanoInstant = driver.Instant((1<<63-1)/int64(time.Millisecond)) - 365*24*3600*1000
