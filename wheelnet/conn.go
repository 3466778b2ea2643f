package wheelnet

import (
	"context"
	"io"
	"net"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// Conn returns a connection that behaves like c and whose deadlines tw enforces. Conn clears the
// deadlines of c. Afterwards, set deadlines on the result only, and close the result, not c.
//
// If c is a [*net.TCPConn], a [*net.UnixConn] or a [*net.UDPConn], the result has all methods of c.
// Otherwise the result has the methods of net.Conn. The result also has a method NetConn, which
// returns c.
//
// If c, like a channel from package ssh, does not support deadlines, the result passes each
// deadline to c and returns c's error. Conn finds this out by clearing the deadlines. If c accepts
// the zero time, it must also accept a past time, or deadlines on the result never take effect.
//
// Conn panics if c or tw is nil, or if tw has the option Manual or Executor: a callback
// that blocks could then keep a deadline from taking effect.
func Conn(c net.Conn, tw *timingwheel.TimingWheel) net.Conn {
	mustRun("Conn", tw)
	if c == nil {
		panic("wheelnet: Conn: the connection is nil")
	}
	delegated := c.SetDeadline(time.Time{}) != nil
	switch c := c.(type) {
	case *net.TCPConn:
		w := &tcpConn{TCPConn: c}
		w.init(c, tw, delegated)
		return w
	case *net.UnixConn:
		w := &unixConn{UnixConn: c}
		w.init(c, tw, delegated)
		return w
	case *net.UDPConn:
		w := &udpConn{UDPConn: c}
		w.init(c, tw, delegated)
		return w
	default:
		w := &plainConn{inner: inner{c}}
		w.init(c, tw, delegated)
		return w
	}
}

// mustRun panics if tw is nil, or if other callbacks can hold back a connection's callbacks. caller
// is the name of the exported function.
func mustRun(caller string, tw *timingwheel.TimingWheel) {
	if tw == nil {
		panic("wheelnet: " + caller + ": the wheel is nil; it must come from timingwheel.New or timingwheel.Default")
	}
	if option := timersOf(tw).Held; option != "" {
		panic("wheelnet: " + caller + ": the wheel has Options." + option +
			"; connections need a wheel without Manual and Executor")
	}
}

// Listener returns a listener that accepts connections from l and wraps each of them with [Conn].
// The result has only the methods of net.Listener: a deadline for Accept is set on l. Listener
// panics if l or tw is nil, or if tw has an option that makes Conn panic.
//
// For TLS, wrap the result: tls.NewListener(wheelnet.Listener(l, tw), config).
func Listener(l net.Listener, tw *timingwheel.TimingWheel) net.Listener {
	mustRun("Listener", tw)
	if l == nil {
		panic("wheelnet: Listener: the listener is nil")
	}
	return &listener{l, tw}
}

type listener struct {
	net.Listener
	tw *timingwheel.TimingWheel
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return Conn(c, l.tw), nil
}

// Dialer is a [net.Dialer] that wraps each connection with [Conn]. The zero Dialer uses
// [timingwheel.Default]. Dial and DialContext panic if Wheel has an option that makes Conn panic.
// The methods that Go 1.26 adds to net.Dialer, such as DialTCP, return plain net connections, which
// do not use the wheel.
type Dialer struct {
	net.Dialer
	Wheel *timingwheel.TimingWheel // nil means timingwheel.Default()
}

// Dial connects to the address like [net.Dialer.Dial].
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// DialContext connects to the address like [net.Dialer.DialContext]. The timeout and the deadline
// for connecting come from ctx and the net.Dialer, and do not use the wheel.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	tw := d.Wheel
	if tw == nil {
		tw = timingwheel.Default()
	}
	mustRun("Dialer", tw)
	c, err := d.Dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return Conn(c, tw), nil
}

// The types of connections. SetDeadline, Close and the like come from deadlines, at depth 1. The
// methods of the inner connection are at depth 2: package net promotes them from an embedded type,
// and plainConn has the type inner for that purpose.
type (
	tcpConn struct {
		*net.TCPConn
		deadlines
	}
	unixConn struct {
		*net.UnixConn
		deadlines
	}
	udpConn struct {
		*net.UDPConn
		deadlines
	}
	plainConn struct {
		inner
		deadlines
	}
	inner struct{ net.Conn }
)

// NetConn returns the inner connection. Do not set deadlines on it or close it, because the wheel
// is not informed.
func (c *deadlines) NetConn() net.Conn { return c.conn }

// ReadFrom implements io.ReaderFrom. It unwraps r, because package net copies inside the kernel
// only from types that it knows.
func (c *tcpConn) ReadFrom(r io.Reader) (int64, error) {
	limited, ok := r.(*io.LimitedReader)
	if !ok {
		return c.TCPConn.ReadFrom(unwrap(r))
	}
	unwrapped := &io.LimitedReader{R: unwrap(limited.R), N: limited.N}
	n, err := c.TCPConn.ReadFrom(unwrapped)
	limited.N = unwrapped.N
	return n, err
}

// WriteTo implements io.WriterTo. It unwraps w for the same reason as ReadFrom.
func (c *tcpConn) WriteTo(w io.Writer) (int64, error) { return c.TCPConn.WriteTo(unwrap(w)) }

// unwrap returns the inner connection if x is a connection of this package, and x otherwise.
func unwrap[T any](x T) T {
	switch c := any(x).(type) {
	case *tcpConn:
		return any(c.TCPConn).(T)
	case *unixConn:
		return any(c.UnixConn).(T)
	}
	return x
}
