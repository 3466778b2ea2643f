package wheelnet

import (
	"math"
	"net"
	"sync"
	"sync/atomic" // its 64-bit types are aligned on 32-bit platforms
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/access"
)

// deadlines keeps the read and write deadlines of one connection with one timer of a wheel.
//
// Each direction has a stored deadline and a gate. A call that sets a deadline stores the deadline
// and loads the gate. If the deadline is not earlier than the gate, the call returns: it needs no
// lock, because the timer fires in time and finds the new deadline. Otherwise the call locks mu and
// applies the deadline. The callback of the timer applies both deadlines.
//
// A direction is in one of these states:
//
//	state      gate           inner deadline  meaning
//	open       timer's time,  none            The timer fires before the deadline passes.
//	           or noDeadline
//	expired    gateShut       in the past     The deadline has passed. Calls return at once.
//	handover   gateShut       none            The deadline is earlier than the timer, which has
//	                                          fired. The callback waits for mu.
//	delegated  gateShut       the deadline    The wheel is stopped, or the inner connection refuses
//	                                          deadlines. There is no timer.
//	closed     gateShut       any             Close was called. There is no timer.
//
// Transitions are made under mu, by a call that sets a deadline, by the callback or by Close:
//
//	from             to         by              condition
//	open, expired    expired    call, callback  The deadline has passed.
//	open, expired    open       call, callback  The deadline is ahead, and the timer covers it.
//	open, expired    handover   call            The timer is too late and cannot be cancelled.
//	handover         open,      call, callback  as for open
//	                 expired
//	any but closed   delegated  call, callback  The timer cannot be armed: the wheel is stopped.
//	any              closed     Close
//
// Both directions become delegated or closed together.
//
// Invariants:
//
//	N1  While a direction is open, the inner connection has no deadline in that direction. The gate
//	    is noDeadline, or the timer is armed for the gate or earlier, or the callback waits for mu.
//	N2  A call stores the deadline before it loads the gate. apply shuts the gate before it loads
//	    the deadline. So the call finds the gate shut, or apply finds the new deadline, or both.
//	N3  While a direction is not open, its gate is shut, so each call takes mu.
//
// When the wheel stops, the runtime takes over the pending timers (package access), so the
// callback still runs in time.
type deadlines struct {
	conn   net.Conn // the inner connection
	timers *access.Timers[timingwheel.Timer]

	directions [2]direction // indexed by reads and writes

	mu        sync.Mutex
	timer     timingwheel.Timer
	armed     int64   // the reading for which timer is armed, or noDeadline
	callback  func()  // timerFired; nil until the timer is armed for the first time
	expired   [2]bool // by direction: the inner deadline is in the past
	delegated bool
	closed    bool
}

// direction is either reads or writes. Its fields are readings of the wheel's clock.
type direction struct {
	deadline atomic.Int64 // negative if it is before the wheel's start; noDeadline if there is none
	gate     atomic.Int64 // gateShut unless the direction is open
}

// Indexes of directions.
const (
	reads = iota
	writes
)

const (
	noDeadline int64 = math.MaxInt64 - 1
	gateShut   int64 = math.MaxInt64 // later than each deadline
)

// pastUnix is a time in seconds since 1970. Deadlines up to it have passed on every machine.
// Programs such as net/http set one to interrupt a call. A later limit would be wrong on a machine
// without a battery-backed clock, which may start in 1970.
const pastUnix = 1

// past is a deadline that makes calls on a connection return immediately.
var past = time.Unix(pastUnix, 0)

// timersOf returns the timers of tw that survive its Stop.
func timersOf(tw *timingwheel.TimingWheel) *access.Timers[timingwheel.Timer] {
	return access.Of(tw).(*access.Timers[timingwheel.Timer])
}

// init prepares the deadlines of a connection that has none. If delegated is true, the inner
// connection keeps its deadlines itself.
func (c *deadlines) init(inner net.Conn, tw *timingwheel.TimingWheel, delegated bool) {
	c.conn, c.timers, c.armed, c.delegated = inner, timersOf(tw), noDeadline, delegated
	gate := noDeadline
	if delegated {
		gate = gateShut
	}
	for i := range c.directions {
		c.directions[i].deadline.Store(noDeadline)
		c.directions[i].gate.Store(gate)
	}
}

