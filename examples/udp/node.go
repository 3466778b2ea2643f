package main

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// protocol is what both sides of a flow have to agree upon.
type protocol struct {
	timing
	window int // how many messages may be on their way
	flows  int // how many flows a node receives at most
}

// node is one end of the protocol: all flows that begin or end there. It knows neither sockets nor
// clocks. Packets come in through receive and go out through send, and what time it is says the
// wheel, which is in Manual mode. So it runs on a real socket as it does in a test, where an hour
// takes a moment. Everything happens on the goroutine that advances the wheel.
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

// open begins a flow. ended is called once: with nil when all messages have got through after
// finish, or with an error that wraps errGone.
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

func (n *node) outTo(f flow) func(packet) {
	return func(p packet) { n.send(f.peer, p.bytes()) }
}

// receive takes what has come from a peer. Anything may come from a network.
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

// standstill is how long the machine of a sender may stand still, which is no time for the sender.
const standstill = time.Minute

// receiver returns the receiving side of a flow, a new one for a new flow, and nil where there are
// too many. It is forgotten when nothing has come for so long that the sender must have given up.
// Sooner would be wrong: a repeated message would begin the flow anew, and be delivered twice.
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
		r.idle.Init(n.tw, 2*n.cfg.giveUpAfter()+standstill, func() { delete(n.receivers, f) })
		n.receivers[f] = r
	}
	r.idle.Touch()
	return r
}
