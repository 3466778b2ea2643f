package redistest

import (
	"errors"
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

// port is a port that a server of this process owns until release.
type port struct {
	number int
	guard  net.Listener
}

// errNoPort is the error if there is no free port.
var errNoPort = errors.New("redistest: no free port")

// reservePort reserves a port that is free, that no other test has reserved, and whose bus port is
// free. It starts at a random port, so that concurrent test binaries rarely collide.
func reservePort() (*port, error) {
	start := rand.IntN(portCount)
	for i := range portCount {
		number := firstPort + (start+i)%portCount
		guard, err := net.Listen("tcp", loopback(number+guardAhead))
		if err != nil {
			continue
		}
		if isFree(number) && isFree(number+busAhead) {
			return &port{number, guard}, nil
		}
		guard.Close()
	}
	return nil, fmt.Errorf("%w from %d to %d", errNoPort, firstPort, firstPort+portCount-1)
}

func (p *port) release() { p.guard.Close() }

func isFree(number int) bool {
	l, err := net.Listen("tcp", loopback(number))
	if err != nil {
		return false
	}
	l.Close()
	return true
}

func loopback(number int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(number)) }