// SetDeadline implements net.Conn.
func (c *deadlines) SetDeadline(t time.Time) error {
	at := c.readingOf(t)
	err := c.set(reads, at)
	if werr := c.set(writes, at); err == nil {
		err = werr
	}
	return err
}

// SetReadDeadline implements net.Conn.
func (c *deadlines) SetReadDeadline(t time.Time) error { return c.set(reads, c.readingOf(t)) }

// SetWriteDeadline implements net.Conn.
func (c *deadlines) SetWriteDeadline(t time.Time) error { return c.set(writes, c.readingOf(t)) }

// Close implements net.Conn. It cancels the timer.
func (c *deadlines) Close() error {
	c.mu.Lock()
	c.closed = true
	c.directions[reads].gate.Store(gateShut)
	c.directions[writes].gate.Store(gateShut)
	if c.armed != noDeadline {
		c.timers.Cancel(c.timer)
		c.timer, c.armed = timingwheel.Timer{}, noDeadline
	}
	c.mu.Unlock()
	return c.conn.Close()
}

// readingOf converts a deadline to a reading of the clock.
func (c *deadlines) readingOf(t time.Time) int64 {
	if t.Unix() <= pastUnix {
		if t.IsZero() {
			return noDeadline
		}
		return 0 // the exact value does not matter, and a date would need a reading of the clock
	}
	at, _ := c.timers.Clock.Signed(t)
	return min(at, noDeadline)
}

// timeOf converts a reading of the clock to a deadline.
func (c *deadlines) timeOf(at int64) time.Time {
	if at == noDeadline {
		return time.Time{}
	}
	return c.timers.Clock.TimeAt(at)
}

// set stores the deadline of a direction, and applies it unless the timer covers it already.
func (c *deadlines) set(i int, at int64) error {
	d := &c.directions[i]
	d.deadline.Store(at)
	if at >= d.gate.Load() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.apply(i)
}

// apply makes the stored deadline of a direction effective. For a deadline before the wheel's
// start, apply neither reads the clock nor moves the timer. mu is held.
func (c *deadlines) apply(i int) error {
	d := &c.directions[i]
	d.gate.Store(gateShut)
	at := d.deadline.Load()
	switch {
	case c.closed || c.delegated:
		return c.setInner(i, c.timeOf(at)) // a closed connection returns its error
	case at <= 0 || at != noDeadline && at <= c.timers.Clock.Read():
		err := c.setInner(i, past) // even if expired: a closed connection returns its error
		c.expired[i] = c.expired[i] || err == nil
		return err
	}
	if c.expired[i] {
		if err := c.setInner(i, time.Time{}); err != nil {
			return err
		}
		c.expired[i] = false
	}
	if at < c.armed && !c.arm(at) {
		if !c.delegated {
			return nil // the callback is about to apply the deadline
		}
		c.apply(1 - i)
		return c.apply(i)
	}
	d.gate.Store(c.armed)
	return nil
}

// arm arms the timer for at. It reports whether it did: it fails if the timer has fired and its
// callback waits for mu, or if the wheel is stopped. In the second case arm sets delegated, and the
// caller has to apply both directions. mu is held.
func (c *deadlines) arm(at int64) bool {
	if c.armed != noDeadline && !c.timers.Cancel(c.timer) {
		return false // a second timer would lead to a second callback
	}
	if c.callback == nil {
		c.callback = c.timerFired
	}
	c.timer, c.armed = c.timers.Arm(at, c.callback), at
	if c.timer == (timingwheel.Timer{}) { // the wheel is stopped
		c.armed, c.delegated = noDeadline, true
		return false
	}
	return true
}

// timerFired is the callback of the timer.
func (c *deadlines) timerFired() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.timers.Cancel(c.timer) // a stopped wheel keeps the timer until it is cancelled
	c.timer, c.armed = timingwheel.Timer{}, noDeadline
	first := reads // the direction with the earlier deadline, so that the timer is armed once
	if c.directions[writes].deadline.Load() < c.directions[reads].deadline.Load() {
		first = writes
	}
	c.apply(first)
	c.apply(1 - first)
}

// setInner sets the deadline of the inner connection.
func (c *deadlines) setInner(i int, t time.Time) error {
	if i == reads {
		return c.conn.SetReadDeadline(t)
	}
	return c.conn.SetWriteDeadline(t)
}
