package durable

import (
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// serverClock tells what a store's clock has reached at least, by the monotonic clock of this process. A reading of the store's clock
// that comes with a reply was made before the reply arrived, so at any later moment the store's clock shows at least
// that reading plus the time since. The latest of what the last readings promise is the best.
//
// Where the store's clock is set back, what older readings promise is wrong. They are forgotten when a reading contradicts them, and after a
// few seconds in any case. Begin, which the store refuses long before the due time, makes sure of it.
type serverClock struct {
	mu      sync.Mutex
	epochs  [2]clockEpoch // the running one, and the one before
	started time.Time
}

// clockEpoch is what the readings of some seconds promise.
type clockEpoch struct {
	known bool
	ahead time.Duration // of the store's clock, as time since 1970, before the process's monotonic clock since start
}

const clockEpochLength = 5 * time.Second

// processStart is where the monotonic clock of the process begins.
var processStart = time.Now()

// observe takes in a reading of the store's clock that has just arrived, with the reply to a call that began at sent.
func (c *serverClock) observe(reading, sent time.Time) {
	now := time.Now()
	by := time.Duration(reading.UnixNano()) - now.Sub(processStart)
	c.mu.Lock()
	defer c.mu.Unlock()
	if promised, known := c.ahead(); known && promised+sent.Sub(processStart) > time.Duration(reading.UnixNano()) {
		c.epochs = [2]clockEpoch{} // it has been set back
		c.started = time.Time{}
	}
	if c.started.IsZero() || now.Sub(c.started) > clockEpochLength {
		c.epochs[1], c.epochs[0] = c.epochs[0], clockEpoch{}
		c.started = now
	}
	if e := &c.epochs[0]; !e.known || by > e.ahead {
		*e = clockEpoch{known: true, ahead: by}
	}
}

// until is how long it takes at most until the store's clock reaches an instant; 0 or less if it has. Where no reading has come, 0.
func (c *serverClock) until(i driver.Instant) time.Duration {
	c.mu.Lock()
	ahead, known := c.ahead()
	c.mu.Unlock()
	if !known {
		return 0
	}
	return saturatedSub(i, ahead+time.Since(processStart))
}

// now is what the store's clock shows at least.
func (c *serverClock) now() time.Time {
	c.mu.Lock()
	ahead, known := c.ahead()
	c.mu.Unlock()
	if !known {
		return time.Now()
	}
	return time.Unix(0, int64(ahead+time.Since(processStart)))
}

func (c *serverClock) ahead() (time.Duration, bool) {
	e := c.epochs[0]
	if o := c.epochs[1]; o.known && (!e.known || o.ahead > e.ahead) {
		e = o
	}
	return e.ahead, e.known
}

// saturatedSub is the time from now, since 1970, to an instant, at most 290 years.
func saturatedSub(i driver.Instant, now time.Duration) time.Duration {
	if i > maxNanoInstant {
		i = maxNanoInstant
	}
	return time.Duration(i)*time.Millisecond - now
}

// maxNanoInstant is the last instant that nanoseconds since 1970 can tell, less a year for sums.
const maxNanoInstant = driver.Instant((1<<63-1)/int64(time.Millisecond)) - 365*24*3600*1000
