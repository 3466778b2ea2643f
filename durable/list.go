package durable

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// List iterates over the messages in one state, partition by partition, and in each in the order of their times. [StateLeased] stands for
// leased and firing messages; [StateFiring] is [ErrInvalid]. List reads a page at a time; what changes meanwhile may be missed or
// seen twice. An error ends it.
func (q *Queue) List(ctx context.Context, state State) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		err := q.usable(ctx)
		if err == nil && state != StateScheduled && state != StateLeased && state != StateDead {
			err = fmt.Errorf("durable: list: %w state %v: %v, %v (firing messages too) and %v are accepted",
				ErrInvalid, state, StateScheduled, StateLeased, StateDead)
		}
		if err != nil {
			yield(Record{}, err)
			return
		}
		for i := range q.parts {
			if !q.listPart(ctx, i, state, yield) {
				return
			}
		}
	}
}

func (q *Queue) listPart(ctx context.Context, part int, state State, yield func(Record, error) bool) bool {
	for cursor := ""; ; {
		records, next, err := q.backend.List(ctx, part, state, cursor, driver.MaxBatch)
		if err != nil {
			yield(Record{}, fmt.Errorf("durable: list partition %d: %w", part, err))
			return false
		}
		for i := range records {
			if !yield(newRecord(&records[i]), nil) {
				return false
			}
		}
		if cursor = next; cursor == "" {
			return true
		}
	}
}

// Dead iterates over the dead letters. It is [Queue.List] of [StateDead].
func (q *Queue) Dead(ctx context.Context) iter.Seq2[Record, error] {
	return q.List(ctx, StateDead)
}

// Replay schedules a dead letter again, delay from now, as if it had never been delivered. [ErrNotFound] says that there is none with this id.
func (q *Queue) Replay(ctx context.Context, id string, delay time.Duration) error {
	return q.exhume(ctx, driver.OpReplay, driver.Change{ID: id, Delay: max(0, delay)})
}

// Purge removes a dead letter. [ErrNotFound] says that there is none with this id.
func (q *Queue) Purge(ctx context.Context, id string) error {
	return q.exhume(ctx, driver.OpPurge, driver.Change{ID: id})
}

func (q *Queue) exhume(ctx context.Context, op driver.Op, c driver.Change) error {
	o, err := q.change(ctx, op, c)
	if err == nil && o.Status != driver.StatusDone {
		err = ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("durable: dead letter %q: %w", c.ID, err)
	}
	return nil
}

// ReplayAll replays the dead letters that are there now, and returns how many. After an error it
// asks for no more of them. What was under way then may take place and is not counted. Errors are
// those of [Queue.Cancel].
func (q *Queue) ReplayAll(ctx context.Context, delay time.Duration) (int, error) {
	return q.exhumeAll(ctx, driver.OpReplay, driver.Change{Delay: max(0, delay)})
}

// PurgeAll removes the dead letters that are there now, and returns how many. Errors are as with
// [Queue.ReplayAll].
func (q *Queue) PurgeAll(ctx context.Context) (int, error) {
	return q.exhumeAll(ctx, driver.OpPurge, driver.Change{})
}

func (q *Queue) exhumeAll(ctx context.Context, op driver.Op, change driver.Change) (n int, err error) {
	if err := q.usable(ctx); err != nil {
		return 0, err
	}
	for _, p := range q.parts {
		counts, err := q.backend.Count(ctx, p.index)
		if err != nil {
			return n, fmt.Errorf("durable: dead letters of partition %d: %w", p.index, err)
		}
		done, err := p.exhumeSome(ctx, op, change, counts.Dead)
		n += done
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// exhumeSome takes up to most dead letters, the oldest first: so those that die anew meanwhile are
// not taken again and again. A page may be empty although there is more, because its records cannot
// be read.
func (p *part) exhumeSome(ctx context.Context, op driver.Op, change driver.Change, most int64) (n int, err error) {
	for cursor := ""; most > 0; {
		records, next, err := p.q.backend.List(ctx, p.index, driver.StateDead, cursor, int(min(most, driver.MaxBatch)))
		if err != nil {
			return n, fmt.Errorf("durable: dead letters of partition %d: %w", p.index, err)
		}
		for rest := records; len(rest) > 0; {
			var done, asked int
			done, asked, err = p.exhume(ctx, op, change, rest)
			n += done
			if err != nil {
				return n, err
			}
			rest = rest[asked:]
		}
		most -= int64(len(records))
		if cursor = next; cursor == "" {
			break
		}
	}
	return n, nil
}

// exhume takes the first of some dead letters, as many at once as there is room for. After an error
// it leaves those that were not sent. It returns how many it has taken, and for how many it has asked.
func (p *part) exhume(ctx context.Context, op driver.Op, change driver.Change, records []driver.Record) (n, asked int, err error) {
	if err := p.q.room.enter(ctx, 0); err != nil {
		return 0, 0, fmt.Errorf("durable: dead letter %q: %w", records[0].ID, err)
	}
	var calls []*call[driver.Change, answer]
	for entered := true; entered; entered = len(calls) < len(records) && p.q.room.tryEnter(0) {
		change.ID = records[len(calls)].ID
		c := newCall[driver.Change, answer](change)
		c.room = p.q.room
		calls = append(calls, c)
	}
	p.changes[op].add(calls...)
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	for i, c := range calls {
		o, failure := p.changes[op].wait(ctx, c)
		switch {
		case failure == nil && o.Status == driver.StatusDone:
			n++
		case failure != nil && err == nil:
			err = fmt.Errorf("durable: dead letter %q: %w", records[i].ID, failure)
			leave()
		}
	}
	return n, len(calls), err
}
