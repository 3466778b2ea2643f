package pgstore

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// heldText begins the statements of a combiner. held has the messages that no other transaction has
// locked. The statements return the number of each message whose queue exists, the clock, and the
// outcome, with the numbers of driver.Status. Status 0 means that another transaction has locked
// the message.
const heldText = `
WITH item AS MATERIALIZED (
	SELECT * FROM unnest($1::int[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::boolean[])
		WITH ORDINALITY AS i(part, id, token, lead, lease, acked, n)),
clock AS MATERIALIZED (SELECT {us} AS us),
part AS MATERIALIZED (
	SELECT p.id, p.paused, c.us FROM clock c, {schema}.partitions p JOIN {schema}.queues q ON q.id = p.queue AND NOT q.deleting
	WHERE p.id = ANY($1::int[]) ORDER BY p.id {lock}),
held AS MATERIALIZED (
	SELECT i.*, p.us, p.paused, m.state, m.due, m.token = i.token AND m.state IN (2, 3) AS holds
	FROM item i JOIN part p ON p.id = i.part JOIN {schema}.messages m ON m.part = i.part AND m.id = i.id FOR UPDATE OF m SKIP LOCKED),`

var (
	// A message that is locked, or whose partition is, is early, as if it were due later.
	beginText = newStatement(strings.Replace(heldText, "{lock}", "FOR SHARE OF p SKIP LOCKED", 1) + `
begun AS (
	UPDATE {schema}.messages m SET state = 3, process = $7::text,
		at = CASE WHEN h.lease > 0 THEN least((h.us + h.lease + 999) / 1000, 4503599627370496) ELSE m.at END
	FROM held h
	WHERE m.part = h.part AND m.id = h.id AND h.holds AND (h.state = 3 OR NOT h.paused AND h.due * 1000 <= h.us + h.lead)
	RETURNING h.n, h.us, m.due, CASE WHEN h.lease > 0 THEN m.at ELSE 0 END AS lease)
SELECT n, us, 1, due, lease FROM begun
UNION ALL
SELECT n, us, CASE WHEN NOT holds THEN 5 WHEN paused THEN 7 ELSE 6 END, due, 0 FROM held WHERE n NOT IN (SELECT n FROM begun)
UNION ALL
SELECT i.n, c.us, CASE WHEN m.token = i.token AND m.state IN (2, 3) THEN 6 ELSE 5 END, c.us / 1000 + 25, 0
FROM clock c CROSS JOIN item i JOIN {schema}.partitions p ON p.id = i.part
JOIN {schema}.queues q ON q.id = p.queue AND NOT q.deleting LEFT JOIN {schema}.messages m ON m.part = i.part AND m.id = i.id
WHERE i.n NOT IN (SELECT n FROM held)`)

	ackText = newStatement(strings.Replace(heldText, "{lock}", "", 1) + `
gone AS (
	DELETE FROM {schema}.messages m USING held h WHERE m.part = h.part AND m.id = h.id AND h.holds AND h.state = 3
	RETURNING h.part, h.n, h.us, h.acked),
counted AS (
	INSERT INTO {schema}.counts (part, in_flight, acked, expired)
	SELECT part, -count(*), count(*) FILTER (WHERE acked), count(*) FILTER (WHERE NOT acked) FROM gone GROUP BY part)
SELECT n, us, 1, 0, 0 FROM gone
UNION ALL
SELECT i.n, p.us, CASE WHEN m.id IS NULL OR m.state = 4 THEN 4 WHEN m.token = i.token AND m.state = 3 THEN 0 ELSE 5 END, 0, 0
FROM item i JOIN part p ON p.id = i.part LEFT JOIN {schema}.messages m ON m.part = i.part AND m.id = i.id
WHERE i.n NOT IN (SELECT n FROM gone)`)
)

// heldMessage is a message that the holder of its lease begins or acknowledges.
type heldMessage struct {
	part        int32
	id          string
	token       int64
	lead, lease int64 // of a begin, in microseconds
	acked       bool  // false for a message that has expired

	found   bool // the queue exists
	outcome driver.Outcome
}

// combiner makes many calls by one statement, for any queues and partitions. Calls that arrive
// while a statement is under way share the next one. A single call is made immediately, and many
// calls make few transactions.
type combiner struct {
	s    *Store
	text statement
	more []any // arguments
	fast bool  // see Store.run

	mu      sync.Mutex
	waiting []*combinedCall
	busy    bool // a statement is under way that is not slow
}

