package main

import (
	"fmt"
	"net"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/examples/internal/figures"
	"github.com/timingwheel-go/timingwheel/wheelnet"
	"go.uber.org/atomic"
)

// implementations are the values of -impl.
var implementations = []string{"wheel", "wheelnet", "std", "net"}

// none is the implementation without timeouts, which is the baseline of -compare.
const none = "none"

// hasTimeouts reports whether the server cuts silent connections.
func (cfg config) hasTimeouts() bool { return cfg.impl != none }

// implementation keeps the idle timeouts of the server's connections.
type implementation interface {
	// listener returns the listener from which the server accepts connections, given l.
	listener(l net.Listener) net.Listener
	// start starts the idle timeout of a connection. It passes after d.
	start(srv *server, conn net.Conn, d time.Duration) idleTimeout
	pending() int    // armed timers, or unknownPending
	summary() string // a line for the report, or ""
	stop()
}

const unknownPending = -1

// idleTimeout is the timeout of one connection. When it passes, Read of the connection returns
// os.ErrDeadlineExceeded. Only the goroutine that reads from the connection calls its methods.
type idleTimeout interface {
	// restart gives the connection the server's timeout again, and reports whether it did. If not,
	// the caller has to start another idleTimeout instead.
	restart() bool
	// passed is called after a Read that returned os.ErrDeadlineExceeded. It clears the read
	// deadline, and reports whether the timeout has passed.
	passed() bool
	stop()
}

func (cfg config) newImplementation() (implementation, error) {
	if cfg.newImpl != nil {
		return cfg.newImpl(), nil
	}
	switch cfg.impl {
	case "wheel":
		tw, err := timingwheel.New(timingwheel.Options{})
		return timerImplementation{wheel{tw}}, err
	case "wheelnet":
		tw, err := timingwheel.New(timingwheel.Options{})
		return wheelnetImplementation{wheel: wheel{tw}}, err
	case "std":
		return timerImplementation{&std{}}, nil
	case "net":
		return netImplementation{}, nil
	case none:
		return noImplementation{}, nil
	}
	return nil, fmt.Errorf("no implementation named %q", cfg.impl)
}

// timers is a timer library.
type timers interface {
	afterFunc(d time.Duration, f func()) timer
	pending() int
	summary() string
	stop()
}

// timer is one armed timer. Touch has the contract of [timingwheel.FuncTimer]: it returns true if
// the timer was armed and now fires after its whole timeout, and false if the timer has fired and
// stays unarmed.
type timer interface {
	Touch() bool
	Stop() bool
}

type wheel struct{ tw *timingwheel.TimingWheel }

func (w wheel) afterFunc(d time.Duration, f func()) timer { return w.tw.NewFuncTimer(d, f) }
func (w wheel) pending() int                              { return w.tw.Len() }
func (w wheel) stop()                                     { w.tw.Stop() }

func (w wheel) summary() string {
	s := w.tw.Stats()
	count := func(n uint64) string { return figures.Comma(int(n)) }
	return fmt.Sprintf("the wheel: %s timers armed, %s times postponed, %s times cascaded to a finer level; %s wake-ups",
		count(s.Armed), count(s.Postponed), count(s.Moved), count(s.Wakeups))
}

// std is package time, with a count of the armed timers.
type std struct {
	armed atomic.Int64
}

type stdTimer struct {
	*time.Timer
	of      *std
	timeout time.Duration
}

func (s *std) afterFunc(d time.Duration, f func()) timer {
	s.armed.Inc()
	return stdTimer{time.AfterFunc(d, func() {
		s.armed.Dec()
		f()
	}), s, d}
}

func (s *std) pending() int    { return int(s.armed.Load()) }
func (s *std) summary() string { return "" }
func (s *std) stop()           {}

func (t stdTimer) Stop() bool {
	if !t.Timer.Stop() {
		return false
	}
	t.of.armed.Dec()
	return true
}

// Touch stops the timer first, because [time.Timer.Reset] re-arms a timer that has fired. With a
// short timeout its function could then run again before Stop.
func (t stdTimer) Touch() bool {
	if !t.Timer.Stop() {
		return false
	}
	t.Timer.Reset(t.timeout)
	return true
}

// timerImplementation has a timer for each connection. When the timer fires, it sets a read
// deadline in the past.
type timerImplementation struct{ timers }

