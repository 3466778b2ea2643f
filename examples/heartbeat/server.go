package main

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"go.uber.org/atomic"
)

// how a connection ended for the server.
type how uint8

const (
	unknown how = iota
	closed      // by the client
	reset       // by the client
	cut         // by the server, for being idle
)

func (h how) String() string { return [...]string{"unnoticed", "closed", "reset", "cut"}[h] }

// ending is what the server knows of a connection's end.
type ending struct {
	how  how
	read time.Time // when the server read the last beat, or accepted the connection
}

// server accepts connections and cuts those that are idle for the timeout. Clients send beats of
// one byte and expect no answer.
type server struct {
	counters // first: its 64-bit words need the alignment of an allocation on 32-bit systems

	listener net.Listener
	impl     implementation
	timeout  time.Duration
	grace    time.Duration // what a session gets on top of its timeout after a stall
	stalls   *stalls
	start    time.Time // where its clock begins

	mu       sync.Mutex
	lateness *hdrhistogram.Histogram // of fired timers, in microseconds
	endings  map[netip.AddrPort]ending
}

type counters struct {
	open     atomic.Int64 // connections now
	accepted atomic.Int64
	beats    atomic.Int64
	cuts     atomic.Int64
	saved    atomic.Int64 // timers that fired while the kernel held a beat
	spared   atomic.Int64 // timers that fired after a stall
	early    atomic.Int64 // timers that fired before their deadline: never, unless the library is broken
}

func newServer(impl implementation, timeout, grace time.Duration, st *stalls) (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return &server{
		listener: impl.listener(l),
		impl:     impl,
		timeout:  timeout,
		grace:    grace,
		stalls:   st,
		start:    time.Now(),
		lateness: hdrhistogram.New(1, time.Hour.Microseconds(), 3),
		endings:  make(map[netip.AddrPort]ending),
	}, nil
}

// now is the time on the server's clock, which is monotonic.
func (s *server) now() time.Duration { return time.Since(s.start) }

// serve accepts connections until close, and returns nil then.
func (s *server) serve() error {
	for {
		conn, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		s.open.Inc()
		go newSession(s, conn).run()
		s.accepted.Inc()
	}
}

// noteFired counts a timer that fired so long after its deadline.
func (s *server) noteFired(late time.Duration) {
	if late < 0 {
		s.early.Inc()
		late = 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.lateness.RecordValue(min(late.Microseconds(), s.lateness.HighestTrackableValue()))
}

// late returns how many timers have fired and percentiles of how late they did, nil if none has.
func (s *server) late(percentiles ...float64) (fired int64, late []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fired = s.lateness.TotalCount(); fired == 0 {
		return 0, nil
	}
	for _, p := range percentiles {
		late = append(late, time.Duration(s.lateness.ValueAtPercentile(p))*time.Microsecond)
	}
	return fired, late
}

// session is the server's side of one connection. The goroutine in run alone reads from the
// connection and alone decides about it; the end of the timeout and a beat can therefore not
// overtake each other.
type session struct {
	srv   *server
	conn  net.Conn
	raw   syscall.RawConn
	guard guard
	read  time.Duration // when the last beat was read, on the server's clock
	fresh time.Duration // since when stalls of the machine have not been allowed for
	buf   [64]byte
}

func newSession(srv *server, conn net.Conn) *session {
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		panic(err) // only for a nil connection
	}
	now := srv.now()
	return &session{srv: srv, conn: conn, raw: raw, read: now, fresh: now, guard: srv.impl.guard(srv, conn, srv.timeout)}
}

func (s *session) run() {
	for {
		n, err := s.conn.Read(s.buf[:])
		h := s.after(n, err)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			h = s.suspect()
		}
		if h != unknown {
			s.end(h)
			return
		}
	}
}

// after handles what a read returned, and says how the connection has ended, unknown if it has not.
func (s *session) after(n int, err error) how {
	switch {
	case n > 0:
		s.beat(n)
		return unknown
	case err == nil || errors.Is(err, os.ErrDeadlineExceeded):
		return unknown
	case errors.Is(err, io.EOF):
		return closed
	default:
		return reset
	}
}

// beat postpones the timeout, n beats having arrived.
func (s *session) beat(n int) {
	s.srv.beats.Add(int64(n))
	s.read = s.srv.now()
	s.fresh = s.read
	if !s.guard.postpone() {
		s.guard = s.srv.impl.guard(s.srv, s.conn, s.srv.timeout)
	}
}

// suspect decides about a connection whose Read was ended by a deadline. The timeout may have
// passed while a beat waited in the kernel, or while this goroutine waited for a processor. A
// connection is idle only if the kernel holds nothing of it after the timeout.
func (s *session) suspect() how {
	if !s.guard.passed() {
		return unknown
	}
	n, err := readHeld(s.conn, s.raw, s.buf[:])
	switch {
	case n > 0:
		s.srv.saved.Inc()
	case err == nil && s.stalled():
		s.srv.spared.Inc()
		s.fresh = s.srv.now()
		s.guard = s.srv.impl.guard(s.srv, s.conn, s.srv.grace)
	case err == nil:
		return cut
	}
	return s.after(n, err)
}

// stalled reports whether the connection may be silent only because the machine stood still: the
// client, if it is on the same one, is about to catch up, and gets some time to do so, once for
// each stall.
func (s *session) stalled() bool {
	return s.srv.stalls.worstSince(s.srv.start.Add(s.fresh), time.Now()) > s.srv.timeout/4
}

// end closes the connection and notes how it ended, before the client can see it.
func (s *session) end(h how) {
	s.guard.stop()
	if h == cut {
		s.srv.cuts.Inc()
	}
	s.srv.mu.Lock()
	s.srv.endings[addrPort(s.conn.RemoteAddr())] = ending{h, s.srv.start.Add(s.read)}
	s.srv.mu.Unlock()
	_ = s.conn.Close()
	s.srv.open.Dec()
}

// addrPort returns a TCP address in a form that can be compared.
func addrPort(a net.Addr) netip.AddrPort {
	ap := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// settle waits until so many connections were accepted and all have ended, their timers included,
// and reports whether they have. It gives up after so much time, of which a stall uses up little.
func (s *server) settle(conns int, patience time.Duration) bool {
	const step = 20 * time.Millisecond
	for n := patience / step; n > 0; n-- {
		if s.accepted.Load() >= int64(conns) && s.open.Load() == 0 && s.impl.pending() == 0 {
			return true
		}
		time.Sleep(step)
	}
	return false
}

func (s *server) close() { _ = s.listener.Close() }
