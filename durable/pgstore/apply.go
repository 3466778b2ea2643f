package pgstore

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
	"github.com/timingwheel-go/timingwheel/durable/internal/transition"
)

// message is a row of the table. The body is not read.
type message struct {
	msg     driver.Record
	last    driver.Op // the transition that ended the last lease, if a repetition of it is recognized
	process string    // that has begun the message
	size    int64     // of the body

	before           driver.State
	changed, removed bool
}

// rowColumns are the columns that scan reads.
const rowColumns = `id, state, at, enqueued, due, token, planned, max_attempts, attempts, crashes, postponed, last, repeat, reason, process, octet_length(body)`

// scan reads a row, with its body if that follows.
func (r *message) scan(from scanner, more ...any) error {
	var at driver.Instant
	var token int64
	err := from.Scan(append([]any{&r.msg.ID, &r.msg.State, &at, &r.msg.Enqueued, &r.msg.Due, &token, &r.msg.Planned, &r.msg.MaxAttempts,
		&r.msg.Attempts, &r.msg.Crashes, &r.msg.Postponed, &r.last, &r.msg.Repeat, &r.msg.Reason, &r.process, &r.size}, more...)...)
	r.msg.Token, r.before = uint64(token), r.msg.State //nolint:gosec // positive
	switch r.msg.State {
	case driver.StateDead:
		r.msg.Died = at
	case driver.StateLeased, driver.StateFiring:
		r.msg.LeaseEnd = at
	}
	return err
}

// at is the time by which the messages of a state are ordered.
func (r *message) at() driver.Instant {
	switch r.msg.State {
	case driver.StateDead:
		return r.msg.Died
	case driver.StateLeased, driver.StateFiring:
		return r.msg.LeaseEnd
	default:
		return r.msg.Due
	}
}

// holds reports whether a change has the token of the last claim.
func (r *message) holds(c *driver.Change) bool {
	return r != nil && c.Token != 0 && r.msg.Token == c.Token
}

func (r *message) inFlight() bool {
	return r != nil && (r.msg.State == driver.StateLeased || r.msg.State == driver.StateFiring)
}

// scheduled reports whether a message waits until it is due.
func (r *message) scheduled() bool { return !r.removed && r.msg.State == driver.StateScheduled }

// marked reports whether Cancel has marked a firing message.
func (r *message) marked() bool { return r.msg.Planned == driver.Never }

// schedule ends the lease of a message, if it has one. last is the transition of its holder, or 0.
func (r *message) schedule(last driver.Op) {
	r.changed, r.last, r.process, r.msg.LeaseEnd = true, last, "", 0
	if r.msg.State != driver.StateDead {
		r.msg.State = driver.StateScheduled
	}
}

// tally has the changes of the counts of a partition.
type tally struct {
	scheduled, inFlight, dead, deadBytes int64
	driver.Counters
}

// add counts a message that has entered a state (1) or left it (-1).
func (t *tally) add(state driver.State, size, n int64) {
	switch state {
	case driver.StateScheduled:
		t.scheduled += n
	case driver.StateDead:
		t.dead += n
		t.deadBytes += n * size
	default:
		t.inFlight += n
	}
}

// countColumns are the columns of the counts, in the order of tally.values.
var countColumns = strings.Fields("scheduled in_flight dead dead_body_bytes enqueued acked retried buried cancelled crashed trimmed expired")

//nolint:gosec // small
func (t *tally) values() []any {
	return []any{t.scheduled, t.inFlight, t.dead, t.deadBytes, int64(t.Enqueued), int64(t.Acked), int64(t.Retried), int64(t.Buried),
		int64(t.Cancelled), int64(t.Crashed), int64(t.Trimmed), int64(t.Expired)}
}

// columnsText joins the columns of the counts, each in a format.
func columnsText(format string) string {
	var all []string
	for i, name := range countColumns {
		all = append(all, strings.NewReplacer("{c}", name, "{n}", fmt.Sprint(i+2)).Replace(format))
	}
	return strings.Join(all, ", ")
}

