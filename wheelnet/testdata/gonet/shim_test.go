// Package net stands for Go's package net in the deadline tests of that package. The test
// TestDeadlineTestsOfPackageNet adds GOROOT's timeout_test.go to this package by an overlay.
package net

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/wheelnet"
)

type (
	Addr       = net.Addr
	Conn       = net.Conn
	Error      = net.Error
	Listener   = net.Listener
	PacketConn = net.PacketConn
)

var (
	SplitHostPort = net.SplitHostPort
	JoinHostPort  = net.JoinHostPort
	ListenPacket  = net.ListenPacket

	noDeadline       = time.Time{}
	testHookStepTime = func() {}
)

// Dialer is a net.Dialer whose connections are those of package wheelnet.
type Dialer struct {
	Timeout  time.Duration
	Deadline time.Time
}

func (d *Dialer) Dial(network, address string) (Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

func (d *Dialer) DialContext(ctx context.Context, network, address string) (Conn, error) {
	testHookStepTime()
	w := wheelnet.Dialer{Dialer: net.Dialer{Timeout: d.Timeout, Deadline: d.Deadline}}
	return w.DialContext(ctx, network, address)
}

func Dial(network, address string) (Conn, error) { return new(Dialer).Dial(network, address) }

// TCPListener is a net.TCPListener whose connections are those of package wheelnet.
type TCPListener struct {
	*net.TCPListener
	wheel Listener
}

func (l *TCPListener) Accept() (Conn, error) { return l.wheel.Accept() }

func newLocalListener(t testing.TB, network string) Listener {
	l, err := net.Listen(network, "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	return &TCPListener{l.(*net.TCPListener), wheelnet.Listener(l, timingwheel.Default())}
}

// localServer runs a handler on a listener.
type localServer struct {
	Listener
	done chan struct{}
}

func newLocalServer(t testing.TB, network string) *localServer {
	return &localServer{Listener: newLocalListener(t, network)}
}

func (s *localServer) buildup(handler func(*localServer, Listener)) error {
	s.done = make(chan struct{})
	go func() {
		handler(s, s.Listener)
		close(s.done)
	}()
	return nil
}

func (s *localServer) teardown() {
	s.Listener.Close()
	<-s.done
}

// localPacketServer runs a handler on a packet connection of package net.
type localPacketServer struct {
	PacketConn
	done chan struct{}
}

func newLocalPacketListener(t testing.TB, network string) PacketConn {
	c, err := ListenPacket(network, "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newLocalPacketServer(t testing.TB, network string) *localPacketServer {
	return &localPacketServer{PacketConn: newLocalPacketListener(t, network)}
}

func (s *localPacketServer) buildup(handler func(*localPacketServer, PacketConn)) error {
	s.done = make(chan struct{})
	go func() {
		handler(s, s.PacketConn)
		close(s.done)
	}()
	return nil
}

func (s *localPacketServer) teardown() {
	s.PacketConn.Close()
	<-s.done
}

// parseError checks that err is an OpError, as all errors of package net are.
func parseError(err error) error {
	if op, ok := err.(*net.OpError); !ok || op.Err == nil {
		return fmt.Errorf("%T (%v) is not a *net.OpError with a cause", err, err)
	}
	return nil
}

var (
	parseDialError   = parseError
	parseAcceptError = parseError
	parseWriteError  = parseError
	parseCommonError = parseError
)

// parseReadError also accepts io.EOF, like the function of the same name in package net.
func parseReadError(err error) error {
	if err == io.EOF {
		return nil
	}
	return parseError(err)
}

func isENOBUFS(error) bool { return false }
