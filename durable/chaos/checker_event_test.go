package chaos

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The checker checks the guarantees of a queue against a history of events that the users of the
// queue recorded. The events may come from many processes, and some of the processes may have been
// killed.
//
// A process records the result of a call after the call has returned. If the process is killed in
// between, the event is missing. Events of several processes may be recorded in a different order
// than their calls took effect. The rules allow for both.

// Kind is the kind of an event.
type Kind uint8

// Kinds of events, with the fields that they use in addition to the id.
const (
	Enqueued         Kind = iota + 1 // an enqueue was acknowledged. Due; Clock is optional
	MaybeEnqueued                    // an enqueue failed, or took effect. Due, Clock
	Started                          // a handler was called. Due, Token, Clock, Attempt
	Failed                           // a handler returned an error, or released the message. Token
	Handled                          // a handler has done its work and will acknowledge. Token
	Acked                            // an acknowledgement succeeded. Token
	Dead                             // the message was found to be a dead letter
	Cancelled                        // a cancel succeeded. Clock is optional: see [History]
	MaybeCancelled                   // a cancel failed and may have taken effect
	Rescheduled                      // a reschedule succeeded. Due
	MaybeRescheduled                 // a reschedule failed and may have taken effect. Due
	Kept                             // a cancel changed nothing, which revokes MaybeCancelled
	Recurring                        // the message is recurring. Its other events may follow
	Interrupted                      // a cancel found the message running, for the last time. Clock
)

// letters are the kinds in the lines of a file.
const letters = " EeSFHADCcRrKNI"

func (k Kind) String() string {
	names := []string{
		"none", "enqueued", "maybe enqueued", "started", "failed", "handled", "acked", "dead", "cancelled",
		"maybe cancelled", "rescheduled", "maybe rescheduled", "kept", "recurring", "interrupted",
	}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Event is an observation of a message. Ids are unique in a history: an id is not reused after its
// message is gone.
type Event struct {
	Kind    Kind
	ID      string
	Due     int64  // earliest delivery, in milliseconds on the store's clock; 0: immediately
	Token   uint64 // of the claim
	Clock   int64  // when the message began, in milliseconds on the store's clock
	Attempt int    // number of the delivery according to the queue
}

// ErrEvent is wrapped by the error for an invalid event or line.
var ErrEvent = errors.New("checker: not an event")

func (e Event) check() error {
	if e.Kind < Enqueued || e.Kind > Interrupted {
		return fmt.Errorf("%w: kind %d; it must be from %d to %d", ErrEvent, e.Kind, Enqueued, Interrupted)
	}
	if e.ID == "" || strings.ContainsAny(e.ID, "\n\r") {
		return fmt.Errorf("%w: id %q; it must not be empty or contain line breaks", ErrEvent, e.ID)
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

// parse parses a line without its line break.
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
