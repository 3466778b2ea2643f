package pgstore

import (
	"context"
	"encoding/json"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

var (
	// Heartbeats of a queue wait for one another.
	lockQueueText = newStatement(`SELECT id FROM {schema}.queues WHERE id = $1::int AND NOT deleting FOR UPDATE`)

	// If the clock was set back, the times of all members move with it. Otherwise a member whose
	// process has ended would stay longer by the size of the step.
	shiftMembersText = newStatement(`
WITH back AS (SELECT max(seen) - {us} / 1000 AS ms FROM {schema}.members WHERE queue = $1::int)
UPDATE {schema}.members m SET seen = m.seen - b.ms, until = m.until - b.ms FROM back b WHERE m.queue = $1::int AND b.ms > 0`)

	dropMembersText = newStatement(`
DELETE FROM {schema}.members WHERE queue = $1::int AND (until <= {us} / 1000 OR name = $2::text AND $3::bigint <= 0)`)

	beatText = newStatement(`
INSERT INTO {schema}.members (queue, name, seen, until, info)
SELECT $1::int, $2::text, now, least(now + $3::bigint, 4503599627370496), $4::text FROM (SELECT {us} / 1000 AS now) c WHERE $3::bigint > 0
ON CONFLICT (queue, name) DO UPDATE SET seen = excluded.seen, until = excluded.until, info = excluded.info`)

	membersText = newStatement(`
SELECT m.name, m.info, m.seen - b.ms, m.until - b.ms FROM {schema}.members m,
	(SELECT {us} / 1000 AS now, greatest(0, max(seen) - {us} / 1000) AS ms FROM {schema}.members WHERE queue = $1::int) b
WHERE m.queue = $1::int AND m.until - b.ms > b.now ORDER BY m.name`)
)

// Heartbeat implements [driver.Backend]. It is O(m) for m members, and waits for other heartbeats
// for the queue.
func (b *backend) Heartbeat(ctx context.Context, member driver.Member, ttl time.Duration) (all []driver.Member, err error) {
	info, _ := json.Marshal(member) // cannot fail
	err = b.call(ctx, "heartbeat", func(ctx context.Context, id *queueID) error {
		ms, found := int64(driver.Instant(0).Add(ttl)), new(bool)
		lock := reading(func(p *pipeline) { found = p.row(lockQueueText, []any{id.queue}, new(int32)) })
		return b.store.run(ctx, true, lock, func(p *pipeline) error {
			if !*found {
				return errGone
			}
			p.exec(shiftMembersText, id.queue)
			p.exec(dropMembersText, id.queue, member.Name, ms)
			p.exec(beatText, id.queue, member.Name, ms, validText(string(info)))
			all = nil
			p.rows(membersText, []any{id.queue}, scanMember(&all))
			return nil
		})
	})
	return all, err
}

// Members implements [driver.Backend]. It is O(m) for m members.
func (b *backend) Members(ctx context.Context) (all []driver.Member, err error) {
	err = b.call(ctx, "list the members", func(ctx context.Context, id *queueID) error {
		all = nil
		return b.query(ctx, id.parts[0], membersText, []any{id.queue}, scanMember(&all))
	})
	return all, err
}

// scanMember returns a function that appends a member to all.
func scanMember(all *[]driver.Member) func(scanner) error {
	return func(row scanner) error {
		var m driver.Member
		var name, info string
		var seen, until driver.Instant
		if err := row.Scan(&name, &info, &seen, &until); err != nil {
			return err
		}
		_ = json.Unmarshal([]byte(info), &m) // of another version: only the name is known
		m.Name, m.Seen, m.Until = name, seen, until
		*all = append(*all, m)
		return nil
	}
}
