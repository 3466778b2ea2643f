package timingwheel

import (
	"math"
	"sync"
	"sync/atomic" // its 64-bit types are aligned on 32-bit platforms

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

// never is a tick that no clock reaches.
const never = math.MaxInt64

// words encodes and decodes the ticks in the words of timers. A word has room for a tick near the
// clock. For a deadline beyond that, the word holds a ticket of farTable.
type words struct {
	pages *arena.Table[arena.Page]
	near  int64        // ns: a deadline at least this long after now is far, see arena.Near
	now   atomic.Int64 // ns: a time that has passed, stored by the owner; Manual: the clock
	far   farTable
}

// encode returns the flags and bits with which a word represents the tick of a deadline. The
// deadline must not be before the clock. The owner's latest reading decides whether it is near, so
// that an owner that lags behind the clock can decode the word.
func (t *words) encode(deadline, tick int64) (flags arena.Word, bits uint64) {
	if deadline-t.now.Load() < t.near {
		return 0, uint64(tick)
	}
	return arena.Far, t.far.put(tick)
}

// decode returns the tick of a word, and false if the word has changed meanwhile. now is a tick by
// which the word can be read, see arena.Word.Tick.
func (t *words) decode(w arena.Word, now int64) (int64, bool) {
	if w.Has(arena.Far) {
		return t.far.get(w.Bits())
	}
	return w.Tick(now), true
}

// fits reports whether a word has room for a tick and stays readable for long enough. now is the
// tick of words.now and not the owner's tick, because callers decode words by words.now.
func fits(tick, now int64) bool {
	return -arena.Near <= tick-now && tick-now < arena.Near
}

// forget drops the ticket of a word that was replaced.
func (t *words) forget(w arena.Word) {
	if w.Has(arena.Far) {
		t.far.drop(w.Bits())
	}
}

// replace swaps word w for another one. The deadline of either may be far.
func (t *words) replace(pg *arena.Page, i uint32, w, to arena.Word) bool {
	if !pg.Swap(i, w, to) {
		t.forget(to)
		return false
	}
	t.forget(w)
	return true
}

// makeFar replaces the tick of a pending timer by a ticket if the tick is less than before. It
// returns the word that it found and the word that is stored now. now is a tick near that of
// words.now.
func (t *words) makeFar(pg *arena.Page, i uint32, now, before int64) (was, is arena.Word) {
	for {
		w := pg.Load(i)
		if k := w.Kind(); k != arena.Placed && k != arena.Staged || w.Has(arena.Far) {
			return w, w
		}
		tick := w.Tick(now)
		if tick >= before {
			return w, w
		}
		far := w.WithBits(t.far.put(tick)) | arena.Far
		if t.replace(pg, i, w, far) {
			return w, far
		}
	}
}

// farTable holds the deadlines for which a word has no room. Such a word is far, and holds a
// ticket: the key of its deadline. The goroutine that replaces the word drops the ticket.
type farTable struct {
	mu    sync.Mutex
	ticks map[uint64]int64
	last  uint64
}

func (f *farTable) put(tick int64) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ticks == nil {
		f.ticks = make(map[uint64]int64)
	}
	for used := true; used; _, used = f.ticks[f.last] {
		f.last = arena.LowBits(int64(f.last + 1)) // a word has no room for more
	}
	f.ticks[f.last] = tick
	return f.last
}

func (f *farTable) get(ticket uint64) (int64, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	tick, ok := f.ticks[ticket]
	return tick, ok
}

func (f *farTable) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ticks = nil
}

func (f *farTable) drop(ticket uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if delete(f.ticks, ticket); len(f.ticks) == 0 {
		f.ticks = nil // a map does not shrink
	}
}

// loadWord returns the word of slot i, or 0 if its page is gone.
func loadWord(pages *arena.Table[arena.Page], i uint32) arena.Word {
	pg := pages.At(i >> arena.PageShift)
	if pg == nil {
		return 0
	}
	return pg.Load(i)
}
