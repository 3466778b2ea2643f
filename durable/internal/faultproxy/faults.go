package faultproxy

import (
	"bytes"
	"fmt"
	"time"
)

// DropNext makes the proxy drop the next n replies: it receives each reply and cuts the connection
// instead of forwarding the reply. The server has then executed a request whose reply the client
// does not receive. If n <= 0, no reply is dropped.
func (p *Proxy) DropNext(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropNext = max(0, n)
}

// DropRate makes the proxy drop replies at random, each with a probability from 0 to 1, in addition
// to those of [Proxy.DropNext].
func (p *Proxy) DropRate(probability float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropRate = probability
}

// Match restricts dropped replies to later requests that contain pattern, for example to let the
// handshake of a client pass. Dropping a reply also drops the other replies of its pipeline. An
// empty pattern matches all requests.
func (p *Proxy) Match(pattern string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.match = []byte(pattern)
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

// Held returns the number of requests that are held back.
func (p *Proxy) Held() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.held)
}

// Release sends the held requests to the server in their order and returns the beginning of each
// reply. It returns an error if the server closes the connection or does not reply within a minute.
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

// holdsBack reports whether a part of a request must be held back, together with its link.
func (p *Proxy) holdsBack(l *link, part []byte) bool {
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
	_ = l.server.SetReadDeadline(time.Now()) // stops the forwarding of replies
	return true
}

// cutUnlessHeld cuts a link, or only the client's connection if the request is held back.
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

// release sends the held request.
func (l *link) release() (reply string, err error) {
	defer l.cut()
	<-l.replied // until then, forward might read the reply
	_ = l.server.SetDeadline(time.Now().Add(time.Minute))
	if _, err := l.server.Write(l.held); err != nil {
		return "", err
	}
	buffer := make([]byte, 64<<10)
	n, err := l.server.Read(buffer)
	return string(buffer[:n]), err
}
