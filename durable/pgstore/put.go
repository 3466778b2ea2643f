package pgstore

import (
	"context"
	"errors"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
	"github.com/timingwheel-go/timingwheel/durable/internal/transition"
)

// putText stores the messages that no message has the id of. It does so once, however often a call
// is repeated: see [driver.Call]. The result is NULL for a call that it rejects. If another copy of
// the call commits meanwhile, or the call has become late, the division by zero undoes it.
var putText = newStatement(`
WITH part AS MATERIALIZED (
	SELECT p.id, {us} AS us, p.forgotten, coalesce(c.seq, 0) AS seq, coalesce(c.statuses, '') AS statuses, k.token, k.next
	FROM {schema}.partitions p
	JOIN {schema}.queues q ON q.id = p.queue AND NOT q.deleting
	JOIN {schema}.claims k ON k.part = p.id
	LEFT JOIN {schema}.calls c ON c.part = p.id AND c.caller = $2::text
	WHERE p.id = $1::int),
accepted AS MATERIALIZED (
	SELECT id, us FROM part
	WHERE $2::text = '' OR seq < $3::bigint AND $4::bigint > greatest(us / 1000, forgotten)
		AND $4::bigint <= greatest(us / 1000, forgotten) + 7200000),
item AS MATERIALIZED (
	SELECT i.n, i.id, i.body, i.max_attempts, i.repeat, a.us / 1000 AS now, CASE
		WHEN i.at > 0 THEN greatest(least(i.at, 4503599627370496), a.us / 1000)
		WHEN i.delay <= 0 THEN a.us / 1000
		ELSE least((a.us + i.delay + 999) / 1000, 4503599627370496) END AS due
	FROM accepted a, unnest($5::text[], $6::bytea[], $7::bigint[], $8::bigint[], $9::int[], $10::text[])
		WITH ORDINALITY AS i(id, body, at, delay, max_attempts, repeat, n)),
stored AS (
	INSERT INTO {schema}.messages (part, id, state, at, enqueued, due, planned, max_attempts, repeat, body)
	SELECT $1::int, id, 1, due, now, due, CASE WHEN repeat = '' THEN 0 ELSE due END, max_attempts, repeat, body
	FROM item ORDER BY id COLLATE "C"
	ON CONFLICT (part, id) DO NOTHING RETURNING id, at),
result AS (
	SELECT string_agg(CASE
		WHEN s.id IS NOT NULL THEN '1'
		WHEN (SELECT state FROM {schema}.messages WHERE part = $1::int AND id = i.id) = 4 THEN '8'
		ELSE '2' END, '' ORDER BY i.n) AS statuses
	FROM item i LEFT JOIN stored s ON s.id = i.id),
counted AS (
	INSERT INTO {schema}.counts (part, scheduled, enqueued)
	SELECT $1::int, count(*), count(*) FROM stored HAVING count(*) > 0),
noted AS (
	INSERT INTO {schema}.calls (part, caller, seq, not_after, statuses)
	SELECT a.id, $2::text, $3::bigint, $4::bigint, r.statuses FROM accepted a, result r WHERE $2::text <> ''
	ON CONFLICT (part, caller) DO UPDATE SET seq = excluded.seq, not_after = excluded.not_after, statuses = excluded.statuses
	WHERE calls.seq < excluded.seq RETURNING 1)
SELECT p.us, p.forgotten, p.seq, p.statuses, p.token, p.next, r.statuses, coalesce((SELECT min(at) FROM stored), 0),
	CASE WHEN $2::text <> '' AND EXISTS (SELECT FROM accepted) THEN 1 / (SELECT count(*) FROM noted WHERE {us} / 1000 < $4::bigint) ELSE 0 END
FROM part p, result r`)

// putResult is the result of putText.
type putResult struct {
	callState
	statuses *string
	earliest driver.Instant // due time of the first message that was stored
}

func (r *putResult) dest() []any {
	return append(r.callState.dest(), &r.statuses, &r.earliest, new(int64))
}

// callArgs returns the arguments for a call that may be repeated.
func callArgs(part int32, c *driver.Call) []any {
	return []any{part, c.Caller, int64(c.Seq), int64(c.NotAfter)} //nolint:gosec // counts calls
}

