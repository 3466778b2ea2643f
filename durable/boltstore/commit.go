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

// committer writes for all queues of a store. What arrives while a commit is under way goes together in the next one, so a commit
// costs two fsyncs for however many wait; that is group commit as databases have it.
//
// No two requests of a group touch the same message, and what a group touches is busy until it is safe: a Begin of it waits. So a request decides by
// the memory and the file as of the last commit, and the memory changes when the commit has succeeded, under Store.view.
type committer struct {
	store *Store

	mu      sync.Mutex
	wake    sync.Cond
	waiting []*request
	left    int                     // requests of waiting whose callers have given up
	noting  map[*partition]struct{} // those with notes
	closed  bool
	last    int // requests of the last group
	done    chan struct{}
	stalled chan struct{} // closed when a transaction has taken longer than Options.stall
	stall   func()        // closes it, once
}

// A group has at most so many messages, and so many bytes of bodies unless one request alone has more.
const (
	groupMessages = 16 * driver.MaxBatch
	groupBytes    = 16 << 20
)

// request is a change of a partition.
type request struct {
	p     *partition
	ids   []string // that it touches
	bytes int
	grows bool // it stores something new, so it is what is refused first where there is no space

	// run makes the change, in a transaction. It may run more than once. An error is one of the transaction.
	run  func(w *partitionWriter) error
	err  error
	done chan struct{}

	taken bool // it is or was in a group; under committer.mu, as left
	left  bool // its caller has given up before
}

func (c *committer) start(s *Store) {
	c.store, c.noting, c.done, c.stalled = s, make(map[*partition]struct{}), make(chan struct{}), make(chan struct{})
	c.stall = sync.OnceFunc(func() {
		s.fail(fmt.Errorf("%w for %v", errStalled, s.options.stall))
		close(c.stalled)
	})
	c.wake.L = &c.mu
	go c.run()
}

// stop waits for what was asked. It is an error if a commit has stalled.
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

var errStalled = fmt.Errorf("%w: a commit does not end", driver.ErrBroken)

// do waits until a request is safe, or has failed. If ctx ends before the request is in a group, it does not take place; if ctx ends
// later, it may, and the error is a [*driver.UnderWayError].
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

// withdraw takes a request out of those that wait, false if it is in a group. It stays in the slice, without its content, until half of
// that has left.
func (c *committer) withdraw(r *request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.taken {
		return false
	}
	r.left, r.run, r.ids = true, nil, nil
	if c.left++; c.left > 32 && c.left > len(c.waiting)/2 {
		c.waiting = slices.DeleteFunc(c.waiting, func(r *request) bool { return r.left })
		c.left = 0
	}
	return true
}

// note has the notes of a partition written with the next commit, or with one of its own.
func (c *committer) note(p *partition) {
	c.mu.Lock()
	c.noting[p] = struct{}{}
	c.wake.Signal()
	c.mu.Unlock()
}

// noteAgain has notes written after all that were left out, as a request of the group touched their messages and wrote nothing.
func (c *committer) noteAgain(notes []*partition) {
	for _, p := range notes {
		p.mu.Lock()
		left := len(p.notes) > 0
		p.mu.Unlock()
		if left {
			c.note(p)
		}
	}
}

func (c *committer) run() {
	defer close(c.done)
	stall := c.store.options.stall
	watch := time.AfterFunc(stall, c.stall)
	for watch.Stop() {
		group, notes, ok := c.gather()
		if !ok {
			return
		}
		watch.Reset(stall)
		c.commit(group, notes)
	}
}

// gather waits for something to do, and takes what belongs to the next group.
func (c *committer) gather() (group []*request, notes []*partition, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.waiting) == 0 && len(c.noting) == 0 {
		if c.closed {
			return nil, nil, false
		}
		c.wake.Wait()
	}
	c.yieldToCallers()
	rest := c.waiting[:0]
	messages, bytes := 0, 0
	for i, r := range c.waiting {
		if r.left {
			c.left--
			continue
		}
		full := len(group) > 0 && (messages+len(r.ids) > groupMessages || bytes+r.bytes > groupBytes)
		if full {
			rest = append(rest, c.waiting[i:]...)
			break
		}
		if !r.p.mark(r.ids) {
			rest = append(rest, r)
			continue
		}
		r.taken = true
		group = append(group, r)
		messages += len(r.ids)
		bytes += r.bytes
	}
	clear(c.waiting[len(rest):])
	c.waiting = rest
	c.last = len(group)
	for p := range c.noting {
		notes = append(notes, p)
	}
	clear(c.noting)
	return group, notes, true
}

