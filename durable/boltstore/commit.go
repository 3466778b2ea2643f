package boltstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// committer writes for all queues of a store. It implements group commit: requests that arrive
// during a commit share the next one, so any number of callers cost two fsyncs.
//
// No two requests of a group touch the same message. The messages of a group are busy until the
// commit ends, and Begin waits for a busy message. A request therefore decides by the memory and
// the file as of the last commit. The memory changes under Store.view after the commit has
// succeeded.
type committer struct {
	store *Store

	mu        sync.Mutex
	wake      sync.Cond
	waiting   []*request
	withdrawn int                     // requests of waiting whose callers have given up
	withBegun map[*partition]struct{} // partitions whose unsavedBegun the next commit writes
	closed    bool
	last      int // requests of the last group
	done      chan struct{}
	stalled   chan struct{} // closed when a transaction has taken longer than Options.stall
	stall     func()        // closes stalled once
}

// A group has at most groupMessages messages. Its bodies have at most groupBytes bytes, unless a
// single request has more.
const (
	groupMessages = 16 * driver.MaxBatch
	groupBytes    = 16 << 20
)

// request is a change of a partition.
type request struct {
	p     *partition
	ids   []string // messages that it touches
	bytes int      // of bodies
	grows bool     // it stores something new, so it is refused first if space runs out

	// run makes the change in a transaction, and may be called more than once. Its error fails the
	// transaction.
	run  func(w *partitionWriter) error
	err  error
	done chan struct{}

	inGroup   bool // it is or was in a group; guarded by committer.mu
	withdrawn bool // its caller gave up before that; guarded by committer.mu
}

func (c *committer) start(s *Store) {
	c.store, c.withBegun, c.done, c.stalled = s, make(map[*partition]struct{}), make(chan struct{}), make(chan struct{})
	c.stall = sync.OnceFunc(func() {
		s.fail(fmt.Errorf("%w for %v", errStalled, s.options.stall))
		close(c.stalled)
	})
	c.wake.L = &c.mu
	go c.run()
}

// stop waits for the requests made so far. It returns an error if a commit has stalled.
func (c *committer) stop() error {
	c.mu.Lock()
	c.closed = true
	c.wake.Signal()
	c.mu.Unlock()
	select {
	case <-c.done:
		return nil
	case <-c.stalled:
		return errStalled
	}
}

var errStalled = fmt.Errorf("%w: a commit has stalled", driver.ErrBroken)

// do waits until a request is synced or has failed. If ctx ends before the request is in a group,
// the request has no effect. If ctx ends later, the request may take effect, and the error is a
// [*driver.UnderWayError].
func (c *committer) do(ctx context.Context, r *request) error {
	r.done = make(chan struct{})
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return errClosed()
	}
	c.waiting = append(c.waiting, r)
	c.wake.Signal()
	c.mu.Unlock()
	select {
	case <-r.done:
		return r.err
	case <-c.stalled:
		c.withdraw(r)
		return *c.store.failed.Load()
	case <-ctx.Done():
		if c.withdraw(r) {
			return context.Cause(ctx)
		}
		return &driver.UnderWayError{Cause: context.Cause(ctx), Done: r.done}
	}
}

// withdraw removes a waiting request. It reports whether the request was waiting, and not in a
// group. The emptied request stays in the slice until more than 32 requests, and more than half of
// the slice, are withdrawn.
func (c *committer) withdraw(r *request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.inGroup {
		return false
	}
	r.withdrawn, r.run, r.ids = true, nil, nil
	if c.withdrawn++; c.withdrawn > 32 && c.withdrawn > len(c.waiting)/2 {
		c.waiting = slices.DeleteFunc(c.waiting, func(r *request) bool { return r.withdrawn })
		c.withdrawn = 0
	}
	return true
}

// saveBegun requests that the next commit writes partition.unsavedBegun. The commit takes place
// even if no request waits.
func (c *committer) saveBegun(p *partition) {
	c.mu.Lock()
	c.withBegun[p] = struct{}{}
	c.wake.Signal()
	c.mu.Unlock()
}

