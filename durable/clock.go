package durable

import (
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// serverClock is a lower bound of a store's clock, by the monotonic clock of this process. A
// reply brings a reading of the store's clock that was made before the reply arrived. At any later
// moment the store's clock shows at least that reading plus the time since. The latest promise of
// all recent readings is the best one.
//
// If the store's clock is set back, older readings promise too much. They are forgotten when a
// reading contradicts them, and in any case a few seconds after newer readings have come. Meanwhile
// the store refuses to begin messages before their time.
//
// A call without a token must take place before an instant of the store's clock. If the store
// refuses a call, it names an instant that is its clock's or, if that was set back, one that the
// clock has shown before. Such an instant promises nothing, so it is kept apart.
type serverClock struct {
	mu      sync.Mutex
	epochs  [2]clockEpoch // the running one, and the one before
	started time.Time
	refusal clockEpoch // the instant that the last refusal named
}

// clockEpoch is the latest promise of the readings of some seconds.
type clockEpoch struct {
	known bool
	ahead time.Duration // the store's clock since 1970, minus this process's since processStart
}

const clockEpochLength = 5 * time.Second

// processStart is where the monotonic clock of the process begins.
var processStart = time.Now()

// observe takes in a reading of the store's clock that has just arrived, with the reply to a call
// that began at sent.
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

// until returns how long it takes at most until the store's clock reaches an instant. The result is
// 0 or less if the clock has reached the instant, and 0 before the first reading.
func (c *serverClock) until(i driver.Instant) time.Duration {
	c.mu.Lock()
	ahead, known := c.ahead()
	c.mu.Unlock()
	if !known {
		return 0
	}
	return saturatedSub(i, ahead+time.Since(processStart))
}

// now returns the time that the store's clock shows at least. Before the first reading it returns
// the time of this process.
func (c *serverClock) now() time.Time {
	c.mu.Lock()
	ahead, known := c.ahead()
	c.mu.Unlock()
	if !known {
		return time.Now()
	}
	return time.Unix(0, int64(ahead+time.Since(processStart)))
}

// refused takes in the instant that the store has named in a refusal.
func (c *serverClock) refused(named driver.Instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refusal = clockEpoch{known: true, ahead: time.Duration(named)*time.Millisecond - time.Since(processStart)}
}

// callTime returns the instant from which the time of a call without a token is counted: the one
// that the last refusal named, moved on, or else now.
func (c *serverClock) callTime() driver.Instant {
	c.mu.Lock()
	refusal := c.refusal
	c.mu.Unlock()
	if !refusal.known {
		return driver.InstantOf(c.now())
	}
	return driver.InstantOf(time.Unix(0, int64(refusal.ahead+time.Since(processStart))))
}

// ahead returns the latest promise, or false before the first reading. mu is held.
func (c *serverClock) ahead() (time.Duration, bool) {
	e := c.epochs[0]
	if o := c.epochs[1]; o.known && (!e.known || o.ahead > e.ahead) {
		e = o
	}
	return e.ahead, e.known
}

// saturatedSub returns the time from now to an instant, at most 290 years. now counts from 1970.
func saturatedSub(i driver.Instant, now time.Duration) time.Duration {
	if i > maxNanoInstant {
		i = maxNanoInstant
	}
	return time.Duration(i)*time.Millisecond - now
}

// maxNanoInstant is the last instant that nanoseconds since 1970 can tell, less a year for sums.
const maxNanoInstant = driver.Instant((1<<63-1)/int64(time.Millisecond)) - 365*24*3600*1000
