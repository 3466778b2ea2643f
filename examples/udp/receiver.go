package main

import "github.com/timingwheel-go/timingwheel"

// receiver is the receiving side of a flow. It delivers each message once, in the order of numbers.
type receiver struct {
	size    int // of the window
	out     func(packet)
	deliver func(message []byte)

	next  uint32                // the first number that is missing
	early map[uint32][]byte     // what came before its turn; within the window, so it is bounded
	idle  timingwheel.FuncTimer // forgets the flow
}

// receive takes a data packet.
func (r *receiver) receive(p packet) {
	if ahead := p.seq - r.next; ahead < uint32(r.size) {
		if _, twice := r.early[p.seq]; !twice {
			r.early[p.seq] = append([]byte(nil), p.message...) // the packet is the reader's buffer
		}
	} else if behind := r.next - p.seq; behind > uint32(r.size) {
		return // of no window: the sender has had an answer to it long ago
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
	// Also for one that was there already: then the first answer was lost, or is late.
	r.out(packet{kind: ack, flow: p.flow, seq: p.seq, next: r.next})
}
