package durable

import (
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// heldMessage is a message that this process has claimed. It is guarded by the dispatcher's mutex.
type heldMessage struct {
	record    driver.Record
	part      *consumerPart
	headers   map[string]string // for events; nil without OnEvent
	state     heldState
	timer     timingwheel.Timer // of an armed or waiting message
	until     time.Time         // the earliest end of the lease, on this process's clock
	extending bool              // an extension of the lease is in progress
	renew     bool              // the lease of a taken message is extended: its handler runs
	settling  bool              // the store was asked to end the delivery, and may have done so
	handed    bool              // passed to the handler's worker or to the receiver
	run       *run              // the call to the handler; nil: no handler was called
}

// heldState is the state of a held message. The dispatcher makes all transitions.
//
//	state      the message                               next state, and the event
//	-          is in the store                           armed, ready: claimed
//	                                                     begun, taken: begun with its claim
//	armed      waits in the wheel until it may begin     ready: its timer fires
//	                                                     gone: released
//	ready      is due and waits for a free taker         beginning: match
//	                                                     parked: match, the partition is stalled
//	                                                     gone: released, lease lost
//	parked     is ready, but its partition is stalled    ready: the begin call has ended
//	                                                     gone: released, lease lost
//	beginning  the store was asked to begin it and has   waiting, begun, taken: begun
//	           not answered                              armed: the store's clock was set back
//	                                                     gone: cancelled, rescheduled, lease lost
//	waiting    has begun slightly early, and waits in    begun, taken: its timer fires
//	           the wheel for its due time                gone: lease lost
//	begun      waits for a taker                         taken: take
//	                                                     gone: released, lease lost
//	taken      a handler or receiver has it              gone: settled, released, lease lost
//	gone       is no longer held
//
// In the store, armed, ready, parked and beginning messages are leased, and waiting, begun and
// taken messages are firing. The former count as claimed and not begun (see admission.claimed).
// Beginning and waiting messages occupy a taker (see admission.beginning).
type heldState uint8

const (
	heldArmed heldState = iota
	heldReady
	heldParked
	heldBeginning
	heldWaiting
	heldBegun
	heldTaken
	heldGone
)

// unbegun reports whether the message has not begun.
func (h *heldMessage) unbegun() bool { return h.state <= heldBeginning }

// releasable reports whether the message can be released without counting a crash.
func (h *heldMessage) releasable() bool {
	return h.state < heldBeginning || h.state == heldBegun
}

// unsettled reports whether a handler or receiver has the message and has not settled it. If the
// handler has just returned, its worker settles the message.
func (h *heldMessage) unsettled() bool {
	return h.state == heldTaken && !h.settling && (h.run == nil || !h.run.returned())
}

// gone reports whether the message is no longer held.
func (h *heldMessage) gone() bool { return h.state == heldGone }

// fault returns a fault that concerns the message.
func (h *heldMessage) fault(err error) fault { return fault{h.part.index, h.record.ID, err} }

// change returns a change of the message, with its token.
func (h *heldMessage) change() driver.Change {
	return driver.Change{ID: h.record.ID, Token: h.record.Token}
}

// extended records a new end of the lease.
func (h *heldMessage) extended(a answer) { h.until, h.record.LeaseEnd = a.until(), a.Lease }

// beginLead is how long before its due time a message begins, so that the store's answer arrives
// when the message is due. Until then the message can be cancelled.
const beginLead = 2 * time.Millisecond

// beginResult is the next step after the store's answer to a begin.
type beginResult uint8

const (
	beginDeliver beginResult = iota // it is due: pass it to a taker
	beginWait                       // it is due after wait
	beginRepeat                     // the store's clock was set back: begin again after wait
	beginRelease                    // release it: the partition is paused, or the answer was late
	beginForget                     // it was cancelled, its lease is lost, or the call failed
)

// beginResult returns the next step after the store's answer to the begin of a message. ended means
// that the consumer begins no more messages.
func (h *heldMessage) beginResult(a answer, err error, ended bool) (next beginResult, wait time.Duration) {
	switch {
	case err != nil:
		return beginForget, 0
	case a.Status == driver.StatusDone && h.state == heldGone: // dropped before the answer arrived
		return beginRelease, 0
	case a.Status == driver.StatusDone:
		if wait = a.Due.Time().Sub(a.Now); wait > 0 { // the store read its clock before now
			return beginWait, wait
		}
		return beginDeliver, 0
	case a.Status == driver.StatusPaused && h.state != heldGone:
		return beginRelease, 0
	case a.Status == driver.StatusEarly && h.state != heldGone && ended: // like the messages that retire has released
		return beginRelease, 0
	case a.Status == driver.StatusEarly && h.state != heldGone:
		return beginRepeat, max(a.Due.Time().Sub(a.Now)-beginLead, time.Millisecond)
	}
	return beginForget, 0
}
