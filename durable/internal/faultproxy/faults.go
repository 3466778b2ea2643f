package faultproxy

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
