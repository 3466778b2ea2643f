package wheelnet

import (
	"math"
	"net"
	"sync"
	"sync/atomic" // its 64-bit types are aligned on 32-bit platforms
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/lasting"
)

// deadlines keep the deadlines of a connection with one timer of a wheel. The inner connection has
// no deadline until one of them has passed.
//
// Each direction has a deadline and a gate. A call that sets a deadline stores the deadline and
// loads the gate. If the deadline is not earlier than the gate, the call is over, because the timer
// will look at the deadline in time. Otherwise the call locks mu and settles the direction: it shuts
// the gate, loads the deadline, acts on it, and opens the gate at the time of the timer. The
// callback of the timer settles both directions.
//
//	N1  While the gate of a direction is open, the inner connection has no deadline there. Either
//	    the gate is none, or a timer is armed for no later than the gate.
//	N2  A call stores the deadline before it loads the gate, and settle shuts the gate before it
//	    loads the deadline. Either the call finds the gate shut, or settle finds the deadline.
//	N3  The gate is shut in a direction that is cut, while the deadline of the direction is earlier
//	    than the timer and a callback is under way, and for ever after the connection is closed or
//	    its deadlines were handed over.
//
// The Stop of the wheel leaves the timer to the runtime. When the timer has fired, or when it would
// have to be armed anew, the inner connection gets the deadlines of both directions and all later
// ones: they are handed over.
type deadlines struct {
	conn   net.Conn // the inner connection
	timers *lasting.Timers[timingwheel.Timer]

	directions [2]direction // reads and writes

	mu     sync.Mutex
	timer  timingwheel.Timer
	armed  int64   // the reading that timer is armed for, or none
	look   func()  // expire, since the first time that timer was armed
	cut    [2]bool // by direction: the inner connection's deadline is past
	handed bool
	closed bool
}

type direction struct {
	deadline atomic.Int64 // a reading of the clock, negative if it lies before the wheel, or none
	gate     atomic.Int64 // a reading of the clock, none or shut
}

// Indexes of directions.
const (
	reads = iota
	writes
)

const (
	none int64 = math.MaxInt64 - 1 // the deadline of a direction without one
	shut int64 = math.MaxInt64     // the gate that no deadline passes
)

// past is a deadline that makes all calls of a connection return at once.
var past = time.Unix(1, 0)

// distantPast is in seconds since 1970. Programs such as net/http use a deadline up to it to end a
// call that is under way. It is no later, because the clock of a machine may start in 1970.
const distantPast = 1

// timersOf returns the lasting timers of a wheel.
func timersOf(tw *timingwheel.TimingWheel) *lasting.Timers[timingwheel.Timer] {
	return lasting.Of(tw).(*lasting.Timers[timingwheel.Timer])
}

// init prepares the deadlines of a connection that has none. If handed is true, the inner
// connection keeps them.
func (c *deadlines) init(inner net.Conn, tw *timingwheel.TimingWheel, handed bool) {
	c.conn, c.timers, c.armed, c.handed = inner, timersOf(tw), none, handed
	gate := none
	if handed {
		gate = shut
	}
	for i := range c.directions {
		c.directions[i].deadline.Store(none)
		c.directions[i].gate.Store(gate)
	}
}

// SetDeadline implements net.Conn.
func (c *deadlines) SetDeadline(t time.Time) error {
	at := c.reading(t)
	err := c.set(reads, at)
	if werr := c.set(writes, at); err == nil {
		err = werr
	}
	return err
}

// SetReadDeadline implements net.Conn.
func (c *deadlines) SetReadDeadline(t time.Time) error { return c.set(reads, c.reading(t)) }

// SetWriteDeadline implements net.Conn.
func (c *deadlines) SetWriteDeadline(t time.Time) error { return c.set(writes, c.reading(t)) }

// Close implements net.Conn. It cancels the timer.
func (c *deadlines) Close() error {
	c.mu.Lock()
	c.closed = true
	c.directions[reads].gate.Store(shut)
	c.directions[writes].gate.Store(shut)
	if c.armed != none {
		c.timers.Cancel(c.timer)
		c.timer, c.armed = timingwheel.Timer{}, none
	}
	c.mu.Unlock()
	return c.conn.Close()
}

// reading converts a deadline to a reading of the clock.
func (c *deadlines) reading(t time.Time) int64 {
	if t.Unix() <= distantPast {
		if t.IsZero() {
			return none
		}
		return 0 // without reading the clock, which other dates need
	}
	at, _ := c.timers.Clock.Signed(t)
	return min(at, none)
}

// set sets a deadline.
func (c *deadlines) set(i int, at int64) error {
	d := &c.directions[i]
	d.deadline.Store(at)
	if at >= d.gate.Load() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.settle(i)
}

// settle acts on the deadline of a direction. It needs neither the clock nor the timer if the
// deadline lies before the wheel. mu is held.
func (c *deadlines) settle(i int) error {
	d := &c.directions[i]
	d.gate.Store(shut)
	at := d.deadline.Load()
	switch {
	case c.closed || c.handed:
		return c.setInner(i, c.time(at))
	case at <= 0 || at != none && at <= c.timers.Clock.Read():
		if c.cut[i] {
			return nil
		}
		err := c.setInner(i, past)
		c.cut[i] = err == nil
		return err
	}
	if c.cut[i] {
		if err := c.setInner(i, time.Time{}); err != nil {
			return err
		}
		c.cut[i] = false
	}
	if at < c.armed && !c.arm(at) {
		return nil
	}
	d.gate.Store(c.armed)
	return nil
}

// arm makes at the time of the timer. It returns false if gates have to stay shut. mu is held.
func (c *deadlines) arm(at int64) bool {
	if c.armed != none && !c.timers.Cancel(c.timer) {
		return false // the callback waits for mu
	}
	if c.look == nil {
		c.look = c.expire
	}
	c.timer, c.armed = c.timers.Arm(at, c.look), at
	if c.timer == (timingwheel.Timer{}) { // the wheel is stopped
		c.armed, c.handed = none, true
		c.settle(reads)
		c.settle(writes)
		return false
	}
	return true
}

// expire is the callback of the timer.
func (c *deadlines) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.timers.Cancel(c.timer) // a stopped wheel forgets it
	c.timer, c.armed = timingwheel.Timer{}, none
	first := reads // the earlier one, so that the timer is armed once
	if c.directions[writes].deadline.Load() < c.directions[reads].deadline.Load() {
		first = writes
	}
	c.settle(first)
	c.settle(1 - first)
}

// setInner sets the deadline of the inner connection.
func (c *deadlines) setInner(i int, t time.Time) error {
	if i == reads {
		return c.conn.SetReadDeadline(t)
	}
	return c.conn.SetWriteDeadline(t)
}

// time converts a reading of the clock to a deadline.
func (c *deadlines) time(at int64) time.Time {
	if at == none {
		return time.Time{}
	}
	return c.timers.Clock.TimeAt(at)
}
