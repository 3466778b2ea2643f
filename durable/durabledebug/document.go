package durabledebug

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/internal/webpage"
	"github.com/timingwheel-go/timingwheel/wheeldebug"
)

// schemaVersion is the version of the JSON document: see the package documentation.
const schemaVersion = 1

// jsonDocument is the JSON document: the list of queues, and one queue.
type jsonDocument struct {
	Schema  int            `json:"schema"`          // [schemaVersion]
	Error   string         `json:"error,omitempty"` // with status 404: no queue has this name; with 503: the store does not answer
	Actions bool           `json:"actions"`         // [Handler.Actions]
	Queues  []entry        `json:"queues"`          // in the order of [Handler.Add]
	Queue   map[string]any `json:"queue"`           // the requested queue, as in the package documentation; null if there is none or its store does not answer
}

// entry is an element of the list of queues.
type entry struct {
	Name string `json:"name"`
}

// band counts the pending messages that are due more than FromNs and at most ToNs from now. Both
// are 0 in the band of the messages that are due. Messages that are due in more than 292 years are
// in no band.
type band struct {
	FromNs   int64 `json:"from_ns"`
	ToNs     int64 `json:"to_ns"`
	Messages int64 `json:"messages"`
}

// partition has the counts of a partition.
type partition struct {
	Pending   int64 `json:"pending"`
	Due       int64 `json:"due"`
	OverdueNs int64 `json:"overdue_ns"`
	InFlight  int64 `json:"in_flight"`
	Dead      int64 `json:"dead"`
}

// message is a dead letter or a recurring message.
type message struct {
	ID          string            `json:"id"`
	Reason      string            `json:"reason"` // the last error
	Attempts    int               `json:"attempts"`
	MaxAttempts int               `json:"max_attempts"`
	Crashes     int               `json:"crashes"`
	Enqueued    time.Time         `json:"enqueued"`
	Died        time.Time         `json:"died,omitzero"`      // of a dead letter
	Repeat      string            `json:"repeat,omitempty"`   // of a recurring message, like the next two
	Due         time.Time         `json:"due,omitzero"`       // of the next run, or of the present one; none: crashes have stopped the series
	Running     bool              `json:"running,omitempty"`  // it has begun
	ExpireAt    time.Time         `json:"expire_at,omitzero"` // at most in the year 9999
	Bytes       int               `json:"bytes"`              // size of the body
	Headers     map[string]string `json:"headers,omitempty"`  // if [Handler.Headers] is set
	Error       string            `json:"error,omitempty"`    // why the content cannot be read
}

// maxListed is the maximum number of messages in a list of a document.
const maxListed = 100

// bounds are the upper bounds of the bands.
var bounds = []time.Duration{
	0, time.Second, 5 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 3 * time.Hour,
	12 * time.Hour, day, 3 * day, 7 * day, 30 * day, 90 * day, 365 * day, 1<<63 - 1,
}

const day = 24 * time.Hour

// readQueue reads all data of a queue. The searches for messages end after most.
func readQueue(ctx context.Context, name string, q *durable.Queue, l *lists, headers bool, most time.Duration) (map[string]any, error) {
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
	if err := cmp.Or(
		l.dead.search(ctx, q, headers, most, st.Dead, durable.StateDead),
		l.recurring.search(ctx, q, headers, most, st.InFlight+st.Scheduled, durable.StateLeased, durable.StateScheduled),
	); err != nil {
		return nil, err
	}
	bands, last := make([]band, len(bounds)), band{}
	for i, to := range bounds {
		bands[i] = band{last.ToNs, int64(to), due[i] - last.Messages}
		last.ToNs, last.Messages = int64(to), due[i]
	}
	partitions := make([]partition, len(st.Partitions))
	for i, c := range st.Partitions {
		partitions[i] = partition{Pending: c.Scheduled, Due: c.Due, OverdueNs: int64(c.DueFor()), InFlight: c.InFlight, Dead: c.Dead}
	}
	return map[string]any{
		"name": name, "taken": time.Now(), "now": st.Now,
		"paused": st.Paused, "pending": st.Scheduled, "due": st.Due, "overdue_ns": st.OverdueFor, "in_flight": st.InFlight,
		"dead": st.Dead, "dead_bytes": st.DeadBytes, "unreadable": st.Unreadable, "lost": st.Lost,
		"prefetched": st.Prefetched, "running": st.Firing, "unowned": st.Unowned,
		"counters": map[string]uint64{
			"enqueued": st.Enqueued, "acked": st.Acked, "retried": st.Retried, "buried": st.Buried, "cancelled": st.Cancelled,
			"crashed": st.Crashed, "expired": st.Expired, "trimmed": st.Trimmed,
		},
		"bands": bands, "lateness": webpage.LatenessOf(&st.Lateness.Histogram).(wheeldebug.Lateness),
		"consumers": consumers, "partitions": partitions, "dead_letters": l.dead.messages, "recurring": l.recurring.messages,
		"recurring_found": l.recurring.found, "searched": l.recurring.searched, "searched_all": l.recurring.all,
	}, nil
}

// list is the result of a search for messages.
type list struct {
	messages []message // the first maxListed
	found    int       // number of messages found
	searched int       // number of messages read
	all      bool      // all messages were read
	until    time.Time // when the next search may begin
}

// search reads the n messages in the given states, for at most the given time, unless the last
// search is recent. It finds the first dead letters, or recurring messages: the stopped ones first,
// then by due time.
func (l *list) search(ctx context.Context, q *durable.Queue, headers bool, most time.Duration, n int64, states ...durable.State) error {
	began, next := time.Now(), list{messages: []message{}, all: true}
	if n == 0 {
		states = nil
	} else if began.Before(l.until) {
		return nil
	}
	for _, state := range states {
		for r, err := range q.List(ctx, state) {
			if err != nil {
				return err
			}
			if next.all = time.Since(began) < most; !next.all || state == durable.StateDead && next.found == maxListed {
				break
			}
			next.searched++
			if state != durable.StateDead && r.Repeat == "" {
				continue
			}
			m := newMessage(&r, headers)
			at, _ := slices.BinarySearchFunc(next.messages, m, func(a, m message) int { return cmp.Or(a.Due.Compare(m.Due), -1) })
			next.messages = slices.Insert(next.messages, at, m)
			next.messages = next.messages[:min(len(next.messages), maxListed)]
			next.found++
		}
	}
	next.until = time.Now().Add(searchFactor * time.Since(began))
	*l = next
	return nil
}

func newMessage(r *durable.Record, headers bool) message {
	m := message{
		ID: r.ID, Reason: r.Reason, Attempts: r.Attempts, MaxAttempts: r.MaxAttempts, Crashes: r.Crashes, Enqueued: r.Enqueued,
		Died: r.Died, Repeat: r.Repeat, Running: r.State == durable.StateFiring, ExpireAt: r.ExpireAt, Bytes: len(r.Body),
	}
	if r.State != durable.StateDead && r.Due.Year() <= 9999 {
		m.Due = r.Due
	}
	if r.ExpireAt.Year() > 9999 {
		m.ExpireAt = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC) // JSON has no later year
	}
	if headers {
		m.Headers = r.Headers
	}
	if r.Err != nil {
		m.Error = r.Err.Error()
	}
	return m
}
