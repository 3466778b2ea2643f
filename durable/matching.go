package durable

import (
	"context"
	"fmt"
	"strings"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// CancelReport says what became of the messages that [Queue.CancelMatching] has found.
type CancelReport struct {
	Cancelled int // messages that will not be delivered
	Firing    int // messages that have begun, and may be delivered again if this delivery fails

	// Unreadable counts the messages that may match or not, because this version of the program
	// cannot read their headers. They stay as they are.
	Unreadable int
}

// CancelMatching cancels the messages that have all of these headers with these values, such as
// those of one customer. Headers without any key are [ErrInvalid]. For each message that it
// reports, CancelMatching is as exact as [Queue.Cancel]: after Cancelled no handler is called. Dead
// letters are left: see [Queue.PurgeAll].
//
// CancelMatching looks through the queue, partition by partition: first the scheduled messages,
// then those that consumers have claimed or are delivering. The result is not that of one moment. A
// scan finds each message that matches and stays as it is. It may miss a message that, meanwhile,
//
//   - is enqueued,
//   - is rescheduled to an earlier time,
//   - comes back after its delivery has failed.
//
// To call it again is safe. If producers of such messages have stopped and a second call finds
// none, none is left. A message that was cancelled and enqueued again with the same id, or
// replaced, is cancelled only if it matches as well, unless both were enqueued in the same
// millisecond.
//
// If the call fails, or ctx ends, the report has what was done up to then, and the error, which is
// one of [Queue.Cancel], names a message. Calls that were under way may take place and are not
// counted. If messages were Unreadable the call goes on, and its error wraps [ErrVersion] and names
// the first ten.
//
// CancelMatching reads all messages with their bodies, because stores keep no index of headers:
// O(n) in the number of pending messages, and at most 256 of them in memory. See docs/durable.md
// for figures. The memory store, which is for tests, sorts its messages for each page.
func (q *Queue) CancelMatching(ctx context.Context, headers map[string]string) (CancelReport, error) {
	if err := q.usable(ctx); err != nil {
		return CancelReport{}, err
	}
	if len(headers) == 0 {
		return CancelReport{}, fmt.Errorf("durable: cancel: %w headers: there are none; 1 or more are accepted",
			ErrInvalid)
	}
	c := canceller{headers: headers}
	for _, p := range q.parts {
		if err := c.cancel(ctx, p); err != nil {
			return c.report, err
		}
	}
	return c.report, c.failure()
}

// canceller cancels messages that have certain headers.
type canceller struct {
	headers    map[string]string
	report     CancelReport
	unreadable []string // the first ids
}

// cancel looks through a partition. Messages that are claimed meanwhile are met in the second
// state.
func (c *canceller) cancel(ctx context.Context, p *part) error {
	firing := make(map[string]struct{}) // a message may be met in both states
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
	return nil
}

// changes returns the changes that cancel those of some messages that match.
func (c *canceller) changes(records []driver.Record) (changes []driver.Change) {
	for i := range records {
		r := &records[i]
		content, err := decodeEnvelope(r.Body)
		switch {
		case err != nil:
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

// failure is the error of a scan that was not stopped.
func (c *canceller) failure() error {
	if c.report.Unreadable == 0 {
		return nil
	}
	more := ""
	if c.report.Unreadable > len(c.unreadable) {
		more = " and others"
	}
	return fmt.Errorf("durable: cancel: %w: the headers of %d messages cannot be read, which are left: %s%s",
		ErrVersion, c.report.Unreadable, strings.Join(c.unreadable, ", "), more)
}

// changeMany changes messages of a partition, as many at once as find room and the pace allows, and
// tells what became of each. The first error, which names a message, ends it: the calls that were
// not sent are withdrawn.
func (p *part) changeMany(ctx context.Context, op driver.Op, changes []driver.Change, pace *pacer, done func(id string, status driver.Status)) error {
	for len(changes) > 0 {
		n, err := pace.wait(ctx, p.q, len(changes))
		if err == nil {
			err = p.q.room.enter(ctx, 0)
		}
		if err != nil {
			return fmt.Errorf("durable: message %q: %w", changes[0].ID, err)
		}
		var calls []*call[driver.Change, answer]
		for entered := true; entered; entered = len(calls) < n && p.q.room.tryEnter(0) {
			c := newCall[driver.Change, answer](changes[len(calls)])
			c.room = p.q.room
			calls = append(calls, c)
		}
		if err := p.changeTogether(ctx, op, calls, changes, done); err != nil {
			return err
		}
		changes = changes[len(calls):]
	}
	return nil
}

// changeTogether makes calls that have room. After an error it withdraws those that were not sent.
func (p *part) changeTogether(ctx context.Context, op driver.Op, calls []*call[driver.Change, answer], changes []driver.Change, done func(string, driver.Status)) (err error) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	p.changes[op].add(calls...)
	for i, c := range calls {
		o, failure := p.changes[op].wait(ctx, c)
		switch {
		case failure == nil:
			done(changes[i].ID, o.Status)
		case err == nil:
			err = fmt.Errorf("durable: message %q: %w", changes[i].ID, failure)
			leave()
		}
	}
	return err
}
