package chaos

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// Options describes the faults of a history. The zero value applies the strictest rules.
type Options struct {
	// Crashes permits consumers that were killed or lost leases. By default a message that was
	// started and then cancelled, without a recorded failure, is a violation. With Crashes it is a
	// violation only if it was finished, or started after the cancel was recorded.
	Crashes bool

	// ClockSteps permits a store's clock that was set back. Tokens are then compared in the order
	// in which starts were recorded, and redeliveries are not measured.
	ClockSteps bool

	// Pauses permits consumers that were suspended between the claim of a message and the call to
	// its handler. The call then has an outdated token, so only a repeated token is a violation.
	Pauses bool
}

// History holds the events of the messages of a queue. Its methods are safe for concurrent use. It
// needs about 250 bytes for each message, and constant time for each event.
//
// A start after a cancel is a violation, and so is a second start after a cancel that found the
// message running: the first one may be that run. "After" means recorded later or, if the cancel
// has a Clock, with a later Clock. The Clock is needed if the start is in the file of another
// process.
type History struct {
	options Options
	seed    maphash.Seed
	clock   atomic.Int64 // number of recorded events
	shards  [64]shard
}

// shard holds some of the messages, to reduce lock contention.
type shard struct {
	mu       sync.Mutex
	messages map[string]*message
}

// message holds the events of a message.
type message struct {
	enqueued, maybe int32 // enqueues
	failed          int32
	recurring       bool
	ends            uint16 // bits of kinds, from handled on
	cancelled       point  // the first cancel
	interrupted     point  // the first cancel that found it running
	starts          []start
	dues            []due
	failures        []uint64 // tokens
	handled, acks   []uint64 // tokens
}

// point is when an event was recorded.
type point struct {
	at    int64 // record number; 0: there is no event
	clock int64 // the Clock of the event; 0: none
}

// before reports whether a start follows the event.
func (p point) before(s start) bool {
	if p.clock != 0 {
		return s.clock > p.clock
	}
	return p.at != 0 && s.at > p.at
}

// start is one call to a handler.
type start struct {
	token uint64
	due   int64
	clock int64
	at    int64 // record number
}

// due is an earliest time of delivery.
type due struct {
	clock int64
	at    int64 // record number; 0: of the enqueue, also valid for starts recorded before it
	maybe bool
}

// New returns an empty history.
func New(o Options) *History {
	h := &History{options: o, seed: maphash.MakeSeed()}
	for i := range h.shards {
		h.shards[i].messages = map[string]*message{}
	}
	return h
}

// Record records events. Rules about the order of events use the order of the calls.
func (h *History) Record(events ...Event) error {
	for _, e := range events {
		if err := e.check(); err != nil {
			return err
		}
		s := &h.shards[maphash.String(h.seed, e.ID)%uint64(len(h.shards))]
		s.mu.Lock()
		m := s.messages[e.ID]
		if m == nil {
			m = &message{}
			s.messages[e.ID] = m
		}
		m.record(e, h.clock.Add(1))
		s.mu.Unlock()
	}
	return nil
}

func (m *message) record(e Event, at int64) {
	switch e.Kind {
	case Enqueued:
		m.enqueued++
		m.dues = append(m.dues, due{clock: e.Due})
	case MaybeEnqueued:
		m.maybe++
		m.dues = append(m.dues, due{clock: e.Due})
	case Rescheduled, MaybeRescheduled:
		m.dues = append(m.dues, due{clock: e.Due, at: at, maybe: e.Kind == MaybeRescheduled})
	case Started:
		m.starts = append(m.starts, start{e.Token, e.Due, e.Clock, at})
	case Failed:
		m.failed++
		m.failures = append(m.failures, e.Token)
	case Acked:
		m.acks = append(m.acks, e.Token)
	case Handled:
		m.handled = append(m.handled, e.Token)
	case Cancelled:
		if m.cancelled.at == 0 {
			m.cancelled = point{at, e.Clock}
		}
	case Interrupted:
		if m.interrupted.at == 0 {
			m.interrupted = point{at, e.Clock}
		}
	case Recurring:
		m.recurring = true
	case Kept:
		m.ends &^= 1 << (MaybeCancelled - Handled)
	}
	switch e.Kind {
	case Handled, Acked, Dead, Cancelled, MaybeCancelled, Interrupted:
		m.ends |= 1 << (e.Kind - Handled)
	}
}

// over reports whether the message is no longer in the queue. A recurring message is not over when
// a run was handled.
func (m *message) over() bool {
	ends := m.ends
	if m.recurring {
		ends &^= 1 | 1<<(Acked-Handled)
	}
	return ends != 0
}

func (m *message) ended(kind Kind) bool { return m.ends&(1<<(kind-Handled)) != 0 }
