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

// endKind is how a connection ended, as the server saw it.
type endKind uint8

const (
	notEnded endKind = iota
	closed           // by the client
	reset            // by the client
	cut              // by the server, because it was idle
	endKinds
)

func (k endKind) String() string { return [endKinds]string{"not ended", "closed", "reset", "cut"}[k] }

// connEnd is what the server knows about the end of a connection.
type connEnd struct {
	kind endKind
	read time.Time // when the server read the last beat, or accepted the connection
}

// server accepts connections, and cuts connections that are idle for the timeout. Clients send
// beats of one byte. The server sends nothing.
type server struct {
	counters // the first field, because its 64-bit words have to be aligned on 32-bit systems

	listener net.Listener
	impl     implementation
	timeout  time.Duration
	grace    time.Duration // the timeout that a connection gets once after a stall of the machine
	stalls   *stalls
	start    time.Time // of the server's clock

	mu       sync.Mutex
	lateness *hdrhistogram.Histogram // of the timeouts that passed, in microseconds
	ends     map[netip.AddrPort]connEnd
}

type counters struct {
	open        atomic.Int64 // connections now
	accepted    atomic.Int64
	beats       atomic.Int64
	cuts        atomic.Int64
	keptByBeat  atomic.Int64 // timeouts that passed while a heartbeat was waiting in the kernel
	keptByStall atomic.Int64 // timeouts that passed after a stall of the machine
	early       atomic.Int64 // timeouts that passed before their deadline, which is a bug of the implementation
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
		ends:     make(map[netip.AddrPort]connEnd),
	}, nil
}

// now reads the server's clock, which is monotonic.
func (s *server) now() time.Duration { return time.Since(s.start) }

// serve accepts connections until close is called, and then returns nil.
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

// recordFired records that a timeout passed, and how late. A negative lateness means early.
func (s *server) recordFired(late time.Duration) {
	if late < 0 {
		s.early.Inc()
		late = 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.lateness.RecordValue(min(late.Microseconds(), s.lateness.HighestTrackableValue()))
}

// late returns the number of timeouts that have passed, and percentiles of their lateness. There
// are no percentiles if none has passed.
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

// waitUntilIdle waits until conns connections have been accepted, all have ended, and no timer is
// armed. It reports whether that was so within patience. A stall uses up one step only.
func (s *server) waitUntilIdle(conns int, patience time.Duration) bool {
	const step = 20 * time.Millisecond
	for n := patience / step; n > 0; n-- {
		if s.accepted.Load() >= int64(conns) && s.open.Load() == 0 && s.impl.pending() <= 0 {
			return true
		}
		time.Sleep(step)
	}
	return false
}

func (s *server) close() { _ = s.listener.Close() }

// session is the server's side of one connection. The goroutine that runs run is the only one that
// reads from the connection and decides whether to cut it. So a timeout races with no heartbeat.
type session struct {
	srv           *server
	conn          net.Conn
	raw           syscall.RawConn
	timeout       idleTimeout
	read          time.Duration // when the last beat was read, on the server's clock
	stallsAllowed time.Duration // until when stalls have been allowed for, on the server's clock
	buf           [64]byte
}

func newSession(srv *server, conn net.Conn) *session {
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		panic(err) // conn is not nil
	}
	now := srv.now()
	return &session{srv: srv, conn: conn, raw: raw, read: now, stallsAllowed: now, timeout: srv.impl.start(srv, conn, srv.timeout)}
}

func (s *session) run() {
	for {
		n, err := s.conn.Read(s.buf[:])
		kind := s.afterRead(n, err)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			kind = s.afterTimeout()
		}
		if kind != notEnded {
			s.end(kind)
			return
		}
	}
}

// afterRead handles the results of a read. It returns how the connection has ended, if it has.
func (s *session) afterRead(n int, err error) endKind {
	switch {
	case n > 0:
		s.beat(n)
		return notEnded
	case err == nil || errors.Is(err, os.ErrDeadlineExceeded):
		return notEnded
	case errors.Is(err, io.EOF):
		return closed
	default:
		return reset
	}
}

// beat postpones the timeout after n beats have arrived.
func (s *session) beat(n int) {
	s.srv.beats.Add(int64(n))
	s.read = s.srv.now()
	s.stallsAllowed = s.read
	if !s.timeout.restart() {
		s.timeout = s.srv.impl.start(s.srv, s.conn, s.srv.timeout)
	}
}

// afterTimeout decides whether to cut a connection after a deadline has ended its Read. The timeout
// may have passed while a heartbeat waited in the kernel, or while this goroutine waited for a
// processor. So the connection is idle only if the kernel has nothing to read after the timeout.
func (s *session) afterTimeout() endKind {
	if !s.timeout.passed() {
		return notEnded
	}
	n, err := readAvailable(s.conn, s.raw, s.buf[:])
	switch {
	case n > 0:
		s.srv.keptByBeat.Inc()
	case err == nil && s.stalled():
		s.srv.keptByStall.Inc()
		s.stallsAllowed = s.srv.now()
		s.timeout = s.srv.impl.start(s.srv, s.conn, s.srv.grace)
	case err == nil:
		return cut
	}
	return s.afterRead(n, err)
}

// stalled reports whether the machine has stalled for so long that the client may have missed a
// heartbeat. The client runs on the same machine and needs some time to catch up. Each stall is
// allowed for once.
func (s *session) stalled() bool {
	return s.srv.stalls.longestSince(s.srv.start.Add(s.stallsAllowed), time.Now()) > s.srv.timeout/4
}

// end closes the connection. It records the end before the client can see it.
func (s *session) end(kind endKind) {
	s.timeout.stop()
	if kind == cut {
		s.srv.cuts.Inc()
	}
	s.srv.mu.Lock()
	s.srv.ends[addrPort(s.conn.RemoteAddr())] = connEnd{kind, s.srv.start.Add(s.read)}
	s.srv.mu.Unlock()
	_ = s.conn.Close()
	s.srv.open.Dec()
}

// addrPort returns a TCP address in a comparable form.
func addrPort(a net.Addr) netip.AddrPort {
	ap := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