// combinedCall is a call that shares a statement with others.
type combinedCall struct {
	rows []*heldMessage
	done chan error
}

const (
	maxCombined    = 1000                  // messages in a statement; the last call may exceed it
	slowAfter      = time.Second           // other calls no longer wait for a statement
	combinedLimit  = 10 * time.Second      // duration of a statement
	lockedInterval = 25 * time.Millisecond // between attempts to change a message that is locked
)

// do makes a call. A message that another transaction has locked waits for that transaction, and
// delays no other call to the store. If ctx ends before the answer, the call may still take effect.
func (c *combiner) do(ctx context.Context, part int32, batch *driver.Batch) ([]driver.Outcome, error) {
	all, rest := make([]heldMessage, len(batch.Changes)), make([]*heldMessage, len(batch.Changes))
	lead, lease := int64(batch.Lead/time.Microsecond), microseconds(batch.Visibility)
	for i := range batch.Changes {
		token := int64(batch.Changes[i].Token) //nolint:gosec // a token, or one that no message has
		all[i] = heldMessage{part: part, id: batch.Changes[i].ID, token: token, lead: lead, lease: lease, acked: batch.Op == driver.OpAck}
		rest[i] = &all[i]
	}
	for {
		if err := c.share(ctx, rest); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(rest, func(r *heldMessage) bool { return !r.found }) {
			return nil, errGone
		}
		rest = slices.DeleteFunc(slices.Clone(rest), func(r *heldMessage) bool { return r.outcome.Status != 0 })
		if len(rest) == 0 {
			break
		}
		select {
		case <-time.After(lockedInterval):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	outcomes := make([]driver.Outcome, len(all))
	for i := range all {
		outcomes[i] = all[i].outcome
	}
	return outcomes, nil
}

// share makes a call by the next statement. If ctx ends, the statement may still use rows.
func (c *combiner) share(ctx context.Context, rows []*heldMessage) error {
	j := &combinedCall{rows, make(chan error, 1)}
	c.mu.Lock()
	c.waiting = append(c.waiting, j)
	c.start()
	c.mu.Unlock()
	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// start starts to make the calls that wait, unless that is done already. mu is held.
func (c *combiner) start() {
	if !c.busy && len(c.waiting) > 0 {
		c.busy = true
		go c.run()
	}
}

// run makes calls until none wait. If a statement is slow, another goroutine makes the calls that
// wait, so that a connection that hangs does not block them. combinedLimit bounds their number.
func (c *combiner) run() {
	for calls := c.take(); len(calls) > 0; calls = c.take() {
		slow := time.AfterFunc(slowAfter, func() {
			c.mu.Lock()
			c.busy = false
			c.start()
			c.mu.Unlock()
		})
		var rows []*heldMessage
		for _, j := range calls {
			rows = append(rows, j.rows...)
		}
		err := c.exec(rows)
		for _, j := range calls {
			j.done <- err
		}
		if !slow.Stop() {
			return
		}
	}
}

// take returns the calls for a statement. If there are none, run has to end.
func (c *combiner) take() []*combinedCall {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for rows := 0; n < len(c.waiting) && rows < maxCombined; n++ {
		rows += len(c.waiting[n].rows)
	}
	calls := c.waiting[:n:n]
	c.waiting = slices.Clone(c.waiting[n:])
	c.busy = n > 0
	return calls
}

// exec executes a statement, and sets the outcomes of its messages.
func (c *combiner) exec(rows []*heldMessage) error {
	var parts []int32
	var ids []string
	var tokens, leads, leases []int64
	var acked []bool
	for _, r := range rows {
		parts, ids, tokens = append(parts, r.part), append(ids, r.id), append(tokens, r.token)
		leads, leases, acked = append(leads, r.lead), append(leases, r.lease), append(acked, r.acked)
	}
	args := append([]any{parts, ids, tokens, leads, leases, acked}, c.more...)
	ctx, cancel := context.WithTimeout(context.Background(), combinedLimit)
	defer cancel()
	return c.s.run(ctx, c.fast, reading(func(p *pipeline) {
		for _, r := range rows {
			r.found = false
		}
		p.rows(c.text, args, func(row scanner) error {
			var n, us int64
			var o driver.Outcome
			err := row.Scan(&n, &us, &o.Status, &o.Due, &o.Lease)
			if err == nil {
				o.Now = time.UnixMicro(us)
				rows[n-1].found, rows[n-1].outcome = true, o
			}
			return err
		})
	}))
}
