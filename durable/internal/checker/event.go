// Package checker checks the guarantees of a queue against a history of events that its users have
// seen. The events may come from many processes, and some of the processes may have been killed.
//
// A process records the answer of a call after the call has returned. If the process is killed in
// between, the event is missing. Events of several processes may be recorded in another order than
// the calls took place. The rules allow for both.
package checker

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Kind is the kind of an event.
type Kind uint8

// The kinds of events, with the fields that they have beside the id.
const (
	Enqueued         Kind = iota + 1 // an enqueue was acknowledged. Due; Clock is optional and has no rule
	MaybeEnqueued                    // an enqueue has failed and may have taken place. Due; Clock as above
	Started                          // a handler has been called. Token, Clock, Attempt
	Failed                           // a handler has returned an error, or the message was given back. Token
	Handled                          // a handler has done its work and will acknowledge. Token
	Acked                            // an acknowledgement has succeeded. Token
	Dead                             // the message was found to be a dead letter
	Cancelled                        // a cancel has succeeded. Clock is optional: see [History]
	MaybeCancelled                   // a cancel has failed and may have taken place
	Rescheduled                      // a reschedule has succeeded. Due
	MaybeRescheduled                 // a reschedule has failed and may have taken place. Due
	Kept                             // a cancel has changed nothing, which revokes MaybeCancelled
)

// letters are the kinds in a line of a file.
const letters = " EeSFHADCcRrK"

func (k Kind) String() string {
	names := []string{
		"none", "enqueued", "maybe enqueued", "started", "failed", "handled", "acked", "dead", "cancelled",
		"maybe cancelled", "rescheduled", "maybe rescheduled", "kept",
	}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Event is an observation of a message. Ids are unique in a history: no id is enqueued again after
// its message is gone.
type Event struct {
	Kind    Kind
	ID      string
	Due     int64  // the earliest time of delivery, in milliseconds of the store's clock; 0: at once
	Token   uint64 // of the claim
	Clock   int64  // the store's clock when the message began, in milliseconds
	Attempt int    // number of the delivery, by the queue
}

// ErrEvent is the error for an invalid event or line.
var ErrEvent = errors.New("checker: not an event")

func (e Event) check() error {
	if e.Kind < Enqueued || e.Kind > Kept {
		return fmt.Errorf("%w: kind %d; %d to %d are accepted", ErrEvent, e.Kind, Enqueued, Kept)
	}
	if e.ID == "" || strings.ContainsAny(e.ID, "\n\r") {
		return fmt.Errorf("%w: id %q; a text that is not empty and has no line ends is accepted", ErrEvent, e.ID)
	}
	return nil
}

// appendTo appends the event's line: its letter, its numbers and its id, which may contain spaces.
func (e Event) appendTo(line []byte) []byte {
	line = append(line, letters[e.Kind], ' ')
	line = append(strconv.AppendInt(line, e.Due, 10), ' ')
	line = append(strconv.AppendUint(line, e.Token, 10), ' ')
	line = append(strconv.AppendInt(line, e.Clock, 10), ' ')
	line = append(strconv.AppendInt(line, int64(e.Attempt), 10), ' ')
	return append(append(line, e.ID...), '\n')
}

// parse reads a line without its end.
func parse(line []byte) (Event, error) {
	f := bytes.SplitN(line, []byte(" "), 6)
	if len(f) != 6 || len(f[0]) != 1 {
		return Event{}, fmt.Errorf("%w: line %.80q", ErrEvent, line)
	}
	due, err1 := strconv.ParseInt(string(f[1]), 10, 64)
	token, err2 := strconv.ParseUint(string(f[2]), 10, 64)
	clock, err3 := strconv.ParseInt(string(f[3]), 10, 64)
	attempt, err4 := strconv.Atoi(string(f[4]))
	kind := Kind(max(0, strings.IndexByte(letters, f[0][0])))
	e := Event{Kind: kind, ID: string(f[5]), Due: due, Token: token, Clock: clock, Attempt: attempt}
	if err := errors.Join(err1, err2, err3, err4, e.check()); err != nil {
		return Event{}, fmt.Errorf("%w: line %.80q: %w", ErrEvent, line, err)
	}
	return e, nil
}
