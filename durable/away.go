package durable

import (
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// beginPatience is how long the messages of a partition that begin may keep takers from those of others. It is long for a call, and short for whoever
// waits for a message.
const beginPatience = 100 * time.Millisecond

// watched is flush for the messages of a partition that begin. Where it takes long, as one master of a Cluster is away, the partition stands aside: its
// messages take no taker's turn, so those of other partitions begin.
func (c *consumer) watched(p *consumed, flush func([]driver.Change) ([]answer, error)) func([]driver.Change) ([]answer, error) {
	return func(changes []driver.Change) ([]answer, error) {
		c.mu.Lock()
		p.call++
		call := p.call
		c.mu.Unlock()
		slow := time.AfterFunc(beginPatience, func() { c.standAside(p, call) })
		answers, err := flush(changes)
		slow.Stop()
		c.comeBack(p)
		return answers, err
	}
}

// standAside takes a partition out of the account of what begins, if that call is still under way.
func (c *consumer) standAside(p *consumed, call uint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.call != call {
		return
	}
	p.away = true
	c.beginning -= p.asked
	c.match()
}

// comeBack takes it in again when the call is over, before its answers are handed on.
func (c *consumer) comeBack(p *consumed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.call++
	if !p.away {
		return
	}
	p.away = false
	p.wake()
	c.beginning += p.asked
	p.parked.push(c.ready.rest()...) // behind: those of the partition that were not parked are due later
	c.ready = p.parked
	c.ready.keep(func(h *held) bool { return h.state == heldReady })
	p.parked, c.gone = fifo[*held]{}, 0
	c.match()
}
