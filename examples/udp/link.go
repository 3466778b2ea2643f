package main

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// faults are the faults of a link.
type faults struct {
	loss      float64 // percent
	duplicate float64 // percent
	latency   time.Duration
	jitter    time.Duration // random addition to the latency, so packets overtake each other
}

// link is an unreliable network. A packet in flight is a timer on the wheel, so all events of a
// simulation have one clock and one order.
type link struct {
	tw     *timingwheel.TimingWheel
	rng    *rand.Rand
	faults faults
	out    func(to netip.AddrPort, packet []byte)
	down   bool // all packets are lost

	packets, lost, duplicated int
}

// send sends a packet. The caller must not use the packet afterwards.
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
	// A timer also without a delay, because the answer must not arrive during the call to send.
	l.tw.AfterFunc(delay, func() { l.out(to, packet) })
}

func (l *link) percent(p float64) bool { return l.rng.Float64()*100 < p }

// newSeeded returns the n-th random generator of a seed.
func newSeeded(seed, n uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, n)) }