// putArgs returns the arguments of putText.
func putArgs(part int32, c *driver.Call, items []driver.PutItem) []any {
	n := len(items)
	bodies, at, delays, most, repeats := make([][]byte, n), make([]int64, n), make([]int64, n), make([]int32, n), make([]string, n)
	for i := range items {
		item := &items[i]
		bodies[i], at[i], delays[i], repeats[i] = body(item), int64(item.At), microseconds(item.Delay), item.Repeat
		most[i] = int32(item.MaxAttempts) //nolint:gosec // validated
	}
	return append(callArgs(part, c), itemIDs(items), bodies, at, delays, most, repeats)
}

// microseconds returns a duration in microseconds, rounded up.
func microseconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Microsecond) + 1
}

// Put implements [driver.Backend]. It takes one round trip, or two with Replace. If a transaction
// in progress has enqueued the same id, Put waits until that transaction ends.
func (b *backend) Put(ctx context.Context, put driver.Put) (statuses []driver.Status, err error) {
	if len(put.Items) == 0 {
		return nil, b.store.usable(ctx)
	}
	err = b.call(ctx, "put", func(ctx context.Context, id *queueID) error {
		part := id.parts[put.Partition]
		if put.Replace {
			r := replacement{l: loaded{part: part}, put: &put}
			err := b.store.run(ctx, false, reading(r.read), r.write)
			if err == nil {
				b.after(ctx, part, &put.Call, &r.l.callState, r.earliest)
			}
			statuses = r.statuses
			return err
		}
		var r putResult
		var found *bool
		args := putArgs(part, &put.Call, put.Items)
		err := b.store.run(ctx, false, reading(func(p *pipeline) { found = p.row(putText, args, r.dest()...) }))
		switch {
		case err != nil:
			return err
		case !*found:
			return errGone
		}
		if statuses, err = r.repeated(&put.Call); statuses != nil || err != nil {
			return err
		}
		if r.statuses == nil {
			return errors.New("the server has returned no result")
		}
		statuses = parseStatuses(*r.statuses)
		b.after(ctx, part, &put.Call, &r.callState, r.earliest)
		return nil
	})
	return statuses, err
}

// callState is what a partition knows of calls and of the last claim.
type callState struct {
	us        int64 // the server's clock
	forgotten driver.Instant
	seq       int64  // of the caller's last call; 0: none is known
	last      string // the statuses of that call
	lastClaim
}

// dest returns where the first columns of a state are scanned to.
func (s *callState) dest() []any {
	return []any{&s.us, &s.forgotten, &s.seq, &s.last, &s.token, &s.next}
}

func (s *callState) now() time.Time { return time.UnixMicro(s.us) }

// repeated returns the statuses of a call that was made before, or an error for a call that is to
// be rejected.
func (s *callState) repeated(c *driver.Call) ([]driver.Status, error) {
	if c.Caller == "" {
		return nil, nil
	}
	if s.seq == int64(c.Seq) { //nolint:gosec // counts calls
		return parseStatuses(s.last), nil
	}
	after := max(transition.Floor(s.now()), s.forgotten)
	if s.seq > int64(c.Seq) || c.NotAfter <= after || c.NotAfter > after.Add(contract.MaxAhead) { //nolint:gosec // see above
		return nil, &driver.LateError{Now: after, Unknown: s.forgotten >= c.NotAfter}
	}
	return nil, nil
}

func parseStatuses(text string) []driver.Status {
	statuses := make([]driver.Status, len(text))
	for i := range statuses {
		statuses[i] = driver.Status(text[i] - '0')
	}
	return statuses
}

func formatStatuses(statuses []driver.Status) string {
	text := make([]byte, len(statuses))
	for i, s := range statuses {
		text[i] = '0' + byte(s)
	}
	return string(text)
}

var (
	// Copies of other calls wait for one another. The lock is taken in a statement of its own, so
	// that the next statement sees what the earlier copy has committed.
	lockCallText = newStatement(`SELECT pg_advisory_xact_lock(hashtextextended('{schema} call ' || $1::int::text || ' ' || $2::text, 0::bigint))`)

	noteCallText = newStatement(`
INSERT INTO {schema}.calls (part, caller, seq, not_after, statuses) VALUES ($1::int, $2::text, $3::bigint, $4::bigint, $5::text)
ON CONFLICT (part, caller) DO UPDATE SET seq = excluded.seq, not_after = excluded.not_after, statuses = excluded.statuses
WHERE calls.seq < excluded.seq`)

	forgetCallsText = newStatement(`
WITH gone AS (
	DELETE FROM {schema}.calls WHERE part = $1::int AND not_after < {us} / 1000 RETURNING not_after)
UPDATE {schema}.partitions SET forgotten = greatest(forgotten, (SELECT max(not_after) FROM gone))
WHERE id = $1::int AND EXISTS (SELECT FROM gone)`)
)

