package faultproxy

import (
	"bytes"
	"fmt"
	"time"
)

// DropNext makes the proxy lose the next n replies: it receives each and cuts its connection instead of forwarding it, so that
// the server has done what the client does not learn. 0 or less ends that.
func (p *Proxy) DropNext(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropNext = max(0, n)
}

// DropRate makes the proxy lose replies at random, each with a probability from 0, none, to 1, all. It comes in addition to [Proxy.DropNext].
func (p *Proxy) DropRate(probability float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropRate = probability
}

// Match restricts lost replies to requests that have pattern in them, so that the handshake of a client passes, say. It goes for requests from now
// on; what precedes and follows the request in a pipeline is lost with it. Empty: all requests.
func (p *Proxy) Match(pattern string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.match = []byte(pattern)
}

// Dropped is the number of replies that were lost so far.
func (p *Proxy) Dropped() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dropped
}

// Accepted is the number of connections so far that clients have made.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Open is the number of connections that are open.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Stall stops forwarding in both directions: connections stay open, new ones are accepted, and nothing comes through until
// [Proxy.Resume]. A stalled proxy stays so.
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

// Resume forwards what has come in during a [Proxy.Stall], and what comes from then on.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.resumed:
	default:
		close(p.resumed)
	}
}

func (p *Proxy) waitResumed() {
	p.mu.Lock()
	resumed := p.resumed
	p.mu.Unlock()
	<-resumed
}

// CutAll resets all open connections.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.cut()
	}
}

// Refuse says whether new connections are closed at once. Open ones stay.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = refuse
}

// Redirect makes the proxy connect to another server. Open connections stay with the old one until they are cut: see [Proxy.CutAll].
func (p *Proxy) Redirect(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Hold keeps back the next request that has pattern in it, as a network does whose packets come late. The proxy closes the client's
// connection at once and keeps the server's connection open, until [Proxy.Release] sends the request on. Later requests pass, on other
// connections. The pattern must lie within one write of the client.
func (p *Proxy) Hold(pattern string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holding = []byte(pattern)
}

// Held is the number of requests that are held back.
func (p *Proxy) Held() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.held)
}

// Release sends the requests that are held back to the server, in their order, and waits for the beginning of each reply, which has no
// client any more and is returned. A server that closes the connection or does not answer within ten seconds is an error.
func (p *Proxy) Release() (replies []string, err error) {
	p.mu.Lock()
	held := p.held
	p.held, p.holding = nil, nil
	p.mu.Unlock()
	for _, l := range held {
		reply, err := l.release()
		if err != nil {
			return replies, fmt.Errorf("faultproxy: release: %w", err)
		}
		replies = append(replies, reply)
	}
	return replies, nil
}

// holds decides whether a part of a request is held back, and with it its link.
func (p *Proxy) holds(l *link, part []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holding == nil || p.closed || !bytes.Contains(part, p.holding) {
		return false
	}
	l.mu.Lock()
	l.held = bytes.Clone(part)
	l.mu.Unlock()
	p.holding = nil
	p.held = append(p.held, l)
	_ = l.server.SetReadDeadline(time.Now()) // ends the copying of replies
	return true
}

// cutUnlessHeld cuts a link. If its request is held back, only the client's connection is closed.
func (l *link) cutUnlessHeld() {
	l.mu.Lock()
	held := l.held != nil
	l.mu.Unlock()
	if held {
		_ = l.client.Close()
		return
	}
	l.cut()
}

// release sends the request that is held back.
func (l *link) release() (reply string, err error) {
	defer l.cut()
	if err := l.server.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return "", err
	}
	if _, err := l.server.Write(l.held); err != nil {
		return "", err
	}
	buffer := make([]byte, 64<<10)
	n, err := l.server.Read(buffer)
	return string(buffer[:n]), err
}
