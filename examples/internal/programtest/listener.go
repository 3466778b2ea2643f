package programtest

import (
	"context"
	"net"
)

// Listener is a net.Listener for connections in memory. Unlike a socket it works in a bubble of
// testing/synctest.
type Listener struct {
	conns  chan net.Conn
	closed chan struct{}
}

// NewListener returns a Listener.
func NewListener() Listener {
	return Listener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept returns the next connection that Connect passes. After Close it returns net.ErrClosed.
func (l Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends all calls to Accept. It must be called once.
func (l Listener) Close() error {
	close(l.closed)
	return nil
}

// Addr returns the loopback address, so that a URL can name the listener.
func (l Listener) Addr() net.Addr { return &net.IPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// Connect passes the server's end of a connection to Accept. It waits for Accept, and returns the
// error of ctx if ctx ends first.
func (l Listener) Connect(ctx context.Context, server net.Conn) error {
	select {
	case l.conns <- server:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
