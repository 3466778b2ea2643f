package wheelnet

import (
	"context"
	"io"
	"net"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// Conn returns c with deadlines that tw keeps. A deadline that was set on c before is cleared. The
// result has all methods of c if c is a [net.TCPConn], [net.UnixConn] or [net.UDPConn], and otherwise
// those of net.Conn. Its NetConn returns c. From then on deadlines are set on the result only, and
// Close is called there.
//
// If c refuses deadlines, as a channel of package ssh does, the result passes them on to c, which
// returns its error.
//
// Conn panics if c or tw is nil, and if tw is Manual.
func Conn(c net.Conn, tw *timingwheel.TimingWheel) net.Conn {
	mustRun("Conn", tw)
	if c == nil {
		panic("wheelnet: Conn(nil, …): accepted is a connection")
	}
	refused := c.SetDeadline(time.Time{}) != nil
	switch c := c.(type) {
	case *net.TCPConn:
		w := &tcpConn{TCPConn: c}
		w.init(c, tw, refused)
		return w
	case *net.UnixConn:
		w := &unixConn{UnixConn: c}
		w.init(c, tw, refused)
		return w
	case *net.UDPConn:
		w := &udpConn{UDPConn: c}
		w.init(c, tw, refused)
		return w
	default:
		w := &plainConn{inner: inner{c}}
		w.init(c, tw, refused)
		return w
	}
}

// mustRun panics unless tw is a wheel that runs by itself.
func mustRun(what string, tw *timingwheel.TimingWheel) {
	if tw == nil {
		panic("wheelnet: " + what + " without a wheel: accepted is one of timingwheel.New or timingwheel.Default")
	}
	if timersOf(tw).Clock.Manual {
		panic("wheelnet: " + what + " with a Manual wheel: accepted is one that runs by itself")
	}
}

// Listener returns l with connections like those of [Conn]. It panics if l or tw is nil, and if tw
// is Manual.
//
// TLS goes on top: tls.NewListener(wheelnet.Listener(l, tw), config).
func Listener(l net.Listener, tw *timingwheel.TimingWheel) net.Listener {
	mustRun("Listener", tw)
	if l == nil {
		panic("wheelnet: Listener(nil, …): accepted is a listener")
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

// Dialer is a [net.Dialer] whose connections are like those of [Conn]. The zero Dialer uses
// [timingwheel.Default]. Its methods panic if Wheel is Manual.
type Dialer struct {
	net.Dialer
	Wheel *timingwheel.TimingWheel // nil means timingwheel.Default()
}

// Dial connects to the address, as [net.Dialer.Dial] does.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// DialContext connects to the address, as [net.Dialer.DialContext] does. Connecting itself is
// bounded by ctx and the net.Dialer, not by the wheel.
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

// The connections. The methods of deadlines hide those of the inner connection, which stand one
// level deeper.
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

// NetConn returns the connection inside, which has no deadlines of its own. If its methods set a
// deadline or close it, the wheel does not know.
func (c *deadlines) NetConn() net.Conn { return c.conn }

// ReadFrom implements io.ReaderFrom. Package net copies inside the kernel if it knows the type of r.
func (c *tcpConn) ReadFrom(r io.Reader) (int64, error) {
	limited, ok := r.(*io.LimitedReader)
	if !ok {
		return c.TCPConn.ReadFrom(unwrap(r))
	}
	bare := &io.LimitedReader{R: unwrap(limited.R), N: limited.N}
	n, err := c.TCPConn.ReadFrom(bare)
	limited.N = bare.N
	return n, err
}

// WriteTo implements io.WriterTo. Package net copies inside the kernel if it knows the type of w.
func (c *tcpConn) WriteTo(w io.Writer) (int64, error) { return c.TCPConn.WriteTo(unwrap(w)) }

// unwrap returns the connection inside x if x is a connection of this package, and else x.
func unwrap[T any](x T) T {
	switch c := any(x).(type) {
	case *tcpConn:
		return any(c.TCPConn).(T)
	case *unixConn:
		return any(c.UnixConn).(T)
	}
	return x
}
