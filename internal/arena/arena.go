// Package arena stores records, the memory of timers, in pages of words and positions. The pages
// contain no pointers, so the garbage collector does not scan timers.
//
// Each timer of a record has a generation. A record that has used all generations is retired, and a
// page of retired records is released. A page that is opened again under the same number starts the
// generations again, so a reference to a record must identify the page itself.
package arena

import (
	"slices"
	"sync/atomic"
	"unsafe"
)

const (
	PageShift = 9
	PageSize  = 1 << PageShift // records in a page
	PageMask  = PageSize - 1

	// MaxPages limits a slab of records to 2^29 records.
	MaxPages = 1 << (29 - PageShift)
)

type Page struct {
	Words [PageSize]atomic.Uint64
	Pos   [PageSize]uint32 // the position of the record in a bucket, or 0; only the owner uses it
}

// Load returns the word of a record.
//
// Callers compare a page with nil before they index it. Otherwise the compiler checks the pointer
// by a read of the page's first cache line, which costs another cache miss for a random record.
func (pg *Page) Load(record uint32) Word { return Word(pg.Words[record&PageMask].Load()) }

// Store sets the word of a record. No other goroutine may change the record at the same time.
func (pg *Page) Store(record uint32, w Word) { pg.Words[record&PageMask].Store(uint64(w)) }

// Swap is a compare-and-swap of the word of a record.
func (pg *Page) Swap(record uint32, old, w Word) bool {
	return pg.Words[record&PageMask].CompareAndSwap(uint64(old), uint64(w))
}

// Change sets the kind of a record that is of one of the kinds from, and returns the word before.
// It returns false if the record is of another kind.
func (pg *Page) Change(record uint32, to Kind, from ...Kind) (w Word, ok bool) {
	for {
		w = pg.Load(record)
		if !slices.Contains(from, w.Kind()) {
			return w, false
		}
		if pg.Swap(record, w, w.With(to)) {
			return w, true
		}
	}
}

// Arm sets the word of a free record for its next timer and returns it. x is the deadline bits.
func (pg *Page) Arm(record uint32, class Word, x uint64) Word {
	w := pg.Load(record).next(class, x)
	pg.Store(record, w)
	return w
}

// Table is a growing table of pages. Any goroutine may read it, but only one at a time may write
// it.
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

// Set sets page p, or removes it if pg is nil. A concurrent reader may still see the old page.
func (t *Table[P]) Set(p int, pg *P) {
	old := t.pages.Load()
	if p >= t.cap() {
		pages := make([]atomic.Pointer[P], max(4, 2*t.cap(), p+1))
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

// All iterates over the pages and their numbers.
func (t *Table[P]) All(yield func(p uint32, pg *P) bool) {
	for p := range uint32(t.cap()) {
		if pg := t.At(p); pg != nil && !yield(p, pg) {
			return
		}
	}
}

// Bytes returns the memory of the table without the pages.
func (t *Table[P]) Bytes() uintptr { return uintptr(t.cap()) * unsafe.Sizeof(t.pages) }

// cap returns the number of pages that the table has room for.
func (t *Table[P]) cap() int {
	if pages := t.pages.Load(); pages != nil {
		return len(*pages)
	}
	return 0
}

// Slab allocates items, which are numbered, in pages of 1<<Shift. Shift is set before the first
// use. Any goroutine may read Pages. Only one goroutine at a time may use the other fields and the
// methods.
type Slab[P any] struct {
	Pages Table[P]
	Pager
	Shift uint
}

// Take allocates an item. It returns false if a page must be opened first.
func (s *Slab[P]) Take() (i uint32, ok bool) {
	page, item, ok := s.Pager.Take()
	return uint32(page)<<s.Shift | item, ok
}

// Open adds the new page pg under the number Next().
func (s *Slab[P]) Open(pg *P) {
	p := s.Next()
	s.Pages.Set(p, pg)
	s.Pager.Open(p, 1<<s.Shift)
}

// Put frees an item, which is allocated again only if reuse is true. If the page is now empty, and
// another page is too or no item of it is free, Put releases the page. It reports whether it did.
func (s *Slab[P]) Put(i uint32, reuse bool) (released bool) {
	p := int(i >> s.Shift)
	if released = s.Pager.Put(p, i&(1<<s.Shift-1), reuse); released {
		s.Pages.Set(p, nil)
	}
	return released
}

// Bytes returns the memory of the slab.
func (s *Slab[P]) Bytes() uintptr {
	var pg P
	states := uintptr(len(s.state)) * unsafe.Sizeof(pageState{})
	return uintptr(s.OpenPages)*unsafe.Sizeof(pg) + s.Pages.Bytes() + states
}
