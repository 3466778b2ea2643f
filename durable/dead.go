package durable

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Dead iterates over the dead letters. It is [Queue.List] of [StateDead].
func (q *Queue) Dead(ctx context.Context) iter.Seq2[Record, error] {
	return q.List(ctx, StateDead)
}

// Replay schedules a dead letter again as if it had never been delivered. The message is due delay
// after the store's clock; a delay of 0 or less is due at once. [ErrNotFound] means that no dead letter
// has this id. Other errors are those of [Queue.Cancel].
func (q *Queue) Replay(ctx context.Context, id string, delay time.Duration) error {
	return q.changeDead(ctx, driver.OpReplay, driver.Change{ID: id, Delay: max(0, delay)})
}

// Purge removes a dead letter. [ErrNotFound] means that no dead letter has this id. Other errors are
// those of [Queue.Cancel].
func (q *Queue) Purge(ctx context.Context, id string) error {
	return q.changeDead(ctx, driver.OpPurge, driver.Change{ID: id})
}

// changeDead changes one dead letter.
func (q *Queue) changeDead(ctx context.Context, op driver.Op, c driver.Change) error {
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
	return q.changeAllDead(ctx, driver.OpReplay, driver.Change{Delay: max(0, delay)})
}

// PurgeAll removes the dead letters that are there now, and returns how many. Errors are as with
// [Queue.ReplayAll].
func (q *Queue) PurgeAll(ctx context.Context) (int, error) {
	return q.changeAllDead(ctx, driver.OpPurge, driver.Change{})
}

// changeAllDead changes all dead letters, partition by partition, and returns how many.
func (q *Queue) changeAllDead(ctx context.Context, op driver.Op, change driver.Change) (n int, err error) {
	if err := q.usable(ctx); err != nil {
		return 0, err
	}
	for _, p := range q.parts {
		counts, err := q.backend.Count(ctx, p.index)
		if err != nil {
			return n, fmt.Errorf("durable: dead letters of partition %d: %w", p.index, err)
		}
		done, err := p.changeOldestDead(ctx, op, change, counts.Dead)
		n += done
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// changeOldestDead changes up to most dead letters, the oldest first. Messages that
// become dead letters again meanwhile come last, so the bound keeps them from being changed again and
// again. A page may be empty although more follow, because its records cannot be read.
func (p *part) changeOldestDead(ctx context.Context, op driver.Op, change driver.Change, most int64) (n int, err error) {
	for cursor := ""; most > 0; {
		records, next, err := p.q.backend.List(ctx, p.index, driver.StateDead, cursor, int(min(most, driver.MaxBatch)))
		if err != nil {
			return n, fmt.Errorf("durable: dead letters of partition %d: %w", p.index, err)
		}
		for rest := records; len(rest) > 0; {
			var done, asked int
			done, asked, err = p.changeDead(ctx, op, change, rest)
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

// changeDead changes the first of some dead letters, as many at once as find room. After an error it
// withdraws the calls that were not sent. It returns how many records were changed, and for how many
// it has asked.
func (p *part) changeDead(ctx context.Context, op driver.Op, change driver.Change, records []driver.Record) (n, asked int, err error) {
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
