package arena

import "math/bits"

const pageWords = PageSize / 64

// pageState has the free items of one page as a bitmap.
type pageState struct {
	free [pageWords]uint64
	used int32 // number of items in use
	room int32 // number of free items
}

// Pager allocates the lowest free item of the lowest page with one, so that timers that survive a
// spike are in few pages. It keeps one empty page, so that a program that arms and stops one timer
// in a loop allocates nothing. All operations are O(1), except for a scan of a bitmap of pages.
type Pager struct {
	OpenPages int // number of pages with memory

	state         []pageState
	withFree      bitset // pages with memory and a free item
	withoutMemory bitset // pages without memory
	low           int    // the lowest page of withFree plus 1; 0 if there is none
	empties       int    // number of pages with memory and no used item
}

// Take allocates an item. It returns false if no page has a free item.
func (p *Pager) Take() (page int, item uint32, ok bool) {
	if p.low == 0 {
		return 0, 0, false
	}
	page = p.low - 1
	st := &p.state[page]
	w := 0
	for st.free[w] == 0 {
		w++
	}
	item = uint32(w<<6 | bits.TrailingZeros64(st.free[w]))
	st.free[w] &= st.free[w] - 1
	if st.used == 0 {
		p.empties--
	}
	st.used++
	st.room--
	if st.room == 0 {
		p.withFree.clear(page)
		p.low = p.withFree.min() + 1
	}
	return page, item, true
}

// Put frees an item, which is allocated again only if reuse is true. Put reports whether the page
// is then empty and no longer needed, and so closed: it has no memory any more.
func (p *Pager) Put(page int, item uint32, reuse bool) (closed bool) {
	st := &p.state[page]
	st.used--
	if reuse {
		st.free[item>>6] |= 1 << (item & 63)
		st.room++
		if st.room == 1 {
			p.withFree.set(page)
			if p.low == 0 || page < p.low-1 {
				p.low = page + 1
			}
		}
	}
	if st.used > 0 {
		return false
	}
	p.empties++
	if p.empties == 1 && st.room > 0 {
		return false
	}
	*st = pageState{}
	p.OpenPages--
	p.empties--
	p.withFree.clear(page)
	p.withoutMemory.set(page)
	if page == p.low-1 {
		p.low = p.withFree.min() + 1
	}
	return true
}

// Next returns the number of the page to open if no page has a free item: the lowest closed page,
// or a new number.
func (p *Pager) Next() int {
	if i := p.withoutMemory.min(); i >= 0 {
		return i
	}
	return len(p.state)
}

// HasRoom reports whether Take would succeed.
func (p *Pager) HasRoom() bool { return p.low > 0 }

// Len returns the number of pages, including those without memory.
func (p *Pager) Len() int { return len(p.state) }

// Used returns the number of used items of a page.
func (p *Pager) Used(page int) int { return int(p.state[page].used) }

// IsFree reports whether an item of a page that has memory is free.
func (p *Pager) IsFree(page int, item uint32) bool {
	return p.state[page].free[item>>6]>>(item&63)&1 == 1
}

// Open records that page now has memory and n free items.
func (p *Pager) Open(page, n int) {
	if page == len(p.state) {
		p.state = append(p.state, pageState{})
	}
	st := &p.state[page]
	*st = pageState{room: int32(n)}
	for i := 0; i < n; i += 64 {
		st.free[i>>6] = ^uint64(0)
	}
	p.withoutMemory.clear(page)
	p.withFree.set(page)
	p.OpenPages++
	p.empties++
	if p.low == 0 || page < p.low-1 {
		p.low = page + 1
	}
}

type bitset []uint64

func (b *bitset) set(i int) {
	for i>>6 >= len(*b) {
		*b = append(*b, 0)
	}
	(*b)[i>>6] |= 1 << (i & 63)
}

func (b bitset) clear(i int) {
	if i>>6 < len(b) {
		b[i>>6] &^= 1 << (i & 63)
	}
}

// min returns the smallest member, or -1 if the set is empty.
func (b bitset) min() int {
	for k, w := range b {
		if w != 0 {
			return k<<6 | bits.TrailingZeros64(w)
		}
	}
	return -1
}
