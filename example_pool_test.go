package timingwheel_test

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// connPool keeps connections for reuse, and closes connections that are idle for a timeout.
type connPool struct {
	timeout time.Duration
	expiry  *timingwheel.Timeouts[io.Closer]

	mu   sync.Mutex
	idle []idleConn // the last one was used most recently
}

type idleConn struct {
	conn  io.Closer
	timer timingwheel.Timer
}

func newConnPool(options timingwheel.Options, timeout time.Duration) (*connPool, error) {
	p := &connPool{timeout: timeout}
	var err error
	p.expiry, err = timingwheel.NewTimeouts(options, p.evict)
	return p, err
}

// Put gives a connection back.
func (p *connPool) Put(c io.Closer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	timer := p.expiry.Add(p.timeout, c)
	if timer == (timingwheel.Timer{}) { // the pool is closed
		c.Close()
		return
	}
	p.idle = append(p.idle, idleConn{c, timer})
}

// Get returns the connection that was used most recently, or nil if there is none.
func (p *connPool) Get() io.Closer {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := len(p.idle); n > 0; n-- {
		last := p.idle[n-1]
		p.idle = p.idle[:n-1]
		if last.timer.Stop() { // otherwise evict closes it
			return last.conn
		}
	}
	return nil
}

func (p *connPool) evict(expired []io.Closer) {
	for _, c := range expired {
		c.Close()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.idle) > 0 { // the first ones expire first
		if _, pending := p.idle[0].timer.Deadline(); pending {
			return
		}
		p.idle[0] = idleConn{} // the garbage collector must not find it
		p.idle = p.idle[1:]
	}
}

// Close closes the idle connections, and each connection that is given back later.
func (p *connPool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.expiry.RemoveAll() {
		c.Close()
	}
	p.expiry.Stop()
	p.idle = nil
}

type namedConn string

func (c namedConn) Close() error { fmt.Println("close", c); return nil }

// A connection pool evicts idle connections. A connection that Get returns is never closed by the
// pool, because its timer's Stop has returned true.
func ExampleTimeouts_connectionPool() {
	pool, err := newConnPool(timingwheel.Options{Manual: true}, time.Minute)
	if err != nil {
		panic(err)
	}
	begin := pool.expiry.Now()
	pool.Put(namedConn("a"))
	pool.Put(namedConn("b"))
	pool.expiry.Advance(begin.Add(30 * time.Second))

	used := pool.Get()
	pool.expiry.Advance(begin.Add(60 * time.Second))
	fmt.Println("in use:", used)
	pool.Put(used)
	fmt.Println("idle:", len(pool.idle))

	pool.expiry.Advance(begin.Add(120 * time.Second))
	fmt.Println("idle:", len(pool.idle), pool.Get())
	pool.Put(namedConn("c"))
	pool.Close()
	pool.Put(namedConn("d"))
	// Output:
	// close a
	// in use: b
	// idle: 1
	// close b
	// idle: 0 <nil>
	// close c
	// close d
}
