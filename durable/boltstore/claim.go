package boltstore

import (
	"context"
	"errors"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/local"
)

// Claim ends at most [driver.MaxBatch] expired leases. If more have expired, Claimed.Lease is not
// later than Claimed.Now, and the next call ends more.
//
// Claim waits for a commit if a message that had begun has crashed, or if dead letters exceed their
// limits. Otherwise it writes nothing, and waits at most for a commit under way. It is O(log n) for
// each lease that it ends and each message that it claims, however many messages are leased.
//
// Claim works on a full disk. A later claim makes the changes that need a commit, and Claimed.Lease
// is at least a second ahead.
func (b *backend) Claim(ctx context.Context, claim driver.Claim) (driver.Claimed, error) {
	p, err := b.enter(ctx, claim.Partition)
	if err != nil {
		return driver.Claimed{}, err
	}
	p.mu.Lock()
	now := b.store.options.Now()
	if !p.grants.Admit(&claim) {
		defer p.mu.Unlock()
		return driver.Claimed{Now: now, Paused: p.isPaused()}, nil
	}
	head := p.head
	unseen := p.renewUnseen(now, &claim)
	firing := p.endLeases(now)
	write := len(firing) > 0 || p.state.tokens-p.token <= driver.MaxBatch || p.tooManyDead(now, b.limits)
	p.mu.Unlock()
	minLease := driver.Instant(1)
	if write {
		if minLease, err = b.commitCrashes(ctx, p, firing, claim.MaxCrashes); err != nil {
			return driver.Claimed{}, err
		}
	}
	claimed, suspects, err := b.take(ctx, p, now, &claim, unseen, head)
	if err == nil && len(suspects) > 0 {
		until, failed := b.commitCrashes(ctx, p, suspects, claim.MaxCrashes)
		minLease = max(minLease, until)
		if len(claimed.Records) == 0 {
			err = failed // otherwise the caller must get its records; a later claim retries
		}
	}
	if err != nil {
		return driver.Claimed{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ends.Len() > 0 {
		claimed.Lease = max(minLease, p.ends.First().end)
	}
	return claimed, nil
}

// fullPause is how long claims postpone changes that fail because the disk is full. Without the
// pause a consumer would claim again and again without waiting.
const fullPause = time.Second

// commitCrashes makes the request that counts crashes and trims dead letters. If the disk is full,
// it postpones them and returns the instant of the next try.
func (b *backend) commitCrashes(ctx context.Context, p *partition, ids []string, maxCrashes int) (driver.Instant, error) {
	r := &request{p: p, ids: ids}
	r.run = func(w *partitionWriter) error { return w.countCrashes(ids, maxCrashes, b.limits) }
	err := b.store.commits.do(ctx, r)
	if errors.Is(err, driver.ErrFull) {
		return local.After(b.store.options.Now(), fullPause), nil
	}
	return 1, err
}

// renewUnseen renews the leases of the consumer's last claim whose answer the consumer has not
// received, and returns the ids and tokens of their messages.
func (p *partition) renewUnseen(now time.Time, claim *driver.Claim) (held []driver.Change) {
	for _, c := range p.grants.Unseen(claim) {
		if l := p.holds(&c); l != nil {
			l.end = local.ClaimedUntil(now, claim, l.state(), l.due)
			p.ends.Fix(l)
			held = append(held, c)
		}
	}
	return held
}

// take leases messages, or returns the unseen ones again. Messages that have crashed the process
// too often are not leased and are returned as suspects.
func (b *backend) take(
	ctx context.Context, p *partition, now time.Time, claim *driver.Claim, unseen []driver.Change, head driver.Instant,
) (claimed driver.Claimed, suspects []string, err error) {
	err = b.store.read(ctx, func(tx *bolt.Tx) error {
		parts, err := p.q.buckets(tx, p.index)
		if err != nil {
			return err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.grants.Admit(claim) { // a later claim has overtaken this one
			claimed.Now, claimed.Paused = now, p.isPaused()
			return nil
		}
		t := claimTx{p: p, now: now, claim: claim, buckets: parts, scan: scan{p: p, index: parts.index}}
		t.takeUnseen(unseen)
		t.run()
		p.hint(head)
		claimed = driver.Claimed{
			Records: t.records, Now: now, Next: p.head, Unreadable: len(p.unreadable), Paused: p.isPaused(),
		}
		suspects = t.suspects
		return nil
	})
	if slices.ContainsFunc(claimed.Records, func(r driver.Record) bool { return r.State == driver.StateFiring }) {
		b.store.commits.saveBegun(p)
	}
	return claimed, suspects, err
}

// claimTx is a claim within a read transaction and under partition.mu.
type claimTx struct {
	p        *partition
	now      time.Time
	claim    *driver.Claim
	buckets  buckets
	scan     scan
	records  []driver.Record
	size     int
	suspects []string
	lost     int // keys without a record that no earlier claim has found
}

// takeUnseen adds the unseen messages that are still leased.
func (t *claimTx) takeUnseen(unseen []driver.Change) {
	for i := range unseen {
		l := t.p.holds(&unseen[i])
		if l == nil {
			continue // a cancellation was committed meanwhile
		}
		if r, err := decode(l.id, t.buckets.records.Get([]byte(l.id))); err == nil {
			t.records = append(t.records, l.claimed(&r))
		}
	}
}

// run leases messages in the order of their due times, unless there are unseen ones. In both cases
// run finds the head.
func (t *claimTx) run() {
	most := t.claim.Max
	if len(t.records) > 0 || t.p.isPaused() {
		most = 0
	}
	first := t.p.token + 1
	horizon := local.Floor(t.now).Add(t.claim.Horizon)
	for len(t.records)+len(t.suspects) < most {
		k, ok := t.scan.first()
		if !ok || k.at > horizon {
			break
		}
		value := t.buckets.records.Get([]byte(k.id))
		r, err := decode(k.id, value)
		if err != nil || r.State != driver.StateScheduled || r.Due != k.at {
			t.scan.pass(k)
			t.countSkipped(k, value == nil, err != nil)
			continue
		}
		if !t.take(k, &r) {
			break
		}
	}
	k, _ := t.scan.first()
	t.p.head, t.p.headKnown = k.at, true
	if t.p.token >= first {
		t.p.grants.Note(t.claim, first, recordIDs(t.records))
	}
}

// countSkipped records a key that stays in the index although its message cannot be claimed: its
// record is missing, unreadable, or the record of another key.
func (t *claimTx) countSkipped(k key, missing, unreadable bool) {
	switch _, known := t.p.strays[k]; {
	case missing && !known:
		t.p.strays[k] = struct{}{}
		t.p.lost++
		t.lost++
	case unreadable && !missing:
		t.p.unreadable[k] = struct{}{}
	}
}

func recordIDs(records []driver.Record) []string {
	ids := make([]string, len(records))
	for i := range records {
		ids[i] = records[i].ID
	}
	return ids
}

// take leases one message, and reports whether it did: a message may be too large for this claim.
func (t *claimTx) take(k key, r *record) bool {
	p := t.p
	if r.suspect && t.claim.MaxCrashes > 0 && r.Crashes >= t.claim.MaxCrashes {
		t.suspects = append(t.suspects, k.id)
		t.scan.pass(k)
		p.addLease(&lease{id: k.id, due: k.at}) // already expired: a later claim retries if the commit fails
		return true
	}
	t.size += len(r.Body)
	if t.size > t.claim.MaxBytes && len(t.records) > 0 {
		return false
	}
	t.scan.pass(k)
	p.token++
	l := &lease{id: k.id, due: k.at, token: p.token}
	if _, busy := p.busy[l.id]; !busy && len(t.records) < t.claim.Begin && k.at <= local.Floor(t.now) {
		l.firing = true
		p.unsavedBegun[l.id] = struct{}{}
	}
	l.end = local.ClaimedUntil(t.now, t.claim, l.state(), l.due)
	p.addLease(l)
	t.records = append(t.records, l.claimed(r))
	return true
}

// claimed returns a record with the state and token of its lease.
func (l *lease) claimed(r *record) driver.Record {
	out := r.export()
	out.State, out.Token, out.LeaseEnd = l.state(), l.token, l.end
	return out
}
