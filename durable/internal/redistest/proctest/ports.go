package proctest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Servers listen on ports 10,000 to 14,999. The test process listens on port+5,000 while a server
// owns its port, so that no other test takes the port while the server is down. Port+10,000 is the
// bus of a cluster. All these ports are below the range of outgoing connections, which could
// otherwise take a port and prevent a restart.
const (
	firstPort  = 10_000
	portCount  = 5_000
	guardAhead = 5_000
	busAhead   = 10_000
)

// Port is a port that a server of this process owns until Release.
type Port struct {
	Number int
	guard  net.Listener
}

// ReservePort reserves a port that is free, that no other test has reserved, and whose bus port is
// free. It starts at a random port, so that concurrent test binaries rarely collide.
func ReservePort() (*Port, error) {
	start := rand.IntN(portCount)
	for i := range portCount {
		number := firstPort + (start+i)%portCount
		guard, err := net.Listen("tcp", Loopback(number+guardAhead))
		if err != nil {
			continue
		}
		if IsFree(number) && IsFree(number+busAhead) {
			return &Port{number, guard}, nil
		}
		guard.Close()
	}
	return nil, fmt.Errorf("no free port from %d to %d", firstPort, firstPort+portCount-1)
}

// Release frees the port for other tests.
func (p *Port) Release() { p.guard.Close() }

// IsFree reports whether no process listens on a port.
func IsFree(number int) bool {
	l, err := net.Listen("tcp", Loopback(number))
	if err != nil {
		return false
	}
	l.Close()
	return true
}

// Loopback returns the loopback address of a port.
func Loopback(number int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(number)) }
