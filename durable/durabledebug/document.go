package durabledebug

import (
	"context"
	"time"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/internal/webpage"
	"github.com/timingwheel-go/timingwheel/wheeldebug"
)

// schemaVersion is the version of the JSON document. A field may be added without a new version. No
// field is renamed, removed or given another meaning within a version.
const schemaVersion = 1

// jsonDocument is the JSON document: the list of queues, and one queue.
type jsonDocument struct {
	Schema  int     `json:"schema"`          // [schemaVersion]
	Error   string  `json:"error,omitempty"` // with status 404: no queue has this name; with 503: the store does not answer
	Actions bool    `json:"actions"`         // [Handler.Actions]
	Queues  []entry `json:"queues"`          // in the order of [Handler.Add]
	Queue   *Queue  `json:"queue"`           // the requested queue; null if there is none or its store does not answer
}

// entry is an element of the list of queues.
type entry struct {
	Name string `json:"name"`
}

// Queue is one queue in the JSON document. Durations are in nanoseconds and their names end in ns,
// times are RFC 3339 on the store's clock, and all other numbers are counts. The parts are read one
// after another, so they are not an atomic snapshot. They are cached for half a second, or longer
// if reading them is slow.
type Queue struct {
	Name  string    `json:"name"`
	Taken time.Time `json:"taken"` // when the queue was read, on this process's clock
	Now   time.Time `json:"now"`

	Paused     bool   `json:"paused"`  // at least one partition is paused
	Pending    int64  `json:"pending"` // scheduled messages, including due ones
	Due        int64  `json:"due"`     // messages that are due and that no consumer has claimed
	OverdueNs  int64  `json:"overdue_ns"`
	InFlight   int64  `json:"in_flight"` // claimed by consumers, or running
	Dead       int64  `json:"dead"`
	DeadBytes  int64  `json:"dead_bytes"`
	Unreadable int64  `json:"unreadable"` // scheduled messages that this version cannot read
	Lost       uint64 `json:"lost"`       // messages whose records are gone

	Prefetched int `json:"prefetched"` // claimed by this process and not begun
	Running    int `json:"running"`    // begun by this process and not settled
	Unowned    int `json:"unowned"`    // partitions without an owner

	// Counters are the increasing fields of [durable.Counts], by their names in snake case.
	Counters map[string]uint64 `json:"counters"`

	Bands       []band              `json:"bands"`        // pending messages by due time
	Lateness    wheeldebug.Lateness `json:"lateness"`     // of this process
	Consumers   []durable.Consumer  `json:"consumers"`    // of all processes
	Partitions  []partition         `json:"partitions"`   // by number
	DeadLetters []deadLetter        `json:"dead_letters"` // at most 100: one partition after another, the oldest first
}

// band counts the pending messages that are due more than FromNs and at most ToNs from now. Both
// are 0 in the band of the messages that are due. Messages that are due in more than 292 years are
// in no band.
type band struct {
	FromNs   int64 `json:"from_ns"`
	ToNs     int64 `json:"to_ns"`
	Messages int64 `json:"messages"`
}

// partition has the counts of a partition: see [Queue].
type partition struct {
	Pending   int64 `json:"pending"`
	Due       int64 `json:"due"`
	OverdueNs int64 `json:"overdue_ns"`
	InFlight  int64 `json:"in_flight"`
	Dead      int64 `json:"dead"`
}

// deadLetter is a message that is no longer delivered.
type deadLetter struct {
	ID          string            `json:"id"`
	Reason      string            `json:"reason"` // the last error
	Attempts    int               `json:"attempts"`
	MaxAttempts int               `json:"max_attempts"`
	Crashes     int               `json:"crashes"`
	Enqueued    time.Time         `json:"enqueued"`
	Died        time.Time         `json:"died"`
	ExpireAt    time.Time         `json:"expire_at,omitzero"` // at most in the year 9999
	Bytes       int               `json:"bytes"`              // size of the body
	Headers     map[string]string `json:"headers,omitempty"`  // if [Handler.Headers] is set
	Error       string            `json:"error,omitempty"`    // why the content cannot be read
}

// maxDeadLetters is the maximum number of dead letters in a document.
const maxDeadLetters = 100

// bounds are the upper bounds of the bands.
var bounds = []time.Duration{
	0, time.Second, 5 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 3 * time.Hour,
	12 * time.Hour, day, 3 * day, 7 * day, 30 * day, 90 * day, 365 * day, 1<<63 - 1,
}

const day = 24 * time.Hour

// readQueue reads all data of a queue except its dead letters.
func readQueue(ctx context.Context, name string, q *durable.Queue) (*Queue, error) {
	st, err := q.Stats(ctx)
	if err != nil {
		return nil, err
	}
	due, err := q.CountDue(ctx, bounds...)
	if err != nil {
		return nil, err
	}
	consumers, err := q.Consumers(ctx)
	if err != nil {
		return nil, err
	}
	d := &Queue{
		Name: name, Taken: time.Now(), Now: st.Now,
		Paused: st.Paused, Pending: st.Scheduled, Due: st.Due, OverdueNs: int64(st.OverdueFor), InFlight: st.InFlight, Dead: st.Dead, DeadBytes: st.DeadBytes,
		Unreadable: st.Unreadable, Lost: st.Lost,
		Prefetched: st.Prefetched, Running: st.Firing, Unowned: st.Unowned,
		Counters: map[string]uint64{
			"enqueued": st.Enqueued, "acked": st.Acked, "retried": st.Retried, "buried": st.Buried, "cancelled": st.Cancelled,
			"crashed": st.Crashed, "expired": st.Expired, "trimmed": st.Trimmed,
		},
		Bands:      make([]band, len(bounds)),
		Lateness:   webpage.LatenessOf(&st.Lateness.Histogram).(wheeldebug.Lateness),
		Consumers:  consumers,
		Partitions: make([]partition, len(st.Partitions)),
	}
	last := band{}
	for i, to := range bounds {
		d.Bands[i] = band{last.ToNs, int64(to), due[i] - last.Messages}
		last.ToNs, last.Messages = int64(to), due[i]
	}
	for i, c := range st.Partitions {
		d.Partitions[i] = partition{Pending: c.Scheduled, Due: c.Due, OverdueNs: int64(c.DueFor()), InFlight: c.InFlight, Dead: c.Dead}
	}
	return d, nil
}

// readDeadLetters reads the first dead letters.
func readDeadLetters(ctx context.Context, q *durable.Queue, headers bool) ([]deadLetter, error) {
	found := []deadLetter{}
	for r, err := range q.List(ctx, durable.StateDead) {
		if err != nil {
			return nil, err
		}
		d := deadLetter{
			ID: r.ID, Reason: r.Reason, Attempts: r.Attempts, MaxAttempts: r.MaxAttempts, Crashes: r.Crashes,
			Enqueued: r.Enqueued, Died: r.Died, ExpireAt: r.ExpireAt, Bytes: len(r.Body),
		}
		if last := time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC); r.ExpireAt.After(last) {
			d.ExpireAt = last // JSON has no later year
		}
		if headers {
			d.Headers = r.Headers
		}
		if r.Err != nil {
			d.Error = r.Err.Error()
		}
		if found = append(found, d); len(found) == maxDeadLetters {
			break
		}
	}
	return found, nil
}
