// Package faultproxy is a TCP proxy for tests that drops replies, stalls and cuts connections. It
// works with any protocol in which a client sends requests and a server replies.
package faultproxy

import (
	"bytes"
	"errors"
	"fmt"
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
	target   string
	wg       sync.WaitGroup

	mu       sync.Mutex
	links    map[*link]struct{}
	closed   bool
	refusing bool
	pattern  []byte // of Drop, as are rate and most
	rate     float64
	most     int
	dropped  int
	resumed  chan struct{} // closed unless stalled
	holding  []byte        // the pattern of Hold; nil: none
	held     *link         // with a held request; nil: none
}

// link is a client connection and its connection to the server. Proxy.mu guards the last fields.
type link struct {
	client, server net.Conn
	replied        chan struct{} // closed once no more replies are forwarded

	recent  []byte // end of the request, in which the pattern may begin
	matches bool   // the request since the last reply contains the pattern
	held    []byte // the request that Release will send; nil: none
}

// Start starts a proxy to the address target, which runs until the test ends. The server may start
// later.
func Start(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("faultproxy: %v", err)
	}
	p := &Proxy{listener: l, target: target, links: map[*link]struct{}{}, resumed: make(chan struct{})}
	close(p.resumed)
	p.wg.Go(p.accept)
	t.Cleanup(p.Close)
	return p
}

// Addr returns the address for clients.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close stops the proxy, closes its connections, and waits for its goroutines. It may be called
// more than once.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	if p.held != nil {
		p.held.cut()
	}
	p.mu.Unlock()
	_ = p.listener.Close()
	p.Resume()
	p.CutAll()
	p.wg.Wait()
}

// Drop makes the proxy drop replies to later requests that contain pattern: each with a probability
// of rate, and at most so many. It receives the reply and cuts the connection instead of forwarding
// it, so that the server has executed a request whose reply the client does not receive. The other
// replies of a pipeline are dropped too. An empty pattern matches all requests.
func (p *Proxy) Drop(pattern string, rate float64, most int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pattern, p.rate, p.most = []byte(pattern), rate, most
	for l := range p.links { // earlier requests may wait for their replies
		l.matches, l.recent = false, nil
	}
}

// Dropped returns the number of dropped replies.
func (p *Proxy) Dropped() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dropped
}

// Stall stops forwarding in both directions until [Proxy.Resume]. Connections stay open, and new
// ones are accepted. Stalling a stalled proxy has no effect.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.resumed:
		if !p.closed {
			p.resumed = make(chan struct{})
		}
	default:
	}
}

// Resume ends a [Proxy.Stall]: the proxy forwards the data that has arrived in the meantime, and
// later data.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.resumed:
	default:
		close(p.resumed)
	}
}

// CutAll resets all open connections.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.cut()
	}
}

// Refuse sets whether new connections are closed immediately. Open connections stay.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = refuse
}

// Hold holds back the next request that contains pattern, like a network with delayed packets. The
// proxy closes the client's connection immediately, and keeps the server's connection open until
// [Proxy.Release] sends the request. Later requests on other connections pass. The pattern must be
// within one write of the client.
func (p *Proxy) Hold(pattern string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holding = []byte(pattern)
}

// Held reports whether a request is held back.
func (p *Proxy) Held() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held != nil
}

// Release sends the held request, which there must be, to the server, and returns the beginning of
// the reply. It returns an error if the server closes the connection or does not reply within a
// minute.
func (p *Proxy) Release() (reply string, err error) {
	p.mu.Lock()
	l := p.held
	p.held = nil
	p.mu.Unlock()
	defer l.cut()
	<-l.replied // until then, forward might read the reply
	_ = l.server.SetDeadline(time.Now().Add(time.Minute))
	buffer := make([]byte, 64<<10)
	n := 0
	if _, err = l.server.Write(l.held); err == nil {
		n, err = l.server.Read(buffer)
	}
	if err != nil {
		err = fmt.Errorf("faultproxy: release: %w", err)
	}
	return string(buffer[:n]), err
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
	refusing := p.refusing
	p.mu.Unlock()
	if refusing {
		return
	}
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return // the client sees the end of its connection
	}
	l := &link{client: client, server: server, replied: make(chan struct{})}
	p.mu.Lock()
	p.links[l] = struct{}{}
	if p.closed { // CutAll may have been called before
		l.cut()
	}
	p.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() {
		p.forward(l, client, server, func(b []byte) bool { return p.passesRequest(l, b) })
	})
	wg.Go(func() {
		defer close(l.replied)
		p.forward(l, server, client, func([]byte) bool { return !p.dropsReply(l) })
	})
	wg.Wait()
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
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		_ = l.client.Close()
		if l.held == nil {
			l.cut()
		}
	}()
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

// passesRequest searches for the pattern in a part of a request. It reports whether the request
// passes, and is not held back together with its link.
func (p *Proxy) passesRequest(l *link, part []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := append(l.recent, part...)
	l.matches = l.matches || bytes.Contains(seen, p.pattern)
	keep := max(0, min(len(p.pattern)-1, len(seen)))
	l.recent = append(l.recent[:0], seen[len(seen)-keep:]...)
	if p.holding == nil || p.closed || !bytes.Contains(part, p.holding) {
		return true
	}
	l.held, p.held, p.holding = bytes.Clone(part), l, nil
	_ = l.server.SetReadDeadline(time.Now()) // stops the forwarding of replies
	return false
}

// dropsReply reports whether a reply must be dropped.
func (p *Proxy) dropsReply(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	matches := l.matches
	l.matches, l.recent = false, l.recent[:0]
	if !matches || p.most <= 0 || rand.Float64() >= p.rate {
		return false
	}
	p.most--
	p.dropped++
	return true
}
