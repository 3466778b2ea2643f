package main

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// protocol has the parameters that both sides of a flow must agree on.
type protocol struct {
	timing
	window int // largest number of messages in flight
	flows  int // largest number of flows that a node receives
}

// node is one endpoint of the protocol, with all flows that begin or end there. It depends neither
// on sockets nor on clocks: packets arrive at receive and leave through send, and the time comes
// from the wheel, which is in Manual mode. So the same code runs on a real socket and in a
// simulation. All methods and callbacks run on the goroutine that advances the wheel.
type node struct {
	tw      *timingwheel.TimingWheel
	cfg     protocol
	send    func(to netip.AddrPort, packet []byte)
	deliver func(f flow, message []byte)

	senders   map[flow]*sender
	receivers map[flow]*receiver
}

// flow is one direction of a conversation.
type flow struct {
	peer netip.AddrPort
	id   uint32
}

func newNode(tw *timingwheel.TimingWheel, cfg protocol, send func(netip.AddrPort, []byte), deliver func(flow, []byte)) *node {
	return &node{tw: tw, cfg: cfg, send: send, deliver: deliver, senders: make(map[flow]*sender), receivers: make(map[flow]*receiver)}
}

// open begins a flow. It calls ended once: with nil after finish when all messages have been
// acknowledged, or with an error that wraps errNoAnswer.
func (n *node) open(f flow, ended func(error)) (*sender, error) {
	if n.senders[f] != nil {
		return nil, fmt.Errorf("udp: flow %d to %v is open already", f.id, f.peer)
	}
	s := &sender{
		tw:    n.tw,
		flow:  f.id,
		size:  n.cfg.window,
		out:   n.outTo(f),
		rto:   newEstimator(n.cfg.timing),
		ended: func(err error) { delete(n.senders, f); ended(err) },
	}
	s.timer.InitStopped(n.tw, s.timeout)
	n.senders[f] = s
	return s, nil
}

func (n *node) outTo(f flow) func(packet) { return func(p packet) { n.send(f.peer, p.bytes()) } }

// receive handles a packet from a peer. It ignores malformed packets.
func (n *node) receive(from netip.AddrPort, b []byte) {
	p, ok := parse(b)
	if !ok {
		return
	}
	f := flow{from, p.flow}
	if p.kind == ack {
		if s := n.senders[f]; s != nil {
			s.acknowledge(p)
		}
		return
	}
	if r := n.receiver(f); r != nil {
		r.receive(p)
	}
}

// maxStall is the longest stall of the machine of a sender that a receiver tolerates.
const maxStall = time.Minute

// receiver returns the receiving side of a flow. It creates the receiver of a new flow, or returns
// nil if there are too many flows. The idle timer removes a receiver after the sender must have
// given up. Before that a repeated message would begin a new flow and be delivered twice.
func (n *node) receiver(f flow) *receiver {
	r := n.receivers[f]
	if r == nil {
		if len(n.receivers) >= n.cfg.flows {
			return nil
		}
		r = &receiver{
			size:    n.cfg.window,
			out:     n.outTo(f),
			deliver: func(m []byte) { n.deliver(f, m) },
			early:   make(map[uint32][]byte),
		}
		r.idle.Init(n.tw, 2*n.cfg.giveUpAfter()+maxStall, func() { delete(n.receivers, f) })
		n.receivers[f] = r
	}
	r.idle.Touch()
	return r
}
