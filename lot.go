package timingwheel

import (
	"math/bits"
	"slices"
	"unsafe"

	"go.uber.org/atomic"
)

// lot is up to chunkSize due timers that one worker claims one after the other, each right before
// its callback, by clearing a bit: without the shard's lock, which several workers would otherwise
// hand to and fro for every callback. A timer is pending until its bit is cleared. The worker, a
// Stop, a Reschedule or another worker clears the bit, and then owns the timer and its callback
// alone.
//
// Nothing waits behind a callback that blocks. A lot is taken under the lock, and whoever leaves the lock
// with one has counted a spare worker, and starts it before the first claim. A spare that begins recalls all lots, so that what is left of them
// is due again. Workers that come for their next lots recall one that stands still.
//
// A claim is entered in the books of the shard later, under the lock: by the worker when it has
// finished its lot, or by anyone who wants to know before (settleLots).
type lot struct {
	ready   atomic.Uint32                             // bit k: entry k has not been claimed
	_       [64 - unsafe.Sizeof(atomic.Uint32{})]byte // the worker writes ready for each callback; others look at what follows
	b       *bucket                                   // mu; its only chunk has an entry for each claim that is not in the books; nil: recalled
	looks   int                                       // mu: how often others have looked since anything was claimed
	seen    uint32                                    // mu: ready when another worker looked last
	funcs   [chunkSize]func()                         // of whoever clears the bit
	touched uintptr
}

// claim claims the next timer and returns its entry and callback, nil where none is left.
func (l *lot) claim() (k int, f func()) {
	for {
		ready := l.ready.Load()
		if ready == 0 {
			return 0, nil
		}
		if l.ready.CompareAndSwap(ready, ready&(ready-1)) {
			k = bits.TrailingZeros32(ready)
			return k, l.takeFunc(k)
		}
	}
}

// withdraw takes entry k away from the worker. It reports false where that has claimed it.
func (l *lot) withdraw(k int) bool {
	for {
		ready := l.ready.Load()
		if ready>>k&1 == 0 {
			return false
		}
		if l.ready.CompareAndSwap(ready, ready&^(1<<k)) {
			return true
		}
	}
}

func (l *lot) takeFunc(k int) func() {
	f := l.funcs[k]
	l.funcs[k] = nil
	return f
}

// fillLot moves up to n of the timers that are due into the lot, and returns how many. mu is held, as in
// all that follows.
func (s *shard) fillLot(l *lot, n int) int {
	if l.b == nil {
		l.b = s.newBucket()
		l.b.state = bucketHeld
	}
	l.b.flush = false
	s.counters.mostDue = max(s.counters.mostDue, s.ready)
	for steps := 0; l.b.live < n && steps < quantum; {
		from := s.firstDue()
		if from == nil {
			break
		}
		took := s.fillFrom(l, from, n-l.b.live)
		if took == 0 {
			break
		}
		steps += took
	}
	if l.b.live > 0 {
		l.touch(l.b.live)
		s.lots = append(s.lots, l)
		l.seen, l.looks = 0, 0
		l.ready.Store(ones(uint32(l.b.live)))
	}
	return l.b.live
}

// fillFrom takes up to n timers off the first chunk of a due bucket: into the lot, or back to the wheel
// where they were postponed. It stops before a plan, which is claimed under the lock as it keeps its slot.
func (s *shard) fillFrom(l *lot, from *bucket, n int) (took int) {
	var idx [chunkSize]uint32
	var due [chunkSize]int64
	c := from.head
	m := s.chunks.meta(c)
	entries := s.chunks.entries(c)
	for alive := m.alive; alive != 0 && took < n; alive &= alive - 1 {
		idx[took] = entries[bits.TrailingZeros32(alive)]
		took++
	}
	for k, i := range idx[:took] { // a loop of its own, so that the cache misses overlap
		due[k] = s.nodes.must(i).deadline
	}
	if k := slices.IndexFunc(due[:took], func(d int64) bool { return d < 0 }); k >= 0 {
		took = k
	}
	s.takeFirst(from, took)
	for k, i := range idx[:took] {
		nd := s.nodes.must(i)
		if due[k] > from.horizon && !from.flush {
			s.put(i, nd, due[k])
			continue
		}
		s.append(l.b, i, nd)
		f := s.callback(i)
		l.funcs[nd.pos&chunkMask] = *f
		*f = nil
	}
	l.b.flush = l.b.flush || from.flush
	return took
}

// takeFirst takes the first n entries of a due bucket's first chunk off its list.
func (s *shard) takeFirst(b *bucket, n int) {
	if b == s.prompt && n > 0 {
		s.prompt = nil
	}
	c := b.head
	m := s.chunks.meta(c)
	for range n {
		m.alive &= m.alive - 1
	}
	b.live -= n
	s.ready -= n
	if m.alive == 0 {
		s.unlink(b, c, m)
	}
}

