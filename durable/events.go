package durable

import (
	"strconv"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// EventKind is the kind of an [Event].
type EventKind uint8

// Kinds of events. A message that is handled without an error is claimed, begun, delivered and
// acked.
const (
	// EventClaimed: a message was claimed. A message that is due may begin in the same step.
	EventClaimed EventKind = iota + 1

	// EventBegun: a message became firing. From then on Cancel returns ResultFiring.
	EventBegun

	// EventDelivered: the handler of a message is about to be called, or Take is about to return.
	EventDelivered

	// EventAcked: the store removed a message that was acknowledged.
	EventAcked

	// EventAgain: the store acknowledged a message and made it due again. See [Again]. A run of a
	// recurring message ends with EventAgain or EventRunFailed, even if it was the last one.
	EventAgain

	// EventRunFailed: the last attempt in a run of a recurring message has failed, and the store
	// made the message due at the time of the next run. Err is set.
	EventRunFailed

	// EventPostponed: the store rescheduled a message without counting an attempt. Err is set if
	// the handler has declined the message: see [Decline].
	EventPostponed

	// EventRetried: the store rescheduled a message after a failed attempt.
	EventRetried

	// EventBuried: the store made a message a dead letter after a failed attempt.
	EventBuried

	// EventExpired: the store removed a message after its ExpireAt instead of delivering it.
	EventExpired

	// EventLeaseLost: the lease of a firing message has expired or is about to expire. Err is set.
	EventLeaseLost

	// EventRebalanced: the set of partitions that this consumer owns has changed. See Event.Owned.
	EventRebalanced

	// EventError: a background call failed. Err is set.
	EventError
)

var eventNames = []string{
	"Claimed", "Begun", "Delivered", "Acked", "Again", "RunFailed", "Postponed", "Retried", "Buried", "Expired", "LeaseLost",
	"Rebalanced", "Error",
}

// String returns the name of the kind without its prefix, or "EventKind(n)" for an undeclared one.
func (k EventKind) String() string {
	if k == 0 || int(k) > len(eventNames) {
		return "EventKind(" + strconv.Itoa(int(k)) + ")"
	}
	return eventNames[k-1]
}

// Event is a step taken by a consumer in this process, or a background error. Crashes of other
// processes, and calls such as Cancel, are not events.
type Event struct {
	Kind      EventKind
	Queue     string        // name of the queue
	Partition int           // -1: the event concerns the whole queue
	Time      time.Time     // on this process's clock: when the event happened, or Duration began
	Duration  time.Duration // of the store call that claimed, began or settled a message

	// The message, if the event concerns one; otherwise ID is empty. Headers must not be modified.
	ID       string
	Token    uint64 // of the claim
	Attempts int    // failed deliveries before this one
	Headers  map[string]string

	Owned []int         // EventRebalanced: the partitions that the consumer now owns
	Delay time.Duration // EventRetried, EventPostponed, EventAgain, EventRunFailed: until the message is due again; 0 for AgainAt
	Err   error         // EventError, EventLeaseLost; EventRetried, EventBuried, EventPostponed: why the delivery failed or was declined
}

// emit calls OnEvent.
func (q *Queue) emit(e Event) {
	e.Queue = q.options.Queue
	q.options.OnEvent(e)
}

// emit calls OnEvent for a message, if OnEvent is set and e has a kind. If start is not zero, the
// event's duration is the time since start. No lock is held.
func (h *heldMessage) emit(e Event, start time.Time) {
	q, r := h.part.q, &h.record
	if q.options.OnEvent == nil || e.Kind == 0 {
		return
	}
	e.Partition, e.ID, e.Token, e.Attempts, e.Headers, e.Time = h.part.index, r.ID, r.Token, r.Attempts, h.headers, start
	if now := time.Now(); start.IsZero() {
		e.Time = now
	} else {
		e.Duration = now.Sub(start)
	}
	q.emit(e)
}

// emitClaims calls OnEvent for messages that were claimed by a call that began at sent.
func (q *Queue) emitClaims(messages []*heldMessage, sent time.Time) {
	if q.options.OnEvent == nil {
		return
	}
	for _, h := range messages {
		if c, err := decodeEnvelope(h.record.Body); err == nil { // newDelivery reports an error
			h.headers = c.headers
		}
		h.emit(Event{Kind: EventClaimed}, sent)
		if h.record.State == driver.StateFiring {
			h.emit(Event{Kind: EventBegun}, sent)
		}
	}
}
