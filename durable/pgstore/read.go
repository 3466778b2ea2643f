package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
	"github.com/timingwheel-go/timingwheel/durable/internal/transition"
)

var (
	getText = newStatement(`SELECT {row}, body FROM {schema}.messages WHERE part = $1::int AND id = $2::text`)

	// The page ends with the first message at which its bodies have a number of bytes.
	listText = map[driver.State]statement{
		driver.StateScheduled: newListText("state = 1"),
		driver.StateLeased:    newListText("state IN (2, 3)"),
		driver.StateDead:      newListText("state = 4"),
	}

	existsText = newStatement(`
SELECT p.id FROM {schema}.partitions p JOIN {schema}.queues q ON q.id = p.queue AND NOT q.deleting WHERE p.id = $1::int`)

	// The messages that are due are counted up to a million, of which the rest is estimated.
	countsText = newStatement(`
SELECT {us}, p.paused, ` + columnsText("(c.{c} + coalesce(d.{c}, 0))::bigint") + `,
	(SELECT count(*) FROM (SELECT FROM {schema}.messages WHERE part = $1::int AND state = 1 AND at <= {us} / 1000 LIMIT 1000001) due),
	coalesce((SELECT at FROM {schema}.messages WHERE part = $1::int AND state = 1 ORDER BY at, id LIMIT 1), 0)
FROM {schema}.partitions p JOIN {schema}.queues q ON q.id = p.queue AND NOT q.deleting JOIN {schema}.claims c ON c.part = p.id,
	(SELECT ` + columnsText("sum({c}) AS {c}") + ` FROM {schema}.counts WHERE part = $1::int) d
WHERE p.id = $1::int`)

	countDueText = newStatement(`
SELECT (SELECT count(*) FROM {schema}.messages WHERE part = $1::int AND state = 1 AND at <= least(c.us / 1000 + w.ms, 4503599627370496))
FROM (SELECT {us} AS us) c, unnest($2::bigint[]) WITH ORDINALITY AS w(ms, n) ORDER BY w.n`)
)

func newListText(state string) statement {
	return newStatement(`
SELECT * FROM (
	SELECT l.*, sum(size) OVER (ORDER BY at, id) - size AS before FROM (
		SELECT {row} AS size, body FROM {schema}.messages
		WHERE part = $1::int AND ` + state + ` AND (at, id) > ($2::bigint, $3::text)
		ORDER BY at, id LIMIT $4::int) l) page
WHERE before < $5::bigint ORDER BY at, id`)
}

// query runs a statement that changes nothing. It returns errGone if the partition does not exist.
func (b *backend) query(ctx context.Context, part int32, s statement, args []any, scan func(scanner) error) error {
	var p pipeline
	found := p.row(existsText, []any{part}, new(int32))
	p.rows(s, args, scan)
	err := b.store.pool.SendBatch(ctx, b.store.batch(p)).Close()
	if err == nil && !*found {
		return errGone
	}
	return err
}

// Get implements [driver.Backend].
func (b *backend) Get(ctx context.Context, partition int, id string) (m driver.Record, err error) {
	err = b.call(ctx, fmt.Sprintf("get message %q", id), func(ctx context.Context, queue *queueID) error {
		part, found := queue.parts[partition], false
		err := b.query(ctx, part, getText, []any{part, id}, func(row scanner) error {
			var r message
			found = true
			err := r.scan(row, &r.msg.Body)
			m = r.msg
			return err
		})
		if err == nil && !found {
			err = driver.ErrNotFound
		}
		return err
	})
	return m, err
}

// List implements [driver.Backend]. It returns [driver.ErrInvalid] for a cursor that List has not
// returned.
func (b *backend) List(ctx context.Context, partition int, state driver.State, cursor string, limit int) (records []driver.Record, next string, err error) {
	at, after, err := contract.ParseCursor(cursor)
	if err != nil {
		return nil, "", fmt.Errorf("pgstore: list: %w", err)
	}
	err = b.call(ctx, "list", func(ctx context.Context, queue *queueID) error {
		part, bytes := queue.parts[partition], int64(0)
		records, next = nil, ""
		args := []any{part, int64(at), after, limit, int64(contract.PageBytes)}
		return b.query(ctx, part, listText[state], args, func(row scanner) error {
			var r message
			var before int64
			err := r.scan(row, &r.msg.Body, &before)
			bytes += r.size
			if records = append(records, r.msg); len(records) == limit || bytes >= contract.PageBytes {
				next = contract.FormatCursor(r.at(), r.msg.ID)
			}
			return err
		})
	})
	return records, next, err
}

// Count implements [driver.Backend]. It visits the messages that are due, up to a million.
func (b *backend) Count(ctx context.Context, partition int) (counts driver.Counts, err error) {
	err = b.call(ctx, "count", func(ctx context.Context, queue *queueID) error {
		var us int64
		c := driver.Counts{}
		found := false
		part := queue.parts[partition]
		err := b.query(ctx, part, countsText, []any{part}, func(row scanner) error {
			found = true
			return row.Scan(&us, &c.Paused, &c.Scheduled, &c.InFlight, &c.Dead, &c.DeadBytes, &c.Enqueued, &c.Acked, &c.Retried, &c.Buried,
				&c.Cancelled, &c.Crashed, &c.Trimmed, &c.Expired, &c.Due, &c.NextDue)
		})
		if err == nil && !found {
			return errGone
		}
		c.Now = transition.Floor(time.UnixMicro(us))
		counts = c
		return err
	})
	return counts, err
}

// CountDue implements [driver.Backend]. It is O(n) per duration for n messages.
func (b *backend) CountDue(ctx context.Context, partition int, within []time.Duration) (counts []int64, err error) {
	ms := make([]int64, len(within))
	for i, d := range within {
		ms[i] = int64(driver.Instant(0).Add(d))
	}
	err = b.call(ctx, "count due", func(ctx context.Context, queue *queueID) error {
		part := queue.parts[partition]
		counts = nil
		return b.query(ctx, part, countDueText, []any{part, ms}, func(row scanner) error {
			counts = append(counts, 0)
			return row.Scan(&counts[len(counts)-1])
		})
	})
	return counts, err
}

var pauseText = newStatement(`UPDATE {schema}.partitions SET paused = $2::boolean WHERE id = $1::int`)

// Pause implements [driver.Backend]. It waits for the transactions that begin messages.
func (b *backend) Pause(ctx context.Context, pause driver.Pause) error {
	return b.call(ctx, "pause", func(ctx context.Context, queue *queueID) error {
		l := &loaded{part: queue.parts[pause.Partition]}
		read := reading(func(p *pipeline) { l.readState(p, &pause.Call) })
		err := b.store.run(ctx, false, read, func(p *pipeline) error {
			if statuses, err := l.check(&pause.Call); statuses != nil || err != nil {
				return err
			}
			p.exec(pauseText, l.part, pause.Paused)
			p.noteCall(l.part, &pause.Call, []driver.Status{driver.StatusDone})
			return nil
		})
		if err == nil {
			b.store.hub.send(hint{part: l.part})
			b.after(ctx, l.part, &pause.Call, &l.callState, 0)
		}
		return err
	})
}
