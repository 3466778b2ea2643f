// Package checker checks the guarantees of a queue against what its users have seen: a history of events, which may come
// from many processes, of which some were killed.
//
// What is recorded of a call is what it has answered, after it has answered. So an event may be missing whose process was killed in between, and
// events of different processes may be recorded in another order than that in which things have happened. The rules allow for both.
package checker

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Kind is what an event tells.
type Kind uint8

// The kinds of events, with the fields that they have next to the id.
const (
	Enqueued         Kind = iota + 1 // an enqueue was acknowledged. Due; Clock may tell when, which no rule looks at
	MaybeEnqueued                    // an enqueue has failed, and may have taken place. Due; Clock likewise
	Started                          // a handler has been called. Token, Clock, Attempt
	Failed                           // a handler has returned an error, or the message was given back. Token
	Handled                          // a handler has done its work, and the acknowledgement follows. Token
	Acked                            // an acknowledgement has succeeded. Token
	Dead                             // the message was found to be a dead letter
	Cancelled                        // a cancel has answered that it is cancelled. Clock may tell when: see [History]
	MaybeCancelled                   // a cancel has failed, and may have taken place
	Rescheduled                      // a reschedule has answered that it is rescheduled. Due
	MaybeRescheduled                 // a reschedule has failed, and may have taken place. Due
	Kept                             // a cancel has answered that it changed nothing, so that MaybeCancelled before it does not count
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

// Event is one thing that was seen of a message. Ids are unique in a history: no id is enqueued again after its message has gone.
type Event struct {
	Kind    Kind
	ID      string
	Due     int64  // the earliest time at which it may be delivered, in milliseconds of the store's clock. 0: at once
	Token   uint64 // of the claim
	Clock   int64  // of the store when the message was begun, in milliseconds
	Attempt int    // of the delivery, as the queue counts
}

// ErrEvent is an event that cannot be recorded, or a line that is none.
var ErrEvent = errors.New("checker: not an event")

func (e Event) check() error {
	if e.Kind < Enqueued || e.Kind > Kept {
		return fmt.Errorf("%w: kind %d; %d to %d are accepted", ErrEvent, e.Kind, Enqueued, Kept)
	}
	if e.ID == "" || strings.ContainsAny(e.ID, "\n\r") {
		return fmt.Errorf("%w: id %q; one that is not empty and has no line ends is accepted", ErrEvent, e.ID)
	}
	return nil
}

// appendTo appends the event's line: its letter, its numbers and its id, which may have spaces in it.
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
	e := Event{Kind: Kind(max(0, strings.IndexByte(letters, f[0][0]))), ID: string(f[5]), Due: due, Token: token, Clock: clock, Attempt: attempt}
	if err := errors.Join(err1, err2, err3, err4, e.check()); err != nil {
		return Event{}, fmt.Errorf("%w: line %.80q: %w", ErrEvent, line, err)
	}
	return e, nil
}
