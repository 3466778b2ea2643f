package durable

import "time"

// pace tells how many messages may begin ahead of takers: about as many as they have taken in five milliseconds lately. Where handlers are quick
// they need not wait for an answer of the store between two messages, and many messages share a call; where they are
// slow nothing begins before somebody is there to handle it.
type pace struct {
	ahead int  // messages
	fixed bool // none ever
	since time.Time
	count int // of deliveries since then
}

const (
	paceWindow = 10 * time.Millisecond
	mostAhead  = 1024
)

// delivered notes a delivery.
func (p *pace) delivered(now time.Time) {
	p.count++
	passed := now.Sub(p.since)
	if p.fixed || passed < paceWindow {
		return
	}
	p.ahead = min(mostAhead, int(float64(p.count)*float64(paceWindow/2)/float64(passed)))
	p.since, p.count = now, 0
}