// saveBegunAgain repeats saveBegun for the messages that were left out because a request of the
// group touched them. It is called for a group that wrote nothing.
func (c *committer) saveBegunAgain(begun []*partition) {
	for _, p := range begun {
		p.mu.Lock()
		left := len(p.unsavedBegun) > 0
		p.mu.Unlock()
		if left {
			c.saveBegun(p)
		}
	}
}

func (c *committer) run() {
	defer close(c.done)
	stall := c.store.options.stall
	watch := time.AfterFunc(stall, c.stall)
	for watch.Stop() {
		group, begun, ok := c.gather()
		if !ok {
			return
		}
		watch.Reset(stall)
		c.commit(group, begun)
	}
}

// gather waits for requests or for partitions with begun messages, and returns the next group. ok
// is false after stop.
func (c *committer) gather() (group []*request, begun []*partition, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.waiting) == 0 && len(c.withBegun) == 0 {
		if c.closed {
			return nil, nil, false
		}
		c.wake.Wait()
	}
	c.yieldToCallers()
	rest := c.waiting[:0]
	messages, bytes := 0, 0
	for i, r := range c.waiting {
		if r.withdrawn {
			c.withdrawn--
			continue
		}
		full := len(group) > 0 && (messages+len(r.ids) > groupMessages || bytes+r.bytes > groupBytes)
		if full {
			rest = append(rest, c.waiting[i:]...)
			break
		}
		if !r.p.markBusy(r.ids) {
			rest = append(rest, r)
			continue
		}
		r.inGroup = true
		group = append(group, r)
		messages += len(r.ids)
		bytes += r.bytes
	}
	clear(c.waiting[len(rest):])
	c.waiting = rest
	c.last = len(group)
	for p := range c.withBegun {
		begun = append(begun, p)
	}
	clear(c.withBegun)
	return group, begun, true
}

// yieldToCallers lets the callers run that the last commit has woken and that are about to call
// again. Otherwise the next group would hold only the first of them, and the others would wait for
// two commits. yieldToCallers returns when at least as many requests wait as the last group had and
// no more arrive, or after maxYields rounds.
func (c *committer) yieldToCallers() {
	for range maxYields {
		before := len(c.waiting)
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
		if n := len(c.waiting); n == before && n >= c.last {
			return
		}
	}
}

const maxYields = 32

// markBusy makes messages busy, and reports whether it did. If one of them is busy already,
// markBusy changes nothing.
func (p *partition) markBusy(ids []string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range ids {
		if _, busy := p.busy[id]; busy {
			return false
		}
	}
	for _, id := range ids {
		p.busy[id] = struct{}{}
	}
	return true
}

// clearBusy ends a group and wakes the calls that wait for its messages.
func (p *partition) clearBusy() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.busy)
	if p.groupDone != nil {
		close(p.groupDone)
		p.groupDone = nil
	}
}

// commit syncs a group and then wakes its callers.
func (c *committer) commit(group []*request, begun []*partition) {
	c.try(group, begun)
	for _, r := range group {
		r.p.clearBusy()
	}
	for _, r := range group {
		close(r.done)
	}
}

// try commits a group, or sets the errors of its requests.
//
// If space runs out, try refuses the requests that store something new and tries the rest again. If
// the rest needs space too, try spends part of the reserve. If the reserve is used up, try commits
// each request separately, because a small transaction needs few pages. If a page is damaged, only
// the requests that need the page fail.
func (c *committer) try(group []*request, begun []*partition) {
	err := c.transact(group, begun)
	full := errors.Is(err, driver.ErrFull)
	if full {
		rest := withoutGrowth(group, err)
		if len(rest)+len(begun) == 0 {
			return
		}
		if len(rest) < len(group) || c.store.spendReserve() == nil {
			c.try(rest, begun)
			return
		}
	}
	if (full || errors.Is(err, ErrCorrupt)) && len(group)+len(begun) > 1 {
		c.trySeparately(group, begun)
		return
	}
	for _, r := range group {
		r.err = err
	}
}

// trySeparately commits the begun messages of each partition, and then the two halves of the group.
// No caller waits for the begun messages to be written, so their errors are dropped.
func (c *committer) trySeparately(group []*request, begun []*partition) {
	for _, p := range begun {
		_ = c.transact(nil, []*partition{p})
	}
	if len(begun) > 0 {
		c.try(group, nil)
		return
	}
	half := len(group) / 2
	c.try(group[:half], nil)
	c.try(group[half:], nil)
}