const stateColumns = `
SELECT {us}, p.forgotten, coalesce(c.seq, 0), coalesce(c.statuses, ''), k.token, k.next, p.paused, q.dead_limit, q.dead_bytes, q.dead_age
FROM {schema}.partitions p JOIN {schema}.queues q ON q.id = p.queue AND NOT q.deleting JOIN {schema}.claims k ON k.part = p.id
LEFT JOIN {schema}.calls c ON c.part = p.id AND c.caller = $2::text
WHERE p.id = $1::int`

var (
	stateText = newStatement(stateColumns)

	// A pause waits for the transactions that begin messages, and later ones see it: the lock makes
	// them read the row again.
	lockStateText = newStatement(stateColumns + ` FOR SHARE OF p`)

	loadText = newStatement(`
SELECT {row} FROM {schema}.messages WHERE part = $1::int AND id = ANY($2::text[]) ORDER BY id FOR UPDATE`)

	// A renewal must not wait for a transaction that has locked one of the messages.
	loadFreeText = newStatement(`
SELECT {row} FROM {schema}.messages WHERE part = $1::int AND id = ANY($2::text[]) ORDER BY id FOR UPDATE SKIP LOCKED`)

	peekText = newStatement(`SELECT {row} FROM {schema}.messages WHERE part = $1::int AND id = ANY($2::text[])`)

	updateText = newStatement(`
UPDATE {schema}.messages AS m SET state = u.state, at = u.at, due = u.due, token = u.token, planned = u.planned, attempts = u.attempts,
	crashes = u.crashes, postponed = u.postponed, last = u.last, repeat = u.repeat, reason = u.reason, process = u.process
FROM (SELECT $1::int AS part, u.* FROM unnest($2::text[], $3::smallint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
			$8::int[], $9::int[], $10::int[], $11::smallint[], $12::text[], $13::text[], $14::text[])
		AS u(id, state, at, due, token, planned, attempts, crashes, postponed, last, repeat, reason, process) OFFSET 0) u
WHERE m.part = u.part AND m.id = u.id -- with a constant, a plan for an empty table ignores the id
RETURNING m.id, CASE WHEN $15::boolean AND m.state IN (2, 3) THEN m.body END`)

	removeText = newStatement(`DELETE FROM {schema}.messages WHERE part = $1::int AND id = ANY($2::text[])`)

	countText = newStatement(`
INSERT INTO {schema}.counts (part, ` + columnsText("{c}") + `) VALUES ($1::int, ` + columnsText("${n}::bigint") + `)`)
)

// loaded has the messages of a transition, locked until the end of its transaction.
type loaded struct {
	part int32
	callState
	found  *bool // the partition exists
	paused bool
	limits deadLimits

	rows  map[string]*message
	order []*message // as they were read
	tally tally
	dead  deadState
}

func (l *loaded) stateDest() []any {
	return append(l.callState.dest(), &l.paused, &l.limits.number, &l.limits.bytes, &l.limits.age)
}

// read adds the statements that read the state of the partition, and lock messages. A transaction
// may run them several times.
func (l *loaded) read(p *pipeline, c *driver.Call, load statement, ids []string) {
	l.rows, l.order, l.tally = make(map[string]*message), nil, tally{}
	l.readState(p, c)
	p.rows(load, []any{l.part, ids}, l.add)
}

// readState adds the statements that read the state, after an earlier copy of the call.
func (l *loaded) readState(p *pipeline, c *driver.Call) {
	p.lockCall(l.part, c)
	l.found = p.row(stateText, []any{l.part, c.Caller}, l.stateDest()...)
}

// add adds a row that was read.
func (l *loaded) add(from scanner) error {
	r := new(message)
	if err := r.scan(from); err != nil {
		return err
	}
	l.rows[r.msg.ID] = r
	l.order = append(l.order, r)
	return nil
}

// check returns the statuses of a call that was made before, or an error if the call is to be
// rejected or the queue is gone.
func (l *loaded) check(c *driver.Call) ([]driver.Status, error) {
	if !*l.found {
		return nil, errGone
	}
	return l.repeated(c)
}

