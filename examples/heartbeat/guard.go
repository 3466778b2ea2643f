package main

import (
	"fmt"
	"net"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/examples/internal/figures"
	"go.uber.org/atomic"
)

// implementations are the values of -impl.
var implementations = []string{"wheel", "wheelnet", "std", "net"}

// none is the implementation that cuts no connection. It is the base of -compare.
const none = "none"

// cuts reports whether silent connections are to be cut.
func (cfg config) cuts() bool { return cfg.impl != none }

// implementation is a way to keep the idle timeouts of the server's connections.
type implementation interface {
	listener(l net.Listener) net.Listener // that the server accepts connections from
	guard(srv *server, conn net.Conn, d time.Duration) guard
	pending() int    // timers that are armed now, 0 if that is unknown
	summary() string // what there is to tell at the end, if anything
	stop()
}

// guard is an idle timeout of one connection. A Read that is under way when the timeout passes
// returns os.ErrDeadlineExceeded.
type guard interface {
	// postpone gives the connection its whole timeout again. It returns false if another guard has
	// to take the place of this one.
	postpone() bool
	// passed is called after a Read that a deadline ended. It lifts the deadline, so that the
	// connection can be read again, and reports whether the timeout has passed.
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
		return timerGuards{wheel{tw}}, err
	case "wheelnet":
		tw, err := timingwheel.New(timingwheel.Options{})
		return wheelDeadlines{wheel: wheel{tw}}, err
	case "std":
		return timerGuards{&std{}}, nil
	case "net":
		return netDeadlines{}, nil
	case none:
		return noGuards{}, nil
	}
	return nil, fmt.Errorf("no implementation named %q", cfg.impl)
}

// timers is what the server needs of a timer library.
type timers interface {
	afterFunc(d time.Duration, f func()) timer
	pending() int
	summary() string
	stop()
}

// timer is one armed timer. Its Touch keeps the contract of [timingwheel.FuncTimer]. It returns
// true if the timer was armed and now fires its whole timeout from now, and false if it has fired
// and nothing is armed.
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
	return fmt.Sprintf("the wheel: %s timers armed, %s times postponed, %s times moved to a finer wheel; %s wake-ups",
		count(s.Armed), count(s.Postponed), count(s.Moved), count(s.Wakeups))
}

// std is package time behind the same interface. It has to count what is pending itself.
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

// Touch stops the timer first. [time.Timer.Reset] re-arms a timer that has fired, and with a short
// timeout its function might run once more before a Stop could prevent it.
func (t stdTimer) Touch() bool {
	if !t.Timer.Stop() {
		return false
	}
	t.Timer.Reset(t.timeout)
	return true
}

// timerGuards guard each connection by a timer.
type timerGuards struct{ timers }

func (timerGuards) listener(l net.Listener) net.Listener { return l }

func (t timerGuards) guard(srv *server, conn net.Conn, d time.Duration) guard {
	g := &timerGuard{srv: srv, conn: conn, timeout: d}
	g.due.Store(srv.now() + d)
	g.timer = t.afterFunc(d, g.expire)
	return g
}

// timerGuard is one arming of a session's idle timeout: from its AfterFunc until it fires or is
// stopped. A guard that fired is replaced, never revived, so that a late callback finds its own
// deadline here.
type timerGuard struct {
	due     atomic.Duration // deadline, on the server's clock; first for its alignment on 32-bit systems
	srv     *server
	conn    net.Conn
	timeout time.Duration
	timer   timer
}

// postpone gives the guard its whole timeout again. It returns false if the guard has fired, or if
// its timeout was one for a stall. The deadline is read off the clock before the timer reads it, so
// that no correct timer can ever seem early. It is published only once the timer has moved: a
// callback that was on its way already must find the old one.
func (g *timerGuard) postpone() bool {
	if g.timeout != g.srv.timeout {
		g.timer.Stop()
		return false
	}
	due := g.srv.now() + g.timeout
	if !g.timer.Touch() {
		return false
	}
	g.due.Store(due)
	return true
}

// expire does not cut the connection, it only wakes the goroutine that reads from it: that one
// alone knows whether a beat arrived meanwhile.
func (g *timerGuard) expire() {
	g.srv.noteFired(g.srv.now() - g.due.Load())
	_ = g.conn.SetReadDeadline(longAgo) // fails only on a closed connection
}

// passed returns false after a late alarm of the guard before. It lifts the read deadline before it
// reads the clock. The other way round, it could lift the alarm of this guard along with a late one
// of the guard before, and the connection would stay for ever.
func (g *timerGuard) passed() bool {
	_ = g.conn.SetReadDeadline(time.Time{})
	return g.srv.now() >= g.due.Load()
}

func (g *timerGuard) stop() { g.timer.Stop() }

// longAgo as a read deadline ends a Read that is under way.
var longAgo = time.Unix(1, 0)
