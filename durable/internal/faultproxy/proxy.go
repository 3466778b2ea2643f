// Package faultproxy is a TCP proxy for tests that drops replies, stalls and cuts connections. It
// works with any protocol in which a client sends requests and a server replies.
package faultproxy

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy forwards connections to a server. Its methods inject faults into open and new connections,
// and are safe for concurrent use.
//
// A reply is the first data from the server after a request: usually the answer to a request or a
// pipeline. If the proxy has received only the beginning of a long reply, the rest is handled in
// the same way. The proxy cannot distinguish replies if the client sends a request before the
// previous one was answered. Data that a server sends without a request, such as messages of a
// subscription, is not a reply.
type Proxy struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu       sync.Mutex
	target   string
	links    map[*link]struct{}
	closed   bool
	refusing bool
	dropNext int
	dropRate float64
	match    []byte
	dropped  int
	resumed  chan struct{} // closed unless stalled
	holding  []byte        // the pattern of Hold; nil: none
	held     []*link       // links with held requests
}

// link is a client connection and its connection to the server.
type link struct {
	client, server net.Conn
	replied        chan struct{} // closed once no more replies are forwarded

	mu      sync.Mutex
	recent  []byte // end of the request, in which the pattern may begin
	matches bool   // the request since the last reply contains the pattern
	held    []byte // the request that Release will send; nil: none
}

// Start starts a proxy to the address target, which runs until the test ends. The server may start
// later.
func Start(t testing.TB, target string) *Proxy {
	t.Helper()
	p, err := New(target)
	if err != nil {
		t.Fatalf("faultproxy: %v", err)
	}
	t.Cleanup(p.Close)
	return p
}

// New starts a proxy to target on a free loopback port.
func New(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, target: target, links: map[*link]struct{}{}, resumed: make(chan struct{})}
	close(p.resumed)
	p.wg.Go(p.accept)
	return p, nil
}

// Addr returns the address for clients.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close stops the proxy, closes its connections, and waits for its goroutines. It may be called
// more than once.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	for _, l := range p.held {
		l.cut()
	}
	p.held = nil
	p.mu.Unlock()
	_ = p.listener.Close()
	p.Resume()
	p.CutAll()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err == nil:
			p.wg.Go(func() { p.connect(client) })
		default: // for example too many open files
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// connect creates a link for a client and serves it.
func (p *Proxy) connect(client net.Conn) {
	defer client.Close()
	p.mu.Lock()
	target, refusing := p.target, p.refusing || p.closed
	p.mu.Unlock()
	if refusing {
		return
	}
	server, err := net.Dial("tcp", target)
	if err != nil {
		return // the client sees the end of its connection
	}
	l := &link{client: client, server: server, replied: make(chan struct{})}
	if !p.add(l) {
		l.cut()
		return
	}
	defer p.remove(l)
	var wg sync.WaitGroup
	wg.Go(func() {
		p.forward(l, client, server, func(b []byte) bool { p.matchRequest(l, b); return !p.holdsBack(l, b) })
	})
	wg.Go(func() {
		defer close(l.replied)
		p.forward(l, server, client, func([]byte) bool { return !p.dropsReply(l) })
	})
	wg.Wait()
}

func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.links[l] = struct{}{}
	return true
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// cut closes both connections immediately and discards unsent data.
func (l *link) cut() {
	for _, c := range []net.Conn{l.client, l.server} {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
}

// forward copies data from one side to the other as long as pass accepts it. When one side ends or
// pass returns false, forward cuts the link, unless the request of the link is held back.
func (p *Proxy) forward(l *link, from io.Reader, to io.Writer, pass func([]byte) bool) {
	defer l.cutUnlessHeld()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			p.mu.Lock()
			resumed := p.resumed
			p.mu.Unlock()
			<-resumed
			if !pass(buffer[:n]) {
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// matchRequest searches for the pattern in a part of a request.
func (p *Proxy) matchRequest(l *link, part []byte) {
	p.mu.Lock()
	pattern := p.match
	p.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := append(l.recent, part...)
	if bytes.Contains(seen, pattern) {
		l.matches = true
	}
	keep := max(0, min(len(pattern)-1, len(seen)))
	l.recent = append(l.recent[:0], seen[len(seen)-keep:]...)
}

// dropsReply reports whether a reply must be dropped.
func (p *Proxy) dropsReply(l *link) bool {
	l.mu.Lock()
	matches := l.matches
	l.matches, l.recent = false, l.recent[:0]
	l.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !matches:
		return false
	case p.dropNext > 0:
		p.dropNext--
	case rand.Float64() >= p.dropRate:
		return false
	}
	p.dropped++
	return true
}
