package pgstore

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
	"github.com/timingwheel-go/timingwheel/durable/internal/transition"
)

var (
	// Claims of a partition wait for one another.
	lockClaimsText = newStatement(`SELECT consumers FROM {schema}.claims WHERE part = $1::int FOR UPDATE`)

	// The statements after this one use the same time, so that no message is between two of them.
	clockText = newStatement(`SELECT set_config('timingwheel.us', {us}::text, true)::bigint`)

	expiredText = newStatement(`
SELECT {row} FROM {schema}.messages WHERE part = $1::int AND state IN (2, 3) AND at <= (SELECT current_setting('timingwheel.us')::bigint) / 1000
ORDER BY at, id LIMIT 256 FOR UPDATE SKIP LOCKED`)

	dueText = newStatement(`
SELECT {row} FROM {schema}.messages WHERE part = $1::int AND state = 1 AND at <= (SELECT current_setting('timingwheel.us')::bigint) / 1000 + $2::bigint
ORDER BY at, id LIMIT $3::int FOR UPDATE SKIP LOCKED`)

	// The searches begin after the horizon and after now. Before these, the index has entries of
	// messages that are gone.
	nextText = newStatement(`
SELECT coalesce((SELECT at FROM {schema}.messages WHERE part = $1::int AND state = 1 AND at > (SELECT current_setting('timingwheel.us')::bigint) / 1000 + $2::bigint
		ORDER BY at, id LIMIT 1), 0),
	coalesce((SELECT at FROM {schema}.messages WHERE part = $1::int AND state IN (2, 3) AND at > (SELECT current_setting('timingwheel.us')::bigint) / 1000
		ORDER BY at, id LIMIT 1), 0)`)

	leaseText = newStatement(`SELECT at FROM {schema}.messages WHERE part = $1::int AND state IN (2, 3) ORDER BY at, id LIMIT 1`)

	grantedText = newStatement(`
SELECT {row}, body FROM {schema}.messages
WHERE part = $1::int AND state IN (2, 3) AND token BETWEEN $2::bigint AND $3::bigint ORDER BY token FOR UPDATE SKIP LOCKED`)

	noteClaimText = newStatement(`UPDATE {schema}.claims SET token = $2::bigint, next = $3::bigint, consumers = $4::text WHERE part = $1::int`)

	// The number of rows is limited, because there may be millions after a time without consumers.
	foldText = newStatement(`
WITH gone AS (
	DELETE FROM {schema}.counts
	WHERE ctid = ANY(ARRAY(SELECT ctid FROM {schema}.counts WHERE part = $1::int LIMIT 100000 FOR UPDATE SKIP LOCKED)) RETURNING *),
total AS (SELECT ` + columnsText("coalesce(sum({c}), 0)::bigint AS {c}") + ` FROM gone)
UPDATE {schema}.claims c SET ` + columnsText("{c} = c.{c} + t.{c}") + ` FROM total t WHERE c.part = $1::int`)
)

// maxCounts is the number of rows of the table counts that a claim leaves there.
const maxCounts = 64

// grant is what a partition remembers of the last claim of a consumer: its number, and the tokens
// that it has assigned. There are none if Last is 0.
type grant struct {
	Consumer    string
	Seq         uint64
	First, Last int64
}

// claim is a claim in a partition.
type claim struct {
	l       loaded
	request *driver.Claim
	grants  []grant // the last ones, in the order of their claims
	known   grant   // the consumer's grant
	missed  bool    // the answer to that claim was lost
	dropped bool    // the consumer has given up this claim

	expired int            // number of the first rows of order, whose leases have expired
	beyond  driver.Instant // due time of the first message after the horizon; 0: there is none
	lease   driver.Instant // the end of the first lease that has not expired; 0: there is none
	again   []*message     // of an answer that was lost
	taken   []*message     // that this claim leases
	bodies  map[string][]byte
	claimed driver.Claimed
}

