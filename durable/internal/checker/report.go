package checker

import (
	"errors"
	"fmt"
	"strings"
)

// Report is the result of [History.Check].
type Report struct {
	// Numbers of messages.
	Enqueued      int // acknowledged
	MaybeEnqueued int // not acknowledged; may have been enqueued
	Delivered     int // started at least once
	Handled       int
	Acked         int
	Dead          int
	Cancelled     int

	// Numbers of deliveries.
	Starts     int
	Failed     int
	Duplicates int // starts after the first of a message that do not follow a failure; no violation

	MaxAttempt int

	// SlowestRedelivery is the longest time from a start that did not fail to the next start of the
	// message, in milliseconds of the store's clock.
	SlowestRedelivery int64

	Earliest int64 // the longest time before a due time in Early, in milliseconds

	// Violations.
	Lost          Finding // enqueue acknowledged, and never handled, acked, dead or cancelled
	Unknown       Finding // an event of a message without an enqueue, or an end without a start
	Early         Finding // started before the due time, by the store's clock
	CancelledRun  Finding // run although it was cancelled
	TokenOrder    Finding // the token of a later start is not higher
	EnqueuedTwice Finding // two enqueues of one id were acknowledged
	AckedTwice    Finding // two acknowledgements of one message have succeeded
}

// ErrViolated is the error for a broken guarantee.
var ErrViolated = errors.New("checker: the queue has broken a guarantee")

// findings returns the violations with their names.
func (r *Report) findings() []namedFinding {
	return []namedFinding{
		{"lost", &r.Lost},
		{"unknown", &r.Unknown},
		{"early", &r.Early},
		{"cancelled and run", &r.CancelledRun},
		{"token order", &r.TokenOrder},
		{"enqueued twice", &r.EnqueuedTwice},
		{"acked twice", &r.AckedTwice},
	}
}

type namedFinding struct {
	name string
	*Finding
}

// Err returns nil if no guarantee was broken, else [ErrViolated] with numbers and examples.
func (r *Report) Err() error {
	var text strings.Builder
	for _, f := range r.findings() {
		if f.Count > 0 {
			fmt.Fprintf(&text, "\n%s: %d, such as\n\t%s", f.name, f.Count, strings.Join(f.Examples, "\n\t"))
		}
	}
	if text.Len() == 0 {
		return nil
	}
	return fmt.Errorf("%w:%s", ErrViolated, text.String())
}

// String returns the report in one line.
func (r *Report) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d enqueued (and %d perhaps), %d delivered in %d starts, %d handled, %d acked, %d dead, %d cancelled",
		r.Enqueued, r.MaybeEnqueued, r.Delivered, r.Starts, r.Handled, r.Acked, r.Dead, r.Cancelled)
	fmt.Fprintf(&text, "; %d failed, %d duplicates, redelivered after %d ms at most", r.Failed, r.Duplicates, r.SlowestRedelivery)
	for _, f := range r.findings() {
		fmt.Fprintf(&text, "; %s %d", f.name, f.Count)
	}
	return text.String()
}
