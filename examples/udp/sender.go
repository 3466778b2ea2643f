package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// errGone is how a flow ends whose other side does not answer any more.
var errGone = errors.New("udp: no answer")

// reordered is how many messages that were sent later must have got through before one counts as
// lost without a timeout. It must be overdue besides: on a path that shuffles packets any number
// may overtake it.
const reordered = 3

// sender is the sending side of a flow. Like everything that a [node] owns it belongs to the
// goroutine that advances the wheel: its timer's callback runs there as well, so nothing is locked,
// and an acknowledgement cannot meet a timeout half-way.
type sender struct {
	tw    *timingwheel.TimingWheel
	flow  uint32
	size  int // of the window
	out   func(packet)
	ended func(error) // once

	rto      rtoEstimator
	timer    timingwheel.FuncTimer // runs while something is unacknowledged
	timeouts int                   // in a row

	waiting  [][]byte  // not sent yet
	window   []segment // sent; the first is unacknowledged
	first    uint32    // its number
	sent     uint64    // how many packets have been sent
	finished bool
	done     bool

	retransmitted int
}

// segment is a message that was sent.
type segment struct {
	message []byte
	at      time.Time // when it was sent last
	order   uint64    // of its last sending, among all packets
	sends   int
	passed  int // how many that were sent later have got through
	acked   bool
}

// send queues a message. It returns an error where it is too long, or the flow has ended.
func (s *sender) send(message []byte) error {
	if len(message) > maxMessage {
		return fmt.Errorf("udp: a message of %d bytes; accepted are at most %d", len(message), maxMessage)
	}
	if s.done || s.finished {
		return errors.New("udp: the flow has ended")
	}
	s.waiting = append(s.waiting, message)
	s.fill()
	return nil
}

// finish says that there are no more messages; ended is called when all have got through.
func (s *sender) finish() {
	s.finished = true
	s.fill()
}

// fill sends what the window has room for.
func (s *sender) fill() {
	for len(s.window) < s.size && len(s.waiting) > 0 {
		s.window = append(s.window, segment{message: s.waiting[0]})
		s.waiting[0] = nil // what is acknowledged is not to be held by the queue
		s.waiting = s.waiting[1:]
		s.transmit(len(s.window) - 1)
	}
	if len(s.window) == 0 && s.finished {
		s.end(nil)
	}
}

// transmit sends the i-th message of the window, for the first time or once more.
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

// timeout is called when nothing was acknowledged for as long as the retransmission timeout says.
// Only the first message is sent again: as likely as not the path is overloaded, and what is lost
// beside it shows when that is answered.
func (s *sender) timeout() {
	s.timeouts++
	if s.timeouts > s.rto.tries {
		s.end(fmt.Errorf("%w to message %d, sent %d times", errGone, s.first, s.window[0].sends))
		return
	}
	s.rto.backOff()
	s.transmit(0)
}

// acknowledge takes an acknowledgement.
func (s *sender) acknowledge(p packet) {
	before := p.next - s.first // how many it says have got through; old ones wrap around and are beyond the window
	i := p.seq - s.first
	if s.done || before > uint32(len(s.window)) && i >= uint32(len(s.window)) {
		return // old, or made up
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

// arrived notes that the i-th message of the window has got through, and reports whether that is
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
		// By the order of sending and not by number: so a repeated message that is lost again is
		// noticed as well.
		if o := &s.window[k]; !o.acked && o.order < order {
			if o.passed++; o.passed >= reordered && now.Sub(o.at) > s.rto.usual() {
				s.transmit(k)
			}
		}
	}
	return true
}

// restart gives what is still unacknowledged the whole timeout, counted from now.
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
