package pgstore

import (
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// deadLimits are the limits of the dead letters of a partition.
type deadLimits struct{ number, bytes, age int64 }

// deadState is what the limits apply to.
type deadState struct {
	number, bytes int64
	oldest        driver.Instant // 0: there are none
	rows          int64          // of the table counts
}

var (
	deadStateText = newStatement(`
SELECT c.dead + d.dead, c.dead_body_bytes + d.bytes, d.n,
	coalesce((SELECT at FROM {schema}.messages WHERE part = $1::int AND state = 4 ORDER BY at, id LIMIT 1), 0)
FROM {schema}.claims c, (
	SELECT coalesce(sum(dead), 0)::bigint AS dead, coalesce(sum(dead_body_bytes), 0)::bigint AS bytes, count(*) AS n
	FROM {schema}.counts WHERE part = $1::int) d
WHERE c.part = $1::int`)

	// trimText removes up to 256 dead letters beyond the limits, the oldest first.
	trimText = newStatement(`
WITH total AS (
	SELECT sum(dead) AS dead, sum(dead_body_bytes) AS bytes FROM (
		SELECT dead, dead_body_bytes FROM {schema}.claims WHERE part = $1::int
		UNION ALL SELECT dead, dead_body_bytes FROM {schema}.counts WHERE part = $1::int) c),
oldest AS (
	SELECT part, id, at, octet_length(body)::bigint AS size FROM {schema}.messages WHERE part = $1::int AND state = 4
	ORDER BY at, id LIMIT 256 FOR UPDATE),
ranked AS (
	SELECT part, id, at, size, row_number() OVER w AS n, sum(size) OVER w - size AS before FROM oldest WINDOW w AS (ORDER BY at, id)),
gone AS (
	DELETE FROM {schema}.messages m USING ranked r, total t
	WHERE m.part = r.part AND m.id = r.id
		AND (r.n <= t.dead - $2::bigint OR r.at <= $3::bigint OR t.bytes - r.before > $4::bigint AND r.n < t.dead)
	RETURNING r.size)
INSERT INTO {schema}.counts (part, dead, dead_body_bytes, trimmed)
SELECT $1::int, -count(*), -sum(size), count(*) FROM gone HAVING count(*) > 0`)
)

// read adds the statement that reads the state.
func (d *deadState) read(p *pipeline, part int32) {
	p.row(deadStateText, []any{part}, &d.number, &d.bytes, &d.rows, &d.oldest)
}

// trim adds the statement that removes dead letters, if they exceed a limit after the changes of l.
func (d *deadState) trim(p *pipeline, l *loaded) {
	limits, number, bytes := &l.limits, d.number+l.tally.dead, d.bytes+l.tally.deadBytes
	last := driver.InstantOf(l.now().Add(-time.Duration(limits.age))) // the death of a dead letter that is too old
	if number > limits.number || number > 1 && bytes > limits.bytes || d.oldest != 0 && d.oldest <= last {
		p.exec(lockClaimsText, l.part) // one transaction at a time
		p.exec(trimText, l.part, limits.number, int64(last), limits.bytes)
	}
}