// lotsReady reports whether a lot has timers that have not been claimed.
func (s *shard) lotsReady() bool {
	for _, l := range s.lots {
		if l.ready.Load() != 0 {
			return true
		}
	}
	return false
}

// settleLots enters in the books what workers have claimed.
func (s *shard) settleLots() {
	for _, l := range s.lots {
		s.settleLot(l, l.ready.Load())
	}
}

func (s *shard) settleLot(l *lot, ready uint32) {
	c := l.b.head
	m := s.chunks.meta(c)
	entries := s.chunks.entries(c)
	for gone := m.alive &^ ready; gone != 0; gone &= gone - 1 {
		k := bits.TrailingZeros32(gone)
		m.alive &^= 1 << k
		l.b.live--
		s.claimed(entries[k], s.nodes.must(entries[k]))
	}
}

// recallLots ends all lots: what has not been claimed is due again.
func (s *shard) recallLots() {
	some := false
	for len(s.lots) > 0 {
		some = s.recall(s.lots[len(s.lots)-1]) || some
	}
	if some {
		s.lotSize = max(1, s.lotSize/2)
	}
}

// idleLooks is how often a lot is seen without progress before it is recalled. Other workers look when they
// come for a lot, so this takes them at most as many lots.
const idleLooks = 8

// recallIdleLots recalls the lots of which nothing is claimed any more, those included that are used up and
// whose last callback takes its time: so there are few.
func (s *shard) recallIdleLots() {
	for k := len(s.lots) - 1; k >= 0; k-- {
		l := s.lots[k]
		if ready := l.ready.Load(); l.looks == 0 || ready != l.seen {
			l.seen, l.looks = ready, 1
		} else if l.looks++; l.looks > idleLooks && s.recall(l) {
			s.lotSize = max(1, s.lotSize/2)
		}
	}
}

// recall ends a lot and reports whether anything was left of it. That is what has been due for longest.
func (s *shard) recall(l *lot) bool {
	left := l.ready.Swap(0)
	s.settleLot(l, left)
	s.forgetLot(l)
	b := l.b
	l.b = nil
	if left == 0 {
		s.freeBucket(b)
		return false
	}
	entries := s.chunks.entries(b.head)
	for ; left != 0; left &= left - 1 {
		k := bits.TrailingZeros32(left)
		i := entries[k]
		*s.callback(i) = l.takeFunc(k)
	}
	b.state, b.horizon = bucketDue, s.now
	if b.flush {
		s.flushed++
	}
	s.ready += b.live
	s.due.pushFront(b)
	return true
}

// returnLot ends the lot of a worker that is done with it, or has left it within a callback.
func (s *shard) returnLot(l *lot) {
	switch {
	case l.b == nil: // recalled
	case l.ready.Load() == 0:
		s.settleLot(l, 0)
		s.forgetLot(l)
	default:
		s.recall(l)
	}
}

func (s *shard) forgetLot(l *lot) {
	k := slices.Index(s.lots, l)
	s.lots = slices.Delete(s.lots, k, k+1)
}

// takeBack takes a timer out of the lot in which it may stand: then it is in no bucket any more. It reports
// whether it was, and whether that came too late, as the timer has been claimed.
func (s *shard) takeBack(n *node) (held, late bool) {
	if len(s.lots) == 0 {
		return false, false
	}
	return s.takeBackSlow(n)
}

func (s *shard) takeBackSlow(n *node) (held, late bool) {
	if n.pos < posInvalid {
		return false, false
	}
	c, k := n.pos>>chunkShift, n.pos&chunkMask
	m := s.chunks.meta(c)
	b := s.all[m.owner]
	if b.state != bucketHeld {
		return false, false
	}
	l := s.lotOf(b)
	if !l.withdraw(int(k)) {
		return true, true
	}
	m.alive &^= 1 << k
	b.live--
	i := s.chunks.entries(c)[k]
	*s.callback(i) = l.takeFunc(int(k))
	return true, false
}

func (s *shard) lotOf(b *bucket) *lot {
	for _, l := range s.lots {
		if l.b == b {
			return l
		}
	}
	return nil
}

// touch reads the first word of n closures, so that the cache misses of their calls overlap. The sum is kept
// only to keep the compiler from dropping the reads.
func (l *lot) touch(n int) {
	sum := uintptr(0)
	for k := range n {
		sum += **(**uintptr)(unsafe.Pointer(&l.funcs[k])) // a func value is a pointer to its closure
	}
	l.touched = sum
}