func (timerImplementation) listener(l net.Listener) net.Listener { return l }

func (impl timerImplementation) start(srv *server, conn net.Conn, d time.Duration) idleTimeout {
	t := &timerTimeout{srv: srv, conn: conn, timeout: d}
	t.deadline.Store(srv.now() + d)
	t.timer = impl.afterFunc(d, t.fire)
	return t
}

// timerTimeout is used until its timer fires or is stopped, and is never armed again afterwards. So
// a late callback finds its own deadline, and not the deadline of a later timeout.
type timerTimeout struct {
	deadline atomic.Duration // on the server's clock; the first field, for its alignment on 32-bit systems
	srv      *server
	conn     net.Conn
	timeout  time.Duration
	timer    timer
}

// restart moves the timer unless it has fired or the timeout is a grace period. It reads the clock
// before the timer does, so that a correct timer cannot seem early. It stores the deadline after
// the timer has moved, because a callback in flight needs the old deadline.
func (t *timerTimeout) restart() bool {
	if t.timeout != t.srv.timeout {
		t.timer.Stop()
		return false
	}
	deadline := t.srv.now() + t.timeout
	if !t.timer.Touch() {
		return false
	}
	t.deadline.Store(deadline)
	return true
}

// fire does not cut the connection. It interrupts the goroutine that reads from the connection,
// because only that goroutine knows whether a heartbeat has arrived in the meantime.
func (t *timerTimeout) fire() {
	t.srv.recordFired(t.srv.now() - t.deadline.Load())
	_ = t.conn.SetReadDeadline(longAgo) // fails only on a closed connection
}

// passed reports whether the timeout has passed: a late callback of the previous timeout may have
// interrupted the Read. It clears the read deadline before it reads the clock. In the other order,
// it could also clear the deadline that this timeout has set in between, and the connection would
// never be cut.
func (t *timerTimeout) passed() bool {
	_ = t.conn.SetReadDeadline(time.Time{})
	return t.srv.now() >= t.deadline.Load()
}

func (t *timerTimeout) stop() { t.timer.Stop() }

// longAgo is a read deadline that interrupts a Read.
var longAgo = time.Unix(1, 0)

// wheelnetImplementation uses read deadlines that the wheel keeps.
type wheelnetImplementation struct {
	wheel
	readDeadlines
}

func (impl wheelnetImplementation) listener(l net.Listener) net.Listener {
	return wheelnet.Listener(l, impl.tw)
}

// netImplementation uses read deadlines of package net.
type netImplementation struct {
	noTimers
	readDeadlines
}

// readDeadlines sets a read deadline before each Read. There is no other timer.
type readDeadlines struct{}

func (readDeadlines) start(srv *server, conn net.Conn, d time.Duration) idleTimeout {
	t := &deadlineTimeout{srv: srv, conn: conn}
	t.set(d)
	return t
}

type deadlineTimeout struct {
	deadline time.Duration // on the server's clock
	srv      *server
	conn     net.Conn
}

func (t *deadlineTimeout) set(d time.Duration) {
	t.deadline = t.srv.now() + d
	_ = t.conn.SetReadDeadline(t.srv.start.Add(t.deadline)) // fails only on a closed connection
}

func (t *deadlineTimeout) restart() bool {
	t.set(t.srv.timeout)
	return true
}

func (t *deadlineTimeout) passed() bool {
	late := t.srv.now() - t.deadline
	t.srv.recordFired(late)
	_ = t.conn.SetReadDeadline(time.Time{})
	return late >= 0
}

func (t *deadlineTimeout) stop() {} // the connection is closed next

// noImplementation cuts no connection.
type noImplementation struct{ noTimers }

func (noImplementation) start(*server, net.Conn, time.Duration) idleTimeout { return noTimeout{} }

type noTimeout struct{}

func (noTimeout) restart() bool { return true }
func (noTimeout) passed() bool  { return false }
func (noTimeout) stop()         {}

// noTimers has the methods of an implementation without timers of its own.
type noTimers struct{}

func (noTimers) listener(l net.Listener) net.Listener { return l }
func (noTimers) pending() int                         { return unknownPending }
func (noTimers) summary() string                      { return "" }
func (noTimers) stop()                                {}
