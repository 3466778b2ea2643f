package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// errNoAnswer ends a flow whose peer does not answer.
var errNoAnswer = errors.New("udp: no answer")

// A message counts as lost without a timeout if reordered messages that were sent later have been
// acknowledged, and its acknowledgement is overdue. The second condition is for paths that reorder
// packets: any number may overtake the message.
const reordered = 3

// sender is the sending side of a flow. It belongs to the goroutine that advances the wheel, as
// everything that a [node] owns. The callback of its timer runs on this goroutine too, so there are
// no locks, and an acknowledgement does not race with a timeout.
type sender struct {
	tw    *timingwheel.TimingWheel
	flow  uint32
	size  int // of the window
	out   func(packet)
	ended func(error) // called once

	rto      rtoEstimator
	timer    timingwheel.FuncTimer // runs while something is unacknowledged
	timeouts int                   // consecutive

	waiting  [][]byte  // not sent yet
	window   []segment // sent; the first one is unacknowledged
	first    uint32    // number of the first one
	sent     uint64    // number of packets sent
	finished bool
	done     bool

	retransmitted int
}

// segment is a message that was sent.
type segment struct {
	message []byte
	at      time.Time // of the last transmission
	order   uint64    // of the last transmission, among all packets
	sends   int       // number of transmissions
	passed  int       // number of acknowledged messages that were sent later
	acked   bool
}

// send queues a message. It returns an error if the message is too long or the flow has ended.
func (s *sender) send(message []byte) error {
	if len(message) > maxMessage {
		return fmt.Errorf("udp: message of %d bytes; it must be at most %d", len(message), maxMessage)
	}
	if s.done || s.finished {
		return errors.New("udp: the flow has ended")
	}
	s.waiting = append(s.waiting, message)
	s.fill()
	return nil
}

// finish ends the flow after the acknowledgement of all queued messages.
func (s *sender) finish() {
	s.finished = true
	s.fill()
}

// fill sends messages until the window is full.
func (s *sender) fill() {
	for len(s.window) < s.size && len(s.waiting) > 0 {
		s.window = append(s.window, segment{message: s.waiting[0]})
		s.waiting[0] = nil // so that the queue does not keep acknowledged messages
		s.waiting = s.waiting[1:]
		s.transmit(len(s.window) - 1)
	}
	if len(s.window) == 0 && s.finished {
		s.end(nil)
	}
}

// transmit sends the i-th message of the window for the first time or again.
func (s *sender) transmit(i int) {
	m := &s.window[i]
	s.sent++
	m.sends++
	m.at, m.order, m.passed = s.tw.Now(), s.sent, 0
	if m.sends > 1 {
		s.retransmitted++
	}
	if _, running := s.timer.Deadline(); !running {
		s.timer.Reset(s.rto.rto)
	}
	s.out(packet{kind: data, flow: s.flow, seq: s.first + uint32(i), message: m.message})
}

// timeout is the callback of the retransmission timer. It sends only the first message again,
// because the path may be overloaded. The acknowledgement of this message reveals other losses.
func (s *sender) timeout() {
	s.timeouts++
	if s.timeouts > s.rto.tries {
		s.end(fmt.Errorf("%w to message %d, sent %d times", errNoAnswer, s.first, s.window[0].sends))
		return
	}
	s.rto.backOff()
	s.transmit(0)
}

// acknowledge handles an acknowledgement.
func (s *sender) acknowledge(p packet) {
	// Number of messages that it acknowledges; for an old packet larger than the window.
	before := p.next - s.first
	i := p.seq - s.first
	if s.done || before > uint32(len(s.window)) && i >= uint32(len(s.window)) {
		return // old or forged
	}
	progress := false
	if i < uint32(len(s.window)) {
		progress = s.arrived(int(i))
	}
	if before <= uint32(len(s.window)) {
		for k := range s.window[:before] {
			progress = progress || !s.window[k].acked
			s.window[k].acked = true
		}
	}
	for len(s.window) > 0 && s.window[0].acked {
		s.window[0] = segment{}
		s.window = s.window[1:]
		s.first++
	}
	if progress {
		s.restart()
	}
	s.fill()
}

// arrived records that the i-th message of the window is acknowledged and reports whether that is
// new.
func (s *sender) arrived(i int) bool {
	m := &s.window[i]
	if m.acked {
		return false
	}
	m.acked = true
	now := s.tw.Now()
	if m.sends == 1 {
		s.rto.sample(now.Sub(m.at))
	}
	order := m.order
	for k := range s.window {
		// By the order of transmission and not by number, so that the loss of a retransmission is
		// detected too.
		if o := &s.window[k]; !o.acked && o.order < order {
			if o.passed++; o.passed >= reordered && now.Sub(o.at) > s.rto.usual() {
				s.transmit(k)
			}
		}
	}
	return true
}

// restart gives the unacknowledged messages the whole timeout from now on.
func (s *sender) restart() {
	s.timeouts = 0
	if len(s.window) == 0 {
		s.timer.Stop()
		return
	}
	s.timer.Reset(s.rto.rto)
}

func (s *sender) end(err error) {
	if s.done {
		return
	}
	s.done = true
	s.timer.Stop()
	s.waiting, s.window = nil, nil
	s.ended(err)
}
