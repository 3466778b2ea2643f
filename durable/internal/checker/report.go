package checker

import (
	"errors"
	"fmt"
	"strings"
)

// Report is what [History.Check] has found.
type Report struct {
	// Numbers of messages.
	Enqueued      int // acknowledged
	MaybeEnqueued int // not acknowledged, and perhaps there
	Delivered     int // started at least once
	Handled       int
	Acked         int
	Dead          int
	Cancelled     int

	// Numbers of deliveries.
	Starts     int
	Failed     int
	Duplicates int // starts beyond the first of a message that do not follow a failure; no violation

	MaxAttempt        int
	SlowestRedelivery int64 // the longest time between two starts of a message of which the first did not fail, in milliseconds of the store's clock
	Earliest          int64 // how early the worst of Early was, in milliseconds

	// Violations.
	Lost          Finding // enqueue acknowledged, and never handled, acked, dead or cancelled
	Unknown       Finding // an event of a message that nobody has enqueued, or the end of a delivery that nobody has started
	Early         Finding // started before the due time, by the store's clock
	CancelledRun  Finding // cancelled, and run all the same
	TokenOrder    Finding // the token of a later start is not higher
	EnqueuedTwice Finding // two enqueues of one id were acknowledged
	AckedTwice    Finding // two acknowledgements of one message have succeeded
}

// ErrViolated is that a guarantee was broken.
var ErrViolated = errors.New("checker: the queue has broken its word")

// findings are the violations by name.
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

// Err is nil if no guarantee was broken, or [ErrViolated] with the numbers and some examples.
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

// String is the report in one line.
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