// write adds the statements that store the changes of the rows and of the counts. If bodies is not
// nil, they read the bodies of the changed messages in flight.
func (l *loaded) write(p *pipeline, bodies map[string][]byte) {
	var removed []string
	var changed []*message
	for _, r := range l.order {
		switch {
		case r.removed:
			removed = append(removed, r.msg.ID)
		case r.changed:
			changed = append(changed, r)
			l.tally.add(r.msg.State, r.size, 1)
		default:
			continue
		}
		l.tally.add(r.before, r.size, -1)
	}
	if len(removed) > 0 {
		p.exec(removeText, l.part, removed)
	}
	if len(changed) > 0 {
		p.update(l.part, changed, bodies)
	}
	if l.tally != (tally{}) {
		p.exec(countText, append([]any{l.part}, l.tally.values()...)...)
	}
}

// update adds the statement that stores changed rows: see write.
func (p *pipeline) update(part int32, rows []*message, bodies map[string][]byte) {
	n := len(rows)
	ids, states, at, due := make([]string, n), make([]int16, n), make([]int64, n), make([]int64, n)
	tokens, planned, attempts, crashes := make([]int64, n), make([]int64, n), make([]int32, n), make([]int32, n)
	postponed, last := make([]int32, n), make([]int16, n)
	repeats, reasons, processes := make([]string, n), make([]string, n), make([]string, n)
	for i, r := range rows {
		ids[i], states[i], at[i], due[i], tokens[i], planned[i] = r.msg.ID, int16(r.msg.State), int64(r.at()), int64(r.msg.Due), int64(r.msg.Token), int64(r.msg.Planned) //nolint:gosec // as read
		attempts[i], crashes[i], postponed[i], last[i] = int32(r.msg.Attempts), int32(r.msg.Crashes), int32(r.msg.Postponed), int16(r.last)                               //nolint:gosec // as read
		repeats[i], reasons[i], processes[i] = r.msg.Repeat, validText(r.msg.Reason), validText(r.process)
	}
	args := []any{part, ids, states, at, due, tokens, planned, attempts, crashes, postponed, last, repeats, reasons, processes, bodies != nil}
	p.rows(updateText, args, func(row scanner) error {
		var id string
		var body []byte
		err := row.Scan(&id, &body)
		if bodies != nil {
			bodies[id] = body
		}
		return err
	})
}

