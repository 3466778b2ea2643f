package main

import "github.com/timingwheel-go/timingwheel"

// receiver is the receiving side of a flow. It delivers each message once, in the order of the
// numbers.
type receiver struct {
	size    int // of the window
	out     func(packet)
	deliver func(message []byte)

	next  uint32                // first missing number
	early map[uint32][]byte     // messages after a gap, at most one window
	idle  timingwheel.FuncTimer // removes the flow
}

// receive handles a data packet.
func (r *receiver) receive(p packet) {
	if ahead := p.seq - r.next; ahead < uint32(r.size) {
		if _, twice := r.early[p.seq]; !twice {
			// A copy, because the reader reuses its buffer.
			r.early[p.seq] = append([]byte(nil), p.message...)
		}
	} else if behind := r.next - p.seq; behind > uint32(r.size) {
		return // outside the window: the sender has received an acknowledgement long ago
	}
	for {
		message, ok := r.early[r.next]
		if !ok {
			break
		}
		delete(r.early, r.next)
		r.next++
		r.deliver(message)
	}
	// Also for a duplicate: the first acknowledgement may be lost or late.
	r.out(packet{kind: ack, flow: p.flow, seq: p.seq, next: r.next})
}