// yieldToCallers lets the callers run that the last commit has woken and that are about to ask again. Otherwise the next
// group would be the first of them alone, and all others would wait for two commits. It ends when as many wait as
// the last group had, and no more come.
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

// mark makes messages busy, false if one of them is.
func (p *partition) mark(ids []string) bool {
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

// unmark ends a group.
func (p *partition) unmark() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.busy)
	if p.settled != nil {
		close(p.settled)
		p.settled = nil
	}
}

// commit makes a group safe, and tells those who wait for it.
func (c *committer) commit(group []*request, notes []*partition) {
	c.try(group, notes)
	for _, r := range group {
		r.p.unmark()
	}
	for _, r := range group {
		close(r.done)
	}
}

// try makes a group safe, or gives its requests their errors. Where space runs out, what stores something new is refused and the rest is
// tried again, from the reserve if it must be, and apart, as a small transaction needs few pages. Damage is an error for those who have met
// it and for nobody else.
func (c *committer) try(group []*request, notes []*partition) {
	err := c.transact(group, notes)
	full := errors.Is(err, driver.ErrFull)
	if full {
		rest := withoutGrowth(group, err)
		if len(rest)+len(notes) == 0 {
			return
		}
		if len(rest) < len(group) || c.store.spendReserve() == nil {
			c.try(rest, notes)
			return
		}
	}
	if (full || errors.Is(err, ErrCorrupt)) && len(group)+len(notes) > 1 {
		c.trySeparately(group, notes)
		return
	}
	for _, r := range group {
		r.err = err
	}
}

// trySeparately tries the notes of each partition, for which nobody waits, and the halves of a group.
func (c *committer) trySeparately(group []*request, notes []*partition) {
	for _, p := range notes {
		_ = c.transact(nil, []*partition{p})
	}
	if len(notes) > 0 {
		c.try(group, nil)
		return
	}
	half := len(group) / 2
	c.try(group[:half], nil)
	c.try(group[half:], nil)
}

// withoutGrowth refuses what stores something new, and returns the others.
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

// transact runs a group in one transaction. It fails as a whole: then neither file nor memory have changed,
// or the store has failed. Damage that the group has met while nothing was written yet is an error of the
// group alone. An error of the system, such as EIO, ends the use of the store, except for [driver.ErrFull].
func (c *committer) transact(group []*request, notes []*partition) error {
	s := c.store
	if err := s.failed.Load(); err != nil {
		return *err
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	met := true // by the group
	id, err := s.file.update(func(tx *bolt.Tx) error {
		w := newWriter(s, tx)
		if err := w.run(group, notes); err != nil {
			return err
		}
		if !w.wrote() {
			c.noteAgain(notes)
			return tx.Rollback()
		}
		met = false
		return w.commit()
	})
	if err == nil {
		return nil
	}
	err = fmt.Errorf("boltstore: commit to %q: %w", s.path, classify(err))
	switch {
	case s.file.stuck.Load():
		s.fail(err)
	case errors.Is(err, driver.ErrFull) || met && id > 0 || errors.Is(err, ErrCorrupt) && met:
		c.verify(id, err)
	default:
		s.fail(err)
	}
	if failed := s.failed.Load(); failed != nil {
		return *failed
	}
	return err
}

// verify ends the use of the store if a transaction that has failed can be seen: it may or may not be safe.
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

// The reserve holds values that mean nothing. A transaction copies each page that it changes, so even
// one that removes messages needs space. If there is none, part of the reserve is deleted, and its pages
// serve the transactions that remove messages. A transaction that stores something new restores the
// reserve first, so it is refused until there is room for both.
//
// The reserve must not need adjacent pages, as few of the free pages of a file that has been full are
// adjacent. A value is therefore smaller than a page, since bbolt stores a larger one in adjacent pages.
// The same holds for the list of free pages, which is written before a page on it can be used. The
// values of one step therefore free so few pages that the list stays small while nothing else is free.
const (
	reserveBytes = 4 << 20
	reserveValue = 1000 // with key and headers, four values fill a page of 4096 bytes
	reserveStep  = 256  // values
)

// keepReserve makes what is missing of the reserve. Its first values go first, see spendReserve.
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

// spendReserve gives pages of the reserve to the transactions that follow. It is an error if nothing is left of the reserve.
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

// updateWithReserve is update, which takes from the reserve where space has run out.
func (s *Store) updateWithReserve(f func(tx *bolt.Tx) error) error {
	err := s.update(f)
	for errors.Is(err, driver.ErrFull) && s.spendReserve() == nil {
		err = s.update(f)
	}
	return err
}