// withoutGrowth sets the error of the requests that store something new, and returns the others.
func withoutGrowth(group []*request, full error) (rest []*request) {
	for _, r := range group {
		if r.grows {
			r.err = full
		} else {
			rest = append(rest, r)
		}
	}
	return rest
}

// transact runs a group in one transaction, which succeeds or fails as a whole. After a failure,
// either file and memory are unchanged, or the store has failed. If the group meets damage before
// anything was written, only the group fails. An error of the system, such as EIO, ends the use of
// the store, except for [driver.ErrFull].
func (c *committer) transact(group []*request, begun []*partition) error {
	s := c.store
	if err := s.failed.Load(); err != nil {
		return *err
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	unwritten := true // the commit has not started
	id, err := s.file.update(func(tx *bolt.Tx) error {
		w := newWriter(s, tx)
		if err := w.run(group, begun); err != nil {
			return err
		}
		if !w.wrote() {
			c.saveBegunAgain(begun)
			return tx.Rollback()
		}
		unwritten = false
		return w.commit()
	})
	if err == nil {
		return nil
	}
	err = fmt.Errorf("boltstore: commit to %q: %w", s.path, classify(err))
	switch {
	case s.file.stuck.Load():
		s.fail(err)
	case errors.Is(err, driver.ErrFull) || unwritten && (id > 0 || errors.Is(err, ErrCorrupt)):
		c.verify(id, err)
	default:
		s.fail(err)
	}
	if failed := s.failed.Load(); failed != nil {
		return *failed
	}
	return err
}

// verify fails the store if readers see a transaction that has failed: it is unknown whether such a
// transaction is synced.
func (c *committer) verify(id int, cause error) {
	err := c.store.file.view(func(tx *bolt.Tx) error {
		if id > 0 && tx.ID() >= id {
			return cause
		}
		return nil
	})
	if err != nil {
		c.store.fail(errors.Join(cause, err))
	}
}

// The reserve holds values without meaning. A transaction copies each page that it changes, so even
// one that removes messages needs space. If there is none, part of the reserve is deleted, and its
// pages serve the transactions that remove messages. A transaction that stores something new
// restores the reserve first, so it is refused until there is room for both.
//
// The reserve must not need adjacent pages, because few of the free pages of a file that has been
// full are adjacent. A value is therefore smaller than a page, since bbolt stores a larger one in
// adjacent pages. The list of free pages, which is written before a page on it can be used, must
// not need adjacent pages either. The values of one step therefore free so few pages that the list
// stays small while nothing else is free.
const (
	reserveBytes = 4 << 20
	reserveValue = 1000 // with key and headers, four values fill a page of 4096 bytes
	reserveStep  = 256  // values
)

// keepReserve restores the missing values of the reserve, which are the first ones: spendReserve
// removes values from the start.
func (w *writer) keepReserve() error {
	b, err := w.tx.CreateBucketIfNotExists(bucketReserve)
	if err != nil {
		return err
	}
	b.FillPercent = 1
	for at, size := 0, w.store.options.reserve; at < size; at += reserveValue {
		k := binary.BigEndian.AppendUint32(nil, uint32(at))
		if b.Get(k) != nil {
			return nil
		}
		if err := b.Put(k, make([]byte, min(reserveValue, size-at))); err != nil {
			return err
		}
	}
	return nil
}

// spendReserve frees pages of the reserve for the next transactions. It returns an error if the
// reserve is used up.
func (s *Store) spendReserve() error {
	return s.update(func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketReserve)
		if b == nil {
			return berrors.ErrBucketNotFound
		}
		for range reserveStep {
			k, _ := b.Cursor().First()
			if k == nil {
				return tx.DeleteBucket(bucketReserve)
			}
			if err := b.Delete(k); err != nil {
				return err
			}
		}
		return nil
	})
}

// updateWithReserve calls update, and spends the reserve while space runs out.
func (s *Store) updateWithReserve(f func(tx *bolt.Tx) error) error {
	err := s.update(f)
	for errors.Is(err, driver.ErrFull) && s.spendReserve() == nil {
		err = s.update(f)
	}
	return err
}
