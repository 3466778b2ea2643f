package adopters

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/nettest"

	"github.com/timingwheel-go/timingwheel/wheelnet"
)

// Connections of wheelnet pass the tests of package nettest for net.Conn.
func TestConnectionsPassNettest(t *testing.T) {
	tw := newWheel(t)
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
				address := "localhost:0"
				if network == "unix" {
					address = filepath.Join(t.TempDir(), "s")
				}
				inner, err := net.Listen(network, address)
				if err != nil {
					return nil, nil, nil, err
				}
				l := wheelnet.Listener(inner, tw)
				defer l.Close()
				dialled := make(chan net.Conn, 1)
				go func() {
					d := wheelnet.Dialer{Wheel: tw}
					c, _ := d.Dial(network, inner.Addr().String())
					dialled <- c
				}()
				if c1, err = l.Accept(); err != nil {
					return nil, nil, nil, err
				}
				c2 = <-dialled
				return c1, c2, func() { c1.Close(); c2.Close() }, nil
			})
		})
	}
	t.Run("pipe", func(t *testing.T) {
		nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
			p1, p2 := net.Pipe()
			c1, c2 = wheelnet.Conn(p1, tw), wheelnet.Conn(p2, tw)
			return c1, c2, func() { c1.Close(); c2.Close() }, nil
		})
	})
	// The tests close their connections, some of them late.
	require.Eventually(t, func() bool { return tw.Len() == 0 }, time.Minute, time.Millisecond)
}
