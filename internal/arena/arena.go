// Package arena keeps the slots of timers: pages of words and positions without a pointer, so that
// the garbage collector never looks at a timer.
//
// A slot is named by its page and its index. Each timer of a slot has a generation of 22 bits of
// its own. A slot whose generations are used up is retired, and a page of retired slots is given
// back. A page that is opened again with the same number is another page, whose generations begin
// anew. A reference to a slot must therefore name the page itself and not only its number.
package arena

import "sync/atomic"

const (
	PageShift = 9
	PageSize  = 1 << PageShift // slots of one page
	PageMask  = PageSize - 1

	// MaxPages bounds a Slots to 2^29 slots. Their entries have positions of 32 bits even if the
	// chunks of the buckets are sparse.
	MaxPages = 1 << (29 - PageShift)
)

// Page is one page of slots.
type Page struct {
	Words [PageSize]atomic.Uint64
	Pos   [PageSize]uint32 // the slot's entry in a bucket, 0 if there is none; the owner's
}

// Load returns the word of a slot.
//
// Before a page is indexed, callers compare it with nil. Otherwise the compiler checks the pointer
// by reading the page's first line, which is one more cache miss at a random slot.
func (pg *Page) Load(slot uint32) Word { return Word(pg.Words[slot&PageMask].Load()) }

// Store sets the word of a slot that no other goroutine may change.
func (pg *Page) Store(slot uint32, w Word) { pg.Words[slot&PageMask].Store(uint64(w)) }

// Swap replaces a word if it still is the old one, and reports whether it was.
func (pg *Page) Swap(slot uint32, old, w Word) bool {
	return pg.Words[slot&PageMask].CompareAndSwap(uint64(old), uint64(w))
}

// Arm sets the word of a free slot to that of its next timer and returns the word.
func (pg *Page) Arm(slot uint32, flags Word, x uint64) Word {
	w := pg.Load(slot).next(Staged, flags, x)
	pg.Store(slot, w)
	return w
}

// Table is a growing table of pages that is read without a lock. One goroutine at a time writes it.
type Table[P any] struct {
	pages atomic.Pointer[[]atomic.Pointer[P]]
}

// At returns page p, or nil if there is none.
func (t *Table[P]) At(p uint32) *P {
	pages := t.pages.Load()
	if pages == nil || int(p) >= len(*pages) {
		return nil
	}
	return (*pages)[p].Load()
}

// Set sets page p; nil removes it. A reader that began before may still see the old page.
func (t *Table[P]) Set(p int, pg *P) {
	old := t.pages.Load()
	if p >= t.Cap() {
		pages := make([]atomic.Pointer[P], max(4, 2*t.Cap(), p+1))
		if old != nil {
			for i := range *old {
				pages[i].Store((*old)[i].Load())
			}
		}
		t.pages.Store(&pages)
		old = &pages
	}
	(*old)[p].Store(pg)
}

// Clear removes all pages.
func (t *Table[P]) Clear() { t.pages.Store(nil) }

// Cap returns the number of pages that the table has room for.
func (t *Table[P]) Cap() int {
	if pages := t.pages.Load(); pages != nil {
		return len(*pages)
	}
	return 0
}

// Slots hands out slots. Pages is read without a lock; all else belongs to one goroutine at a time.
type Slots struct {
	Pages     Table[Page]
	Pager     Pager
	OpenPages int // pages with memory

	// Closed is told of each page that is given back.
	Closed func(p int)
}

// Take returns a free slot, or false if a page has to be opened first.
func (s *Slots) Take() (uint32, bool) {
	page, slot, ok := s.Pager.Take()
	return uint32(page)<<PageShift | slot, ok
}

// Open takes in pg, which is new, as page p of Pager.Next.
func (s *Slots) Open(p int, pg *Page) {
	s.Pages.Set(p, pg)
	s.Pager.Open(p, PageSize)
	s.OpenPages++
}

// Put takes back a slot whose timer has gone. An exhausted slot is not handed out again. If two
// pages are empty Put gives one of them back to the runtime.
func (s *Slots) Put(i uint32) {
	p := i >> PageShift
	pg := s.Pages.At(p)
	if pg == nil {
		return // never; see Load
	}
	if s.Pager.Put(int(p), i&PageMask, !pg.Load(i).Exhausted()) {
		s.close(int(p))
	}
}

// Clear forgets all slots.
func (s *Slots) Clear() {
	s.Pages.Clear()
	s.Pager, s.OpenPages = Pager{}, 0
}

// close gives page p back.
func (s *Slots) close(p int) {
	s.Pages.Set(p, nil)
	s.Pager.Close(p)
	s.OpenPages--
	s.Closed(p)
}