// Claim implements [driver.Backend]. It takes two round trips, or three if an answer was lost. A
// call ends at most 256 expired leases. It skips messages that other transactions have locked. If
// these messages stay unchanged, a claim after the next Fallback takes them.
func (b *backend) Claim(ctx context.Context, request driver.Claim) (claimed driver.Claimed, err error) {
	err = b.call(ctx, "claim", func(ctx context.Context, id *queueID) error {
		c := &claim{request: &request, l: loaded{part: id.parts[request.Partition]}}
		err := b.store.run(ctx, true, c.read, c.redeliver, c.write)
		if err == nil {
			claimed = c.finish()
		}
		return err
	})
	return claimed, err
}

func (c *claim) read(p *pipeline) error {
	*c = claim{request: c.request, l: loaded{part: c.l.part, rows: make(map[string]*message)}, bodies: make(map[string][]byte)}
	p.rows(lockClaimsText, []any{c.l.part}, func(row scanner) error {
		var consumers string
		if err := row.Scan(&consumers); err != nil || consumers == "" {
			return err
		}
		return json.Unmarshal([]byte(consumers), &c.grants)
	})
	c.l.found = p.row(lockStateText, []any{c.l.part, ""}, c.l.stateDest()...)
	p.row(clockText, nil, &c.l.us)
	c.l.dead.read(p, c.l.part)
	p.rows(expiredText, []any{c.l.part}, func(row scanner) error {
		c.expired++
		return c.l.add(row)
	})
	horizon := int64(driver.Instant(0).Add(c.request.Horizon))
	p.rows(dueText, []any{c.l.part, horizon, c.request.Max + 1}, c.l.add) // and the first one that is left
	p.row(nextText, []any{c.l.part, horizon}, &c.beyond, &c.lease)
	return nil
}

// redeliver reads the messages of the consumer's last claim that it has not received, and renews
// their leases.
func (c *claim) redeliver(p *pipeline) error {
	if !*c.l.found {
		return errGone
	}
	for _, g := range c.grants {
		if g.Consumer == c.request.Consumer {
			c.known = g
		}
	}
	c.claimed = driver.Claimed{Now: c.l.now(), Paused: c.l.paused}
	c.dropped = c.request.Consumer != "" && c.request.Seq < c.known.Seq
	if c.missed = !c.dropped && c.known.Last > int64(c.request.Seen); !c.missed { //nolint:gosec // a token
		return nil
	}
	first := max(c.known.First, int64(c.request.Seen)+1) //nolint:gosec // a token
	p.rows(grantedText, []any{c.l.part, first, c.known.Last}, func(row scanner) error {
		r := new(message)
		if err := r.scan(row, &r.msg.Body); err != nil {
			return err
		}
		r.msg.LeaseEnd = transition.After(c.l.now(), c.request.Visibility)
		if r.msg.State == driver.StateLeased {
			r.msg.LeaseEnd = transition.LeaseEnd(c.l.now(), r.msg.Due, cmp.Or(c.request.Hold, c.request.Visibility))
		}
		r.changed = true
		c.again = append(c.again, r)
		return nil
	})
	return nil
}

func (c *claim) write(p *pipeline) error {
	if c.dropped {
		return nil
	}
	c.endLeases()
	before, last := c.l.token, c.l.lastClaim
	if len(c.again) == 0 && !c.l.paused {
		c.take()
	}
	if len(c.taken) > 0 {
		c.remember(before+1, c.l.token)
	} else if c.request.Consumer != "" && (c.missed || c.request.Repeat) {
		if len(c.again) == 0 {
			c.known.First, c.known.Last = 0, 0
		}
		c.remember(c.known.First, c.known.Last)
	}
	c.answer()
	c.l.order = append(c.l.order, c.again...)
	c.l.write(p, c.bodies)
	if len(c.again) > 0 {
		p.row(leaseText, []any{c.l.part}, &c.claimed.Lease)
	}
	if c.l.next = c.claimed.Next; c.l.lastClaim != last || c.missed || c.request.Repeat {
		consumers, _ := json.Marshal(c.grants) // cannot fail
		p.exec(noteClaimText, c.l.part, c.l.token, int64(c.l.next), string(consumers))
	}
	c.l.dead.trim(p, &c.l)
	if c.l.dead.rows > maxCounts {
		p.exec(foldText, c.l.part)
	}
	return nil
}

