package main

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// faults are what a link does to packets.
type faults struct {
	loss      float64 // percent
	duplicate float64 // percent
	latency   time.Duration
	jitter    time.Duration // up to this much more, drawn for each packet: so they overtake each other
}

// link is a bad network. A packet on its way is a timer on the wheel, so that packets, timeouts and
// whatever else happens in a simulation have one clock and one order.
type link struct {
	tw     *timingwheel.TimingWheel
	rng    *rand.Rand
	faults faults
	out    func(to netip.AddrPort, packet []byte)
	down   bool // everything is lost

	packets, lost, duplicated int
}

// send takes a packet, which the caller does not use again.
func (l *link) send(to netip.AddrPort, packet []byte) {
	l.packets++
	if l.down || l.percent(l.faults.loss) {
		l.lost++
		return
	}
	l.carry(to, packet)
	if l.percent(l.faults.duplicate) {
		l.duplicated++
		l.carry(to, packet)
	}
}

func (l *link) carry(to netip.AddrPort, packet []byte) {
	delay := l.faults.latency
	if l.faults.jitter > 0 {
		delay += time.Duration(l.rng.Int64N(int64(l.faults.jitter)))
	}
	// Also without a delay: the answer must not come back while the sender is in the middle of
	// something.
	l.tw.AfterFunc(delay, func() { l.out(to, packet) })
}

func (l *link) percent(p float64) bool { return l.rng.Float64()*100 < p }

// newSeeded returns the n-th generator of a seed.
func newSeeded(seed, n uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, n)) }
