package pgstore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

var (
	lockMembersText = newStatement(`SELECT pg_advisory_xact_lock(hashtextextended('{schema} members ' || $1::int::text, 0::bigint))`)

	// If the clock was set back, the times of all members move with it. Otherwise a member whose
	// process has ended would stay longer by the size of the step.
	shiftMembersText = newStatement(`
WITH back AS (SELECT max(seen) - {us} / 1000 AS ms FROM {schema}.members WHERE queue = $1::int)
UPDATE {schema}.members m SET seen = m.seen - b.ms, until = m.until - b.ms FROM back b WHERE m.queue = $1::int AND b.ms > 0`)

	dropMembersText = newStatement(`
DELETE FROM {schema}.members WHERE queue = $1::int AND (until <= {us} / 1000 OR name = $2::text AND $3::bigint <= 0)`)

	beatText = newStatement(`
INSERT INTO {schema}.members (queue, name, seen, until, info)
SELECT q.id, $2::text, {us} / 1000, least({us} / 1000 + $3::bigint, 4503599627370496), $4::text
FROM {schema}.queues q WHERE q.id = $1::int AND NOT q.deleting AND $3::bigint > 0
ON CONFLICT (queue, name) DO UPDATE SET seen = excluded.seen, until = excluded.until, info = excluded.info`)

	membersText = newStatement(`
SELECT q.id, m.name, m.info, m.seen - b.ms, m.until - b.ms FROM {schema}.queues q
CROSS JOIN (SELECT {us} / 1000 AS now, greatest(0, coalesce(max(seen), 0) - {us} / 1000) AS ms FROM {schema}.members WHERE queue = $1::int) b
LEFT JOIN {schema}.members m ON m.queue = q.id AND m.until - b.ms > b.now
WHERE q.id = $1::int AND NOT q.deleting ORDER BY m.name`)
)

// Heartbeat implements [driver.Backend]. It is O(m) for m members, and waits for other heartbeats
// of the queue.
func (b *backend) Heartbeat(ctx context.Context, member driver.Member, ttl time.Duration) (all []driver.Member, err error) {
	info, err := json.Marshal(member)
	if err != nil {
		return nil, fmt.Errorf("pgstore: heartbeat: %w", err)
	}
	err = b.call(ctx, "heartbeat", func(ctx context.Context, id *queueID) error {
		ms, found := int64(driver.Instant(0).Add(ttl)), false
		lock := func(p *pipeline) { p.exec(lockMembersText, id.queue) }
		err := b.store.run(ctx, transaction{fast: true, read: lock, write: func(p *pipeline, _ *pgxpool.Conn) error {
			p.exec(shiftMembersText, id.queue)
			p.exec(dropMembersText, id.queue, member.Name, ms)
			p.exec(beatText, id.queue, member.Name, ms, validText(string(info)))
			all, found = nil, false
			p.rows(membersText, []any{id.queue}, scanMembers(&all, &found))
			return nil
		}})
		if err == nil && !found {
			err = errGone
		}
		return err
	})
	return all, err
}

// Members implements [driver.Backend]. It is O(m) for m members.
func (b *backend) Members(ctx context.Context) (all []driver.Member, err error) {
	err = b.call(ctx, "list the members", func(ctx context.Context, id *queueID) error {
		found := false
		var p pipeline
		all = nil
		p.rows(membersText, []any{id.queue}, scanMembers(&all, &found))
		err := b.store.pool.SendBatch(ctx, b.store.batch(p, "", "")).Close()
		if err == nil && !found {
			err = errGone
		}
		return err
	})
	return all, err
}

// scanMembers returns a function that appends a member to all, if the row of the queue has one.
func scanMembers(all *[]driver.Member, found *bool) func(scanner) error {
	return func(row scanner) error {
		var queue int32
		var name, info *string
		var seen, until *driver.Instant
		*found = true
		if err := row.Scan(&queue, &name, &info, &seen, &until); err != nil || name == nil {
			return err
		}
		var m driver.Member
		_ = json.Unmarshal([]byte(*info), &m) // of another version: only the name is known
		m.Name, m.Seen, m.Until = *name, *seen, *until
		*all = append(*all, m)
		return nil
	}
}