// endLeases ends the expired leases.
func (c *claim) endLeases() {
	for _, r := range c.l.order[:c.expired] {
		if slices.ContainsFunc(c.again, func(a *message) bool { return a.msg.ID == r.msg.ID }) {
			continue // renewed
		}
		if r.msg.State == driver.StateFiring {
			c.l.tally.Crashed++
			if r.marked() {
				c.l.tally.Cancelled++
				r.removed = true
				continue
			}
			transition.Crash(&r.msg, r.process, c.l.now())
			if most := c.request.MaxCrashes; most > 0 && r.msg.Crashes >= most {
				transition.GiveUp(&c.l.tally.Counters, &r.msg, c.l.now())
			}
		}
		r.schedule(0)
	}
}

// take leases messages in order of due time.
func (c *claim) take() {
	now := transition.Floor(c.l.now())
	until := now.Add(c.request.Horizon)
	all := slices.DeleteFunc(slices.Clone(c.l.order), func(r *message) bool { return !r.scheduled() || r.msg.Due > until })
	slices.SortFunc(all, func(a, b *message) int {
		return cmp.Or(cmp.Compare(a.msg.Due, b.msg.Due), cmp.Compare(a.msg.ID, b.msg.ID))
	})
	token, bytes := max(c.l.token, c.l.us-1), int64(0)
	for _, r := range all {
		bytes += r.size
		if len(c.taken) == c.request.Max || len(c.taken) > 0 && bytes > int64(c.request.MaxBytes) {
			break
		}
		token++
		r.changed, r.msg.Token, r.last, r.msg.State = true, uint64(token), 0, driver.StateLeased //nolint:gosec // positive
		r.msg.LeaseEnd = transition.LeaseEnd(c.l.now(), r.msg.Due, cmp.Or(c.request.Hold, c.request.Visibility))
		if len(c.taken) < c.request.Begin && r.msg.Due <= now && contract.CrashDelay(r.msg.Crashes) == 0 {
			r.msg.State, r.process = driver.StateFiring, contract.Process()
			r.msg.LeaseEnd = transition.LeaseEnd(c.l.now(), r.msg.Due, c.request.Visibility)
		}
		c.taken, c.l.token = append(c.taken, r), token
	}
}

// remember notes the tokens that this claim has assigned to the consumer.
func (c *claim) remember(first, last int64) {
	if c.request.Consumer == "" {
		return
	}
	c.grants = slices.DeleteFunc(c.grants, func(g grant) bool { return g.Consumer == c.request.Consumer })
	c.grants = append(c.grants, grant{c.request.Consumer, c.request.Seq, first, last})
	c.grants = c.grants[max(0, len(c.grants)-contract.ClaimConsumers):]
}

// answer sets what is next in the answer.
func (c *claim) answer() {
	next := c.beyond
	for _, r := range c.l.order {
		if r.scheduled() && (next == 0 || r.msg.Due < next) {
			next = r.msg.Due
		}
	}
	c.claimed.Next, c.claimed.Lease = next, c.lease
	if c.expired == driver.MaxBatch { // there may be more
		c.claimed.Lease = transition.Floor(c.l.now())
	}
	for _, r := range c.taken {
		if c.claimed.Lease == 0 || r.msg.LeaseEnd < c.claimed.Lease {
			c.claimed.Lease = r.msg.LeaseEnd
		}
	}
}

// finish completes the answer with the messages.
func (c *claim) finish() driver.Claimed {
	for _, r := range c.taken {
		r.msg.Body = c.bodies[r.msg.ID]
	}
	for _, r := range append(c.taken, c.again...) {
		c.claimed.Records = append(c.claimed.Records, r.msg)
	}
	return c.claimed
}