// validText returns a text that the server accepts: UTF-8 without zero bytes. It is not longer.
func validText(s string) string { return strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\x00", "?") }

// Apply implements [driver.Backend]. It takes one round trip for Begin, Ack and Expire, and
// otherwise two, or three if a message is not found.
func (b *backend) Apply(ctx context.Context, batch driver.Batch) (outcomes []driver.Outcome, err error) {
	if err := contract.CheckOp(batch.Op); err != nil {
		return nil, fmt.Errorf("pgstore: %w", err)
	}
	if len(batch.Changes) == 0 {
		return nil, b.store.usable(ctx)
	}
	err = b.call(ctx, batch.Op.String(), func(ctx context.Context, id *queueID) error {
		switch batch.Op {
		case driver.OpBegin:
			outcomes, err = b.store.begins.do(ctx, id.parts[batch.Partition], &batch)
		case driver.OpAck, driver.OpExpire:
			outcomes, err = b.store.acks.do(ctx, id.parts[batch.Partition], &batch)
		default:
			a := &application{batch: &batch, l: loaded{part: id.parts[batch.Partition]}}
			outcomes, err = a.run(ctx, b)
		}
		return err
	})
	return outcomes, err
}

// application is a transition of messages.
type application struct {
	l        loaded
	batch    *driver.Batch
	outcomes []driver.Outcome
	repeated bool           // the call was made before
	earliest driver.Instant // due time of the first message that was scheduled
	marked   []string       // firing messages that were interrupted

	locked map[string]*message // the messages without a row in l are locked by other transactions
}

func (a *application) run(ctx context.Context, b *backend) ([]driver.Outcome, error) {
	fast := a.skips() || a.batch.Op == driver.OpRelease
	if err := b.store.run(ctx, fast, a.readAll, a.readMissing, a.writeAll); err != nil {
		return nil, err
	}
	if !a.repeated {
		b.after(ctx, a.l.part, &a.batch.Call, &a.l.callState, a.earliest)
		for _, id := range a.marked {
			b.store.hub.send(hint{part: a.l.part, id: id})
		}
	}
	return a.outcomes, nil
}

// skips reports whether the transition must not wait for a transaction that has locked one of the
// messages.
func (a *application) skips() bool { return a.batch.Op == driver.OpExtend }

func (a *application) readAll(p *pipeline) error {
	var ids []string
	for i := range a.batch.Changes {
		ids = append(ids, a.batch.Changes[i].ID)
	}
	load := loadText
	if a.skips() {
		load = loadFreeText
	}
	a.l.read(p, &a.batch.Call, load, ids)
	if a.skips() {
		a.locked = make(map[string]*message)
		p.rows(peekText, []any{a.l.part, ids}, (&loaded{rows: a.locked}).add)
	}
	if a.batch.Op == driver.OpBury {
		a.l.dead.read(p, a.l.part)
	}
	return nil
}

// readMissing reads the messages again that have no row. If another transaction has removed and
// stored a message while readAll waited for it, readAll has not seen the message.
func (a *application) readMissing(p *pipeline) error {
	var missing []string
	for i := range a.batch.Changes {
		if id := a.batch.Changes[i].ID; a.l.rows[id] == nil {
			missing = append(missing, id)
		}
	}
	if len(missing) > 0 && !a.skips() {
		p.rows(loadText, []any{a.l.part, missing}, a.l.add)
	}
	return nil
}

// writeAll makes the transition.
func (a *application) writeAll(p *pipeline) error {
	statuses, err := a.l.check(&a.batch.Call)
	if err != nil {
		return err
	}
	a.repeated = statuses != nil
	a.outcomes = make([]driver.Outcome, len(a.batch.Changes))
	for i := range a.outcomes {
		a.outcomes[i].Now = a.l.now()
		if a.repeated {
			a.outcomes[i].Status = statuses[i]
		}
	}
	if a.repeated {
		return nil
	}
	a.applyAll()
	a.l.write(p, nil)
	if a.batch.Op == driver.OpBury {
		a.l.dead.trim(p, &a.l)
	}
	for i := range a.outcomes {
		statuses = append(statuses, a.outcomes[i].Status)
	}
	p.noteCall(a.l.part, &a.batch.Call, statuses)
	return nil
}

// applyAll makes the transitions of the messages.
func (a *application) applyAll() {
	a.earliest, a.marked = driver.Never, nil
	for i := range a.batch.Changes {
		c, o := &a.batch.Changes[i], &a.outcomes[i]
		r := a.l.rows[c.ID]
		if l := a.locked[c.ID]; r == nil && l.holds(c) && l.inFlight() { // the lease stays
			o.Status, o.Lease = driver.StatusDone, l.msg.LeaseEnd
		} else {
			a.apply(c, r, o)
		}
		if r != nil && r.changed && r.msg.State == driver.StateScheduled {
			a.earliest = min(a.earliest, r.msg.Due)
		}
	}
}

func (a *application) apply(c *driver.Change, r *message, o *driver.Outcome) {
	switch op := a.batch.Op; op {
	case driver.OpExtend:
		a.extend(c, r, o)
	case driver.OpCancel, driver.OpReschedule, driver.OpRepeat:
		o.Status = a.move(op, c, r)
	case driver.OpReplay, driver.OpPurge:
		o.Status = a.replayOrPurge(op, c, r)
	default:
		o.Status = a.end(op, c, r)
	}
}

func (a *application) extend(c *driver.Change, r *message, o *driver.Outcome) {
	if !r.holds(c) || !r.inFlight() {
		o.Status = driver.StatusLeaseLost
		return
	}
	lease := c.Delay
	o.Status = driver.StatusDone
	if r.msg.State == driver.StateFiring {
		lease = cmp.Or(max(0, c.Begun), c.Delay)
		if r.marked() {
			o.Status = driver.StatusInterrupted
		}
	}
	r.changed, r.msg.LeaseEnd = true, transition.LeaseEnd(a.l.now(), r.msg.Due, lease)
	o.Lease = r.msg.LeaseEnd
}

// end ends a lease by a transition of its holder. A message that has not begun can only be
// released.
func (a *application) end(op driver.Op, c *driver.Change, r *message) driver.Status {
	switch {
	case !r.holds(c) || !r.inFlight() || r.msg.State == driver.StateLeased && op != driver.OpRelease:
		return repetition(op, c, r)
	case r.msg.State == driver.StateLeased:
	case transition.Removes(&a.l.tally.Counters, op, c, r.marked(), r.msg.Repeat):
		r.removed = true
		return driver.StatusDone
	default:
		transition.Settle(&a.l.tally.Counters, &r.msg, op, c, a.l.now())
	}
	r.schedule(op)
	return driver.StatusDone
}

// repetition returns the status of a transition whose lease has ended. It is StatusDone if the
// transition has taken place and is the last one of its message.
func repetition(op driver.Op, c *driver.Change, r *message) driver.Status {
	switch {
	case op == driver.OpAck || op == driver.OpExpire:
		if r == nil || r.msg.State == driver.StateDead {
			return driver.StatusNotFound
		}
	case r.holds(c) && r.last == op && !r.inFlight():
		return driver.StatusDone
	}
	return driver.StatusLeaseLost
}

// move cancels, reschedules, or changes a series.
func (a *application) move(op driver.Op, c *driver.Change, r *message) driver.Status {
	switch {
	case r == nil || r.msg.State == driver.StateDead || op == driver.OpCancel && c.Incarnation != 0 && c.Incarnation != r.msg.Enqueued:
		return driver.StatusNotFound
	case r.msg.State == driver.StateFiring:
		return a.moveFiring(op, c, r)
	case op == driver.OpCancel:
		r.removed = true
		a.l.tally.Cancelled++
		return driver.StatusDone
	}
	if op != driver.OpRepeat || c.Repeat != "" {
		r.msg.Due = transition.DueAt(a.l.now(), c.At, c.Delay)
	}
	if op == driver.OpRepeat {
		r.msg.Repeat = c.Repeat
	}
	transition.Plan(&r.msg, r.msg.Repeat)
	r.schedule(0)
	return driver.StatusDone
}

// moveFiring marks a firing message, or changes or ends its series, if the transition may.
func (a *application) moveFiring(op driver.Op, c *driver.Change, r *message) driver.Status {
	switch {
	case op == driver.OpCancel && c.Interrupt:
		r.changed, r.msg.Planned, a.marked = true, driver.Never, append(a.marked, r.msg.ID)
		return driver.StatusInterrupted
	case r.msg.Repeat == "" || op == driver.OpReschedule || op == driver.OpRepeat && r.marked():
		return driver.StatusFiring
	}
	r.changed, r.msg.Repeat = true, ""
	if op == driver.OpCancel {
		return driver.StatusFiring
	}
	if r.msg.Repeat = c.Repeat; c.Repeat != "" {
		r.msg.Planned = transition.DueAt(a.l.now(), c.At, c.Delay)
	}
	return driver.StatusDone
}

// replayOrPurge replays or purges a dead letter, or replays a recurring message that waits until
// Never.
func (a *application) replayOrPurge(op driver.Op, c *driver.Change, r *message) driver.Status {
	waits := r != nil && op == driver.OpReplay && r.msg.State == driver.StateScheduled && r.msg.Repeat != "" && r.msg.Due == driver.Never
	switch {
	case r == nil || !waits && r.msg.State != driver.StateDead || c.Incarnation != 0 && c.Incarnation != r.msg.Died:
		return driver.StatusNotFound
	case op == driver.OpPurge:
		r.removed = true
		return driver.StatusDone
	}
	transition.Replay(&r.msg, a.l.now(), c.Delay)
	r.schedule(0)
	return driver.StatusDone
}
