package chaos

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
	Duplicates int // starts after a message's first one that follow no failure; not a violation

	// Recurring messages, which the other numbers do not contain, and their acknowledged runs.
	Series, Runs int

	// SlowestRedelivery is the longest time from a start that did not fail to the message's next
	// start, in milliseconds on the store's clock.
	SlowestRedelivery int64

	// Violations.
	Lost          Finding // enqueue acknowledged, and never handled, acked, dead or cancelled; recurring: never cancelled
	Unknown       Finding // an event of a message that was not enqueued, or an end without a start
	Early         Finding // started before the due time on the store's clock
	CancelledRun  Finding // started although it was cancelled
	Repeated      Finding // started although this run was acknowledged
	TokenOrder    Finding // a later start has no higher token
	EnqueuedTwice Finding // two enqueues of one id were acknowledged
	AckedTwice    Finding // two acknowledgements of one message succeeded
}

// ErrViolated is wrapped by the error for a broken guarantee.
var ErrViolated = errors.New("checker: the queue broke a guarantee")

// findings returns the violations with their names.
func (r *Report) findings() []namedFinding {
	return []namedFinding{
		{"lost", &r.Lost},
		{"unknown", &r.Unknown},
		{"early", &r.Early},
		{"cancelled and run", &r.CancelledRun},
		{"repeated", &r.Repeated},
		{"token order", &r.TokenOrder},
		{"enqueued twice", &r.EnqueuedTwice},
		{"acked twice", &r.AckedTwice},
	}
}

type namedFinding struct {
	name string
	*Finding
}

// Err returns nil if no guarantee was broken. Otherwise it returns an error that wraps
// [ErrViolated], with counts and examples.
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
	if r.Series > 0 {
		fmt.Fprintf(&text, "; %d recurring with %d acked runs", r.Series, r.Runs)
	}
	for _, f := range r.findings() {
		fmt.Fprintf(&text, "; %s %d", f.name, f.Count)
	}
	return text.String()
}
