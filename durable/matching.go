package durable

import (
	"context"
	"fmt"
	"strings"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// CancelReport is the result of [Queue.CancelMatching] and [Queue.CancelAll].
type CancelReport struct {
	Cancelled int // messages that will not be delivered
	Firing    int // messages whose delivery has begun, and which may be redelivered if it fails

	// Unreadable counts messages whose headers this version of the program cannot read. They are
	// not cancelled, whether or not they match.
	Unreadable int
}

// CancelMatching cancels the messages that have all of the given headers with the given values, for
// example all messages of one customer. It returns [ErrInvalid] if headers is empty. For each
// message that it counts, CancelMatching is as exact as [Queue.Cancel]: no handler is called for a
// message once it is cancelled. Dead letters are not affected: see [Queue.DeleteAllDead].
//
// CancelMatching scans one partition after another: first the scheduled messages, then the messages
// that consumers have claimed or are delivering. The scan is not atomic. It may miss a message
// that, during the scan,
//
//   - is enqueued,
//   - is rescheduled to an earlier time, or
//   - returns from a consumer, because its delivery failed or the consumer ended.
//
// It finds all other matching messages. Another call finds a missed message unless the message
// moves again. If a message replaces another one during the scan, or reuses the id of a cancelled
// one, it is cancelled only if it matches as well. Messages that were enqueued with the same id in
// the same millisecond cannot be distinguished.
//
// If the call fails, or ctx ends, the report has the numbers up to that point. The errors are the
// same as from [Queue.Cancel], and name a message or a partition. Calls in progress may take effect
// and are not counted. Unreadable messages do not end the scan. If there are any, the error
// returned after the scan wraps [ErrVersion] and names the first ten. A message whose whole record
// is unreadable is neither listed nor counted here: see [Counts].Unreadable.
//
// CancelMatching reads all pending messages with their bodies, because stores have no index on
// headers. It is O(n) in the number of pending messages, and holds at most 256 of them in memory.
func (q *Queue) CancelMatching(ctx context.Context, headers map[string]string) (CancelReport, error) {
	if err := q.checkOpen(ctx); err != nil {
		return CancelReport{}, err
	}
	if len(headers) == 0 {
		return CancelReport{}, fmt.Errorf("durable: cancel: %w headers: empty; there must be at least one",
			ErrInvalid)
	}
	return cancelEach(ctx, q, &canceller{headers: headers})
}

// CancelAll cancels all pending messages, with and without headers, including those whose headers
// cannot be read. It scans the queue as [Queue.CancelMatching] does, with the same errors and cost.
func (q *Queue) CancelAll(ctx context.Context) (CancelReport, error) {
	if err := q.checkOpen(ctx); err != nil {
		return CancelReport{}, err
	}
	return cancelEach(ctx, q, new(canceller))
}

func cancelEach(ctx context.Context, q *Queue, c *canceller) (CancelReport, error) {
	for _, p := range q.parts {
		if err := c.cancel(ctx, p); err != nil {
			return c.report, err
		}
	}
	return c.report, c.failure()
}

// canceller cancels the messages that have certain headers, or all if there are none.
type canceller struct {
	headers    map[string]string
	report     CancelReport
	unreadable []string // the first ids
}

// cancel scans a partition. The second state includes the messages that were claimed during the
// scan.
func (c *canceller) cancel(ctx context.Context, p *part) error {
	before := c.report.Cancelled
	firing := make(map[string]struct{}) // the scan may find a message in both states
	defer func() { c.report.Firing += len(firing) }()
	for _, state := range []State{StateScheduled, StateLeased} {
		for records, err := range p.pages(ctx, state) {
			if err == nil {
				err = p.changeMany(ctx, driver.OpCancel, c.changes(records), new(pacer), func(id string, status driver.Status) {
					switch status {
					case driver.StatusDone:
						c.report.Cancelled++
						delete(firing, id)
					case driver.StatusFiring:
						firing[id] = struct{}{}
					}
				})
			}
			if err != nil {
				return err
			}
		}
	}
	if c.report.Cancelled > before {
		return nil
	}
	return p.confirm(ctx, driver.OpCancel)
}

// changes returns the changes that cancel the matching messages of a page.
func (c *canceller) changes(records []driver.Record) (changes []driver.Change) {
	for i := range records {
		r := &records[i]
		content, err := decodeEnvelope(r.Body)
		switch {
		case err != nil && len(c.headers) > 0:
			c.report.Unreadable++
			if len(c.unreadable) < 10 {
				c.unreadable = append(c.unreadable, fmt.Sprintf("%q", r.ID))
			}
		case c.matches(content.headers):
			changes = append(changes, driver.Change{ID: r.ID, Incarnation: r.Enqueued})
		}
	}
	return changes
}

func (c *canceller) matches(headers map[string]string) bool {
	for key, want := range c.headers {
		if value, ok := headers[key]; !ok || value != want {
			return false
		}
	}
	return true
}

// failure returns the error of a completed scan.
func (c *canceller) failure() error {
	if c.report.Unreadable == 0 {
		return nil
	}
	more := ""
	if c.report.Unreadable > len(c.unreadable) {
		more = " and others"
	}
	return fmt.Errorf("durable: cancel: %w: the headers of %d messages cannot be read; these messages were not cancelled: %s%s",
		ErrVersion, c.report.Unreadable, strings.Join(c.unreadable, ", "), more)
}