// lockCall adds the statement that makes copies of a call wait for one another.
func (p *pipeline) lockCall(part int32, c *driver.Call) {
	if c.Caller != "" {
		p.exec(lockCallText, part, c.Caller)
	}
}

// noteCall adds the statement that makes copies of a call return its statuses.
func (p *pipeline) noteCall(part int32, c *driver.Call, statuses []driver.Status) {
	if c.Caller != "" {
		p.exec(noteCallText, append(callArgs(part, c), formatStatuses(statuses))...)
	}
}

// after follows a call: it sends a hint for the first message that the call has scheduled, if it is
// due before those that the last claim has left. After the first call by a caller, it forgets the
// calls that can no longer take effect, so that callers that have ended do not add up. After this
// and some other calls it sums up the counts, as claims do if there are consumers. If one of these
// fails, a later call does it.
func (b *backend) after(ctx context.Context, part int32, c *driver.Call, state *callState, earliest driver.Instant) {
	if state.isBefore(earliest) {
		b.store.hub.send(hint{part: part, due: earliest})
	}
	if c.Caller != "" && state.seq == 0 {
		_, _ = b.store.pool.Exec(ctx, b.store.texts[forgetCallsText], part)
	}
	if c.Caller != "" && (state.seq == 0 || c.Seq%256 == 0) {
		_, _ = b.store.pool.Exec(ctx, b.store.texts[foldText], part)
	}
}

var (
	storeText = newStatement(`
INSERT INTO {schema}.messages (part, id, state, at, enqueued, due, planned, max_attempts, repeat, body)
SELECT $1::int, id, 1, due, $2::bigint, due, CASE WHEN repeat = '' THEN 0 ELSE due END, max_attempts, repeat, body
FROM unnest($3::text[], $4::bytea[], $5::bigint[], $6::int[], $7::text[]) AS i(id, body, due, max_attempts, repeat) ORDER BY id COLLATE "C"`)

	replaceText = newStatement(`
UPDATE {schema}.messages SET enqueued = $3::bigint, body = $4::bytea, max_attempts = $5::int WHERE part = $1::int AND id = $2::text`)
)

// replacement is a put that replaces messages. A running delivery of a recurring message goes on.
type replacement struct {
	l        loaded
	put      *driver.Put
	statuses []driver.Status
	earliest driver.Instant // due time of the first message that was stored
}

func (r *replacement) read(p *pipeline) {
	r.l.read(p, &r.put.Call, loadText, itemIDs(r.put.Items))
}

func (r *replacement) write(p *pipeline) (err error) {
	if r.statuses, err = r.l.check(&r.put.Call); r.statuses != nil || err != nil {
		return err
	}
	r.statuses = make([]driver.Status, len(r.put.Items))
	var fresh []driver.PutItem
	r.earliest = driver.Never
	for i := range r.put.Items {
		item, old := r.put.Items[i], r.l.rows[r.put.Items[i].ID]
		item.At = transition.DueAt(r.l.now(), item.At, item.Delay)
		r.statuses[i] = driver.StatusDone
		switch {
		case old == nil || old.msg.State != driver.StateFiring:
			if old != nil {
				old.removed = true
			}
			fresh, r.earliest = append(fresh, item), min(r.earliest, item.At)
		case item.Repeat == "" || old.msg.Repeat == "" || old.marked():
			r.statuses[i] = driver.StatusFiring
			continue
		default:
			old.changed, old.msg.Repeat, old.msg.Planned = true, item.Repeat, item.At
			p.exec(replaceText, r.l.part, item.ID, transition.Floor(r.l.now()), body(&item), item.MaxAttempts)
		}
		r.l.tally.Enqueued++
	}
	r.l.tally.scheduled += int64(len(fresh))
	r.l.write(p, nil)
	if len(fresh) > 0 {
		args := putArgs(r.l.part, &r.put.Call, fresh)[4:] // without the arguments of the call
		p.exec(storeText, r.l.part, transition.Floor(r.l.now()), args[0], args[1], args[2], args[4], args[5])
	}
	p.noteCall(r.l.part, &r.put.Call, r.statuses)
	return nil
}

func itemIDs(items []driver.PutItem) []string {
	ids := make([]string, len(items))
	for i := range items {
		ids[i] = items[i].ID
	}
	return ids
}

// body returns the body of a message, which is not NULL.
func body(item *driver.PutItem) []byte { return append([]byte{}, item.Body...) }
