package durable

import (
	"context"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

// part is a partition, with the batchers for its writes.
type part struct {
	q     *Queue
	index int
	clock serverClock // of the server that holds the partition; the servers of a Cluster may differ
	puts  batcher[putRequest, driver.Status]

	pauses batcher[bool, struct{}] // see Queue.Pause

	// changes has a batcher for each driver.Op except OpBegin, for which each consumer has its own
	// batcher.
	changes [driver.OpRepeat + 1]batcher[driver.Change, answer]
}

// putRequest is a message to store.
type putRequest struct {
	item    driver.PutItem
	replace bool
}

// size returns the number of bytes that the request counts in the limiter: the envelope without its
// version byte.
func (r putRequest) size() int { return len(r.item.Body) - 1 }

// newPart returns a partition with its batchers. name is unique to this process and queue.
func newPart(q *Queue, index int, name string) *part {
	p := &part{q: q, index: index}
	producer := p.newCaller(name)
	key := func(r putRequest) string { return r.item.ID }
	initBatcher(&p.puts, q, key, func(ctx context.Context, requests []putRequest) ([]driver.Status, error) {
		return p.put(ctx, producer, requests)
	})
	p.puts.size = putRequest.size
	p.puts.alike = func(a, b putRequest) bool { return a.replace == b.replace }
	p.initPauses(name)
	for op := driver.OpAck; op <= driver.OpRepeat; op++ {
		var once *caller
		if op >= driver.OpCancel && op <= driver.OpPurge || op == driver.OpRepeat {
			once = p.newCaller(name + ":" + op.String())
		}
		p.initChanges(&p.changes[op], once, driver.Batch{Op: op})
	}
	return p
}

// newCaller returns a caller. name is unique in the partition.
func (p *part) newCaller(name string) *caller {
	_, groups := p.q.backend.(contract.Grouper)
	return &caller{p: p, name: name, groups: groups}
}

// initBatcher sets up a batcher.
func initBatcher[Q, R any](b *batcher[Q, R], q *Queue, key func(Q) string, flush func(context.Context, []Q) ([]R, error)) {
	b.ctx, b.retryFor, b.key, b.flush = q.ctx, q.options.RetryFor, key, flush
	_, b.groups = q.backend.(contract.Grouper)
}

// initChanges sets up a batcher of changes. once is the caller of transitions without a token, and
// like has the other fields of each batch.
func (p *part) initChanges(b *batcher[driver.Change, answer], once *caller, like driver.Batch) {
	key := func(c driver.Change) string { return c.ID }
	initBatcher(b, p.q, key, func(ctx context.Context, changes []driver.Change) ([]answer, error) {
		batch := like
		batch.Partition, batch.Changes = p.index, changes
		return p.apply(ctx, once, batch)
	})
}

// put stores messages.
func (p *part) put(ctx context.Context, producer *caller, requests []putRequest) (statuses []driver.Status, err error) {
	put := driver.Put{Partition: p.index, Replace: requests[0].replace, Items: make([]driver.PutItem, len(requests))}
	for i, r := range requests {
		put.Items[i] = r.item
	}
	err = producer.call(ctx, func(ctx context.Context, call driver.Call) (err error) {
		put.Call = call
		statuses, err = p.q.backend.Put(ctx, put)
		return err
	})
	return statuses, err
}

// apply makes transitions. Those with tokens are idempotent. Those without tokens have a caller
// that numbers them, so that each takes effect once.
func (p *part) apply(ctx context.Context, once *caller, batch driver.Batch) (answers []answer, err error) {
	repeated := false
	do := func(ctx context.Context, call driver.Call) error {
		sent, before := time.Now(), repeated
		repeated, batch.Call = true, call
		outcomes, err := p.q.backend.Apply(ctx, batch)
		answers = make([]answer, len(outcomes))
		for i, o := range outcomes {
			answers[i] = answer{o, sent, before}
		}
		return err
	}
	if once != nil {
		err = once.call(ctx, do)
	} else {
		err = p.q.retry(func(ctx context.Context) error { return do(ctx, driver.Call{}) })
	}
	return answers, err
}

// answer is the store's answer to a change.
type answer struct {
	driver.Outcome
	sent     time.Time // start of the call that returned the answer
	repeated bool      // an earlier call with the token was not answered, and may have taken effect
}

// until returns the earliest end of the lease on this process's clock. The store read its clock
// after the call began.
func (a *answer) until() time.Time { return a.sent.Add(a.Lease.Time().Sub(a.Now)) }
