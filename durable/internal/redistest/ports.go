package redistest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Servers listen on 10,000 to 14,999. Port+5,000 is held by the test process for as long as a server has its port, so
// that no other test takes the port while the server is down; port+10,000 is the bus of a cluster. All of them
// lie below the ports that systems give to outgoing connections, which could be in the way of a restart.
const (
	firstPort  = 10_000
	portCount  = 5_000
	guardAhead = 5_000
	busAhead   = 10_000
)

// port is a port that belongs to a server of this process until it is released.
type port struct {
	number int
	guard  net.Listener
}

// errNoPort says that no free port was found.
var errNoPort = errors.New("redistest: no free port")

// reservePort finds a port that is free, whose bus port is free, and that nobody else has reserved. It starts at a random
// one, so that test binaries that run at the same time seldom meet.
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
