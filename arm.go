package timingwheel

import (
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/timingwheel-go/timingwheel/internal/arena"
	"github.com/timingwheel-go/timingwheel/internal/clock"
)

func armAfter[T any](e *engine, d time.Duration, v T) Timer {
	now := int64(0)
	if !e.config.Manual {
		now = e.config.Read()
	}
	s := e.pickAndLock()
	if e.config.Manual {
		now = s.inbox.now
	}
	return armAndUnlock(s, clock.Later(now, int64(d)), now, v, 0)
}

func armAtTime[T any](e *engine, t time.Time, v T) Timer {
	deadline, now := e.config.Instant(t)
	return armAt(e, deadline, now, v, 0)
}

// armAt arms a timer for a reading of the clock. now is an earlier reading, or clock.Unread. class
// is 0, or arena.Lasting for a timer with a func() that survives the wheel's Stop.
func armAt[T any](e *engine, deadline, now int64, v T, class arena.Word) Timer {
	return armAndUnlock(e.pickAndLock(), deadline, now, v, class)
}

func armAndUnlock[T any](s *shard, deadline, now int64, v T, class arena.Word) (t Timer) {
	if s.ensureRecord() {
		t = s.armFree(deadline, now, class)
		payloadsIn[T](s).set(t.index, v) // under the lock, and so before a claim
	}
	s.unlockArm()
	return t
}

// ensureRecord makes sure that the inbox has a free record. It returns false if the wheel is
// stopped. armMu is held, but not while a page is allocated, nor after a panic for a full shard.
func (s *shard) ensureRecord() bool {
	if !s.closed.Load() && (len(s.inbox.free) > 0 || s.refill()) {
		return true
	}
	s.inbox.rejected++
	return false
}

// armFree arms a timer after ensureRecord. The caller sets the payload. armMu is held throughout.
func (s *shard) armFree(deadline, now int64, class arena.Word) Timer {
	ib := &s.inbox
	i := ib.takeFree()
	now = s.noteReading(now)
	deadline = max(deadline, now)
	tick := s.config.ticks.Rounded(deadline, now)
	ref := s.refs.At(i >> arena.PageShift)
	pg := ref.page.Load()
	if pg == nil { // never; see arena.Page.Load
		return Timer{}
	}
	w := pg.Arm(i, class, uint64(tick))
	ib.armed++
	if s.config.Manual {
		s.inbox.order.stamp(i)
	}
	s.stage(i, tick)
	t := Timer{ref, i, w.Gen()}
	if ib.untilSample--; ib.untilSample == 0 {
		s.sample(t)
	}
	return t
}

// noteReading returns the clock reading for a caller that arms a timer, and stores it in the inbox.
// now is the caller's reading, or clock.Unread. For clock.Unread the latest reading of the shard
// suffices, unless the shard is idle.
func (s *shard) noteReading(now int64) int64 {
	ib := &s.inbox
	switch {
	case now == clock.Unread && (s.config.Manual || s.alarm.at.Load() != never):
		return max(ib.now, s.now.Load())
	case now == clock.Unread: // the shard is idle, so its latest reading may be old
		now = s.config.Read()
	}
	ib.now = max(ib.now, now)
	return max(now, s.now.Load()) // the caller may have been preempted since it read the clock
}

// stage adds a timer to the inbox and moves the alarm if the timer is due first. armMu is held.
func (s *shard) stage(i uint32, tick int64) {
	if s.inbox.add(i, tick) {
		s.alarm.setEarlier(tick)
	}
}

// unlockArm is called after a timer was added to the inbox. It sweeps a full inbox first.
func (s *shard) unlockArm() {
	if len(s.inbox.staged) < s.inbox.sweepAt {
		s.armMu.Unlock()
		return
	}
	s.sweepAndUnlock()
}

// sweepAndUnlock is the part of unlockArm for a full inbox.
func (s *shard) sweepAndUnlock() {
	shouldPlace := s.inbox.sweep(&s.records)
	s.armMu.Unlock()
	if shouldPlace {
		s.tryDrain()
	}
}

// refill adds free records to the inbox. It returns false if the wheel is stopped.
func (s *shard) refill() bool {
	ib := &s.inbox
	for !s.closed.Load() {
		var records [freeRecords]uint32
		n := 0
		for ; n < freeRecords; n++ {
			i, ok := s.records.Take()
			if !ok {
				break
			}
			records[n] = i
		}
		for n--; n >= 0; n-- { // the lowest record is used first
			ib.free = append(ib.free, records[n])
		}
		if len(ib.free) > 0 {
			return true
		}
		s.openPage()
	}
	return false
}

// openPage opens a page, unless an open page has room by then or the wheel is stopped.
func (s *shard) openPage() {
	if s.nextPage == nil {
		s.armMu.Unlock()
		pg := &page{new(arena.Page), s.payloads.newPage(), &pageRef{home: unsafe.Pointer(s)}}
		s.armMu.Lock()
		s.nextPage = pg
	}
	if s.closed.Load() {
		s.nextPage = nil
		return
	}
	if s.records.Pager.HasRoom() {
		return // another goroutine has opened a page, or records were freed
	}
	p := s.records.Pager.Next()
	if p >= arena.MaxPages {
		s.armMu.Unlock()
		panic("timingwheel: a shard is full: more than 2^29 timers; use more shards")
	}
	s.records.Open(p, s.nextPage.records)
	s.payloads.setPage(p, s.nextPage.payloads)
	s.nextPage.ref.page.Store(s.nextPage.records)
	s.refs.Set(p, s.nextPage.ref)
	s.nextPage = nil
}

// page is a page of records, the page of their payloads, and the pageRef of their handles.
type page struct {
	records  *arena.Page
	payloads any
	ref      *pageRef
}

func (s *shard) closePage(p int) {
	s.payloads.setPage(p, nil)
	s.refs.At(uint32(p)).page.Store(nil)
	s.refs.Set(p, nil)
	if s.inbox.order != nil {
		s.inbox.order.stamps.Set(p, nil)
	}
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

// pickAndLock chooses the shard for a new timer and locks its armMu. If another goroutine, perhaps
// a preempted one, holds the lock, it tries the next shards.
func (e *engine) pickAndLock() *shard {
	if len(e.shards) == 1 {
		s := e.shards[0]
		s.armMu.Lock()
		return s
	}
	var mark byte
	h := uint64(uintptr(unsafe.Pointer(&mark))>>10) * 0x9E3779B97F4A7C15
	r := &e.routes[h>>(64-routeBits)]
	i := r.Load()
	s := e.shards[i]
	if s.armMu.TryLock() {
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
		if s := e.shards[i]; s.armMu.TryLock() {
			r.Store(i)
			return s
		}
	}
	s := e.shards[i]
	s.armMu.Lock()
	return s
}
