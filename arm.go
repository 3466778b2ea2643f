package timingwheel

import (
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/timingwheel-go/timingwheel/internal/arena"
	"github.com/timingwheel-go/timingwheel/internal/clock"
)

func armAfter[T any](e *engine, d time.Duration, v T) Timer {
	now := e.config.Read()
	return armAndUnlock(e.pickAndLock(), clock.Later(now, int64(d)), now, v, 0)
}

func armAtTime[T any](e *engine, t time.Time, v T) Timer {
	deadline, now := e.config.Instant(t)
	return armAndUnlock(e.pickAndLock(), deadline, now, v, 0)
}

// armAndUnlock arms a timer on a shard of pickAndLock for a reading of the clock. now is an earlier
// reading, or clock.Unread. class is 0, or arena.Lasting for a timer with a func() that survives
// the wheel's Stop.
func armAndUnlock[T any](s *shard, deadline, now int64, v T, class arena.Word) (t Timer) {
	ib := &s.inbox
	if ib.ensureRecord() {
		t = ib.armFree(deadline, now, class)
		*payloadOf[T](s, t.index) = v // under the lock, and so before a claim
	}
	ib.unlock()
	return t
}

// ensureRecord makes sure that the inbox has a free record. It reports whether the wheel runs. mu
// is held, but not while a page is allocated, nor after a panic for a full shard.
func (ib *inbox) ensureRecord() bool {
	if !ib.shard.closed.Load() && (len(ib.free) > 0 || ib.refill()) {
		return true
	}
	ib.counts.rejected++
	return false
}

// armFree arms a timer after ensureRecord. The caller sets the payload. mu is held throughout.
func (ib *inbox) armFree(deadline, now int64, class arena.Word) Timer {
	last := len(ib.free) - 1
	i := ib.free[last]
	ib.free = ib.free[:last]
	now = ib.noteReading(now)
	deadline = max(deadline, now)
	tick := ib.shard.config.ticks.Rounded(deadline, now)
	ref := ib.shard.page(i).ref
	pg := ref.page.Load()
	if pg == nil { // never; see arena.Page.Load
		return Timer{}
	}
	w := pg.Arm(i, class, uint64(tick))
	ib.counts.armed++
	if ib.shard.config.Manual != nil {
		ib.setStamp(i)
	}
	ib.stage(i, tick)
	t := Timer{ref, i, w.Gen()}
	if ib.untilSample--; ib.untilSample == 0 {
		ib.sample(t)
	}
	return t
}

// refill adds free records. It reports whether it did: it fails if the wheel is stopped.
func (ib *inbox) refill() bool {
	for !ib.shard.closed.Load() {
		for len(ib.free) < freeRecords {
			i, ok := ib.records.Take()
			if !ok {
				break
			}
			ib.free = append(ib.free, i)
		}
		if len(ib.free) > 0 {
			slices.Reverse(ib.free) // the lowest record is used first
			return true
		}
		ib.openPage()
	}
	return false
}

// openPage allocates a page, for which it unlocks mu. It opens the page unless meanwhile the wheel
// was stopped or a record became free.
func (ib *inbox) openPage() {
	ib.mu.Unlock()
	pg := newPage(ib.shard)
	ib.mu.Lock()
	if ib.shard.closed.Load() || ib.records.HasRoom() {
		return
	}
	p := ib.records.Next()
	if p >= arena.MaxPages {
		ib.mu.Unlock()
		panic("timingwheel: a shard is full: more than 2^29 timers; use more shards")
	}
	ib.shard.pages.Set(p, pg)
	ib.records.Open(pg.ref.page.Load())
}

// putRecord frees a record whose timer has ended, or retires it if it is exhausted. It drops the
// page if the slab releases it. mu is held.
func (ib *inbox) putRecord(i uint32) {
	if ib.records.Put(i, !loadWord(&ib.records.Pages, i).Exhausted()) {
		ib.shard.page(i).ref.page.Store(nil)
		ib.shard.pages.Set(int(i>>arena.PageShift), nil)
	}
}

// page is the engine's part of a page of records. Its fields do not change.
type page struct {
	ref      *pageRef // of the handles
	payloads payloads
	stamps   *[arena.PageSize]atomic.Uint64 // Manual mode; else nil
}

func newPage(s *shard) *page {
	p := &page{ref: &pageRef{shard: s}, payloads: s.engine.job.newPayloads()}
	p.ref.page.Store(new(arena.Page))
	if s.config.Manual != nil {
		p.stamps = new([arena.PageSize]atomic.Uint64)
	}
	return p
}

// page returns the page of record i, or nil if the wheel is stopped.
func (s *shard) page(i uint32) *page { return s.pages.At(i >> arena.PageShift) }

// payloads is a page of payloads, a [payloadsOf]. Changes are made under inbox.mu, or by the
// goroutine that ends the timer.
type payloads interface {
	drop(i uint32) // clears the payload of record i
}

type payloadsOf[T any] [arena.PageSize]T

func (p *payloadsOf[T]) drop(i uint32) {
	if p != nil { // always; see arena.Page.Load
		var zero T
		p[i&arena.PageMask] = zero
	}
}

// payloadOf returns the address of the payload of record i, or nil if the wheel is stopped.
func payloadOf[T any](s *shard, i uint32) *T {
	if p := s.page(i); p != nil {
		if values, _ := p.payloads.(*payloadsOf[T]); values != nil { // always; see arena.Page.Load
			return &values[i&arena.PageMask]
		}
	}
	return nil
}

const routeBits = 10

// routes maps goroutines, by a hash of the address of their stack, to the shards on which they arm
// timers. docs/internals/design.md, "Choosing a shard", has the reasons.
type routes [1 << routeBits]atomic.Uint32

func newRoutes(shards int) *routes {
	r := new(routes)
	for i := range r {
		r[i].Store(uint32(i % shards))
	}
	return r
}

// pickAndLock chooses the shard for a new timer and locks its inbox.mu. If another goroutine,
// perhaps a preempted one, holds the lock, it tries the next shards.
func (e *engine) pickAndLock() *shard {
	if len(e.shards) == 1 {
		s := e.shards[0]
		s.inbox.mu.Lock()
		return s
	}
	var mark byte
	h := uint64(uintptr(unsafe.Pointer(&mark))>>10) * 0x9E3779B97F4A7C15
	r := &e.routes[h>>(64-routeBits)]
	i := r.Load()
	s := e.shards[i]
	if s.inbox.mu.TryLock() {
		return s
	}
	return e.pickNext(r, i)
}

// pickNext is the part of pickAndLock for a locked shard i.
func (e *engine) pickNext(r *atomic.Uint32, i uint32) *shard {
	for range e.shards {
		if i++; i == uint32(len(e.shards)) {
			i = 0
		}
		if s := e.shards[i]; s.inbox.mu.TryLock() {
			r.Store(i)
			return s
		}
	}
	s := e.shards[i]
	s.inbox.mu.Lock()
	return s
}
