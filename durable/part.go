package durable

import (
	"context"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
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
	changes [driver.OpExpire + 1]batcher[driver.Change, answer]
}

// putRequest is a message to store.
type putRequest struct {
	item    driver.PutItem
	replace bool
}

// size returns the number of bytes that the request counts in the limiter: those of the envelope
// without its version byte.
func (r putRequest) size() int { return len(r.item.Body) - 1 }

// newPart returns a partition with its batchers. name is unique to this process and queue.
func newPart(q *Queue, index int, name string) *part {
	p := &part{q: q, index: index}
	p.puts.retryFor = q.options.RetryFor
	p.puts.key = func(r putRequest) string { return r.item.ID }
	p.puts.size = putRequest.size
	p.puts.alike = func(a, b putRequest) bool { return a.replace == b.replace }
	_, groups := q.backend.(driver.Grouper)
	producer := &caller{p: p, name: name, once: groups}
	p.puts.flush = func(requests []putRequest) ([]driver.Status, error) { return p.put(producer, requests) }
	if groups {
		p.puts.direct = p.putOne
	}
	p.initPauses(name)
	for op := driver.OpAck; op <= driver.OpExpire; op++ {
		apply := p.apply
		if op >= driver.OpCancel && op <= driver.OpPurge {
			once := &caller{p: p, name: name + ":" + op.String(), once: groups}
			apply = func(batch driver.Batch) ([]answer, error) { return p.applyOnce(once, batch) }
		}
		p.initBatcher(&p.changes[op], func(changes []driver.Change) ([]answer, error) {
			return apply(driver.Batch{Partition: p.index, Op: op, Changes: changes})
		})
		if groups {
			p.changes[op].direct = func(ctx context.Context, c driver.Change) (answer, error) { return p.changeOne(ctx, op, c) }
		}
	}
	return p
}

// initBatcher sets up a batcher of changes.
func (p *part) initBatcher(b *batcher[driver.Change, answer], flush func([]driver.Change) ([]answer, error)) {
	b.retryFor = p.q.options.RetryFor
	b.key = func(c driver.Change) string { return c.ID }
	b.flush = flush
}

// put stores messages.
func (p *part) put(producer *caller, requests []putRequest) (statuses []driver.Status, err error) {
	put := driver.Put{Partition: p.index, Replace: requests[0].replace, Items: make([]driver.PutItem, len(requests))}
	for i, r := range requests {
		put.Items[i] = r.item
	}
	err = producer.call(func(ctx context.Context, call driver.Call) (err error) {
		put.Call = call
		statuses, err = p.q.backend.Put(ctx, put)
		return err
	})
	return statuses, err
}

// putOne stores a message in a store that groups calls.
func (p *part) putOne(ctx context.Context, r putRequest) (driver.Status, error) {
	statuses, err := p.q.backend.Put(ctx, driver.Put{Partition: p.index, Replace: r.replace, Items: []driver.PutItem{r.item}})
	if err != nil {
		return 0, err
	}
	return statuses[0], nil
}

// changeOne makes one transition in a store that groups calls.
func (p *part) changeOne(ctx context.Context, op driver.Op, c driver.Change) (answer, error) {
	sent := time.Now()
	outcomes, err := p.q.backend.Apply(ctx, driver.Batch{Partition: p.index, Op: op, Changes: []driver.Change{c}})
	if err != nil {
		return answer{}, err
	}
	return answer{outcomes[0], sent, false}, nil
}

// applyOnce makes transitions without a token. A caller numbers them, so that each takes effect
// once.
func (p *part) applyOnce(c *caller, batch driver.Batch) (answers []answer, err error) {
	var outcomes []driver.Outcome
	err = c.call(func(ctx context.Context, call driver.Call) (err error) {
		batch.Call = call
		outcomes, err = p.q.backend.Apply(ctx, batch)
		return err
	})
	answers = make([]answer, len(outcomes))
	for i, o := range outcomes {
		answers[i].Outcome = o
	}
	return answers, err
}

// apply makes transitions with tokens, which are idempotent.
func (p *part) apply(batch driver.Batch) (answers []answer, err error) {
	repeated := false
	err = p.q.retry(func(ctx context.Context) error {
		sent, before := time.Now(), repeated
		repeated = true
		outcomes, err := p.q.backend.Apply(ctx, batch)
		answers = make([]answer, len(outcomes))
		for i, o := range outcomes {
			answers[i] = answer{o, sent, before}
		}
		return err
	})
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
