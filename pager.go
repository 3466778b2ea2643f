package timingwheel

import "math/bits"

const pageWords = pageSize / 64

const _ = uint(8 - pageWords) // the bits of pageState.some

// pageState is the free slots of one page as a bitmap.
type pageState struct {
	free [pageWords]uint64
	some uint8 // bit w: free[w] is not zero
	here bool  // the page has memory
	used int32 // slots in use
	room int32 // free slots
}

// pager decides which slot of which page is used next: the lowest free slot of the lowest page with
// room. It keeps at most one page without used slots, so that arm-and-stop over an otherwise empty
// page allocates nothing, and gives back every further one. All operations are O(1) up to a scan of a
// two-level bitmap of pages.
type pager struct {
	state   []pageState
	roomy   bitset // pages with memory and a free slot
	absent  bitset // pages without memory that may be made again
	low     int    // lowest of roomy, -1 if none
	empties int    // pages with memory and no used slot
}

// take returns a free slot as page and offset; false where a page has to be opened first.
func (p *pager) take() (page int, slot uint32, ok bool) {
	if p.low < 0 {
		return 0, 0, false
	}
	page = p.low
	st := &p.state[page]
	w := bits.TrailingZeros8(st.some) & (pageWords - 1)
	slot = uint32(w<<6 | bits.TrailingZeros64(st.free[w]))
	if st.free[w] &= st.free[w] - 1; st.free[w] == 0 {
		st.some &^= 1 << w
	}
	if st.used == 0 {
		p.empties--
	}
	st.used++
	st.room--
	if st.room == 0 {
		p.roomy.clear(page)
		p.low = p.roomy.min()
	}
	return page, slot, true
}

// put takes a slot back; reuse is false for a slot that may never be handed out again. It reports
// whether the page is empty and should be closed.
func (p *pager) put(page int, slot uint32, reuse bool) (surplus bool) {
	st := &p.state[page]
	st.used--
	if reuse {
		st.free[slot>>6] |= 1 << (slot & 63)
		st.some |= 1 << (slot >> 6)
		st.room++
		if st.room == 1 {
			p.roomy.set(page)
			if p.low < 0 || page < p.low {
				p.low = page
			}
		}
	}
	if st.used > 0 {
		return false
	}
	p.empties++
	return p.empties > 1
}

// next returns the page to open when none has room: the lowest that was given back, else a new one.
func (p *pager) next() int {
	if i := p.absent.min(); i >= 0 {
		return i
	}
	return len(p.state)
}

// open records that page now has memory and n free slots.
func (p *pager) open(page, n int) {
	if page == len(p.state) {
		p.state = append(p.state, pageState{})
	}
	st := &p.state[page]
	*st = pageState{room: int32(n), here: true}
	for i := 0; i < n; i += 64 {
		st.free[i>>6] = ^uint64(0)
		st.some |= 1 << (i >> 6)
	}
	p.absent.clear(page)
	p.roomy.set(page)
	p.empties++
	if p.low < 0 || page < p.low {
		p.low = page
	}
}

// close records that page has no memory any more; lost says that it never will again.
func (p *pager) close(page int, lost bool) {
	p.state[page] = pageState{}
	p.empties--
	p.roomy.clear(page)
	if !lost {
		p.absent.set(page)
	}
	if page == p.low {
		p.low = p.roomy.min()
	}
}

// bitset is a set of small integers whose minimum is found over a summary of its words.
type bitset struct {
	words   []uint64
	summary []uint64 // bit w: words[w] is not zero
}

func (b *bitset) set(i int) {
	w := i >> 6
	for w >= len(b.words) {
		b.words = append(b.words, 0)
	}
	b.words[w] |= 1 << (i & 63)
	for w>>6 >= len(b.summary) {
		b.summary = append(b.summary, 0)
	}
	b.summary[w>>6] |= 1 << (w & 63)
}

func (b *bitset) clear(i int) {
	w := i >> 6
	if w >= len(b.words) {
		return
	}
	b.words[w] &^= 1 << (i & 63)
	if b.words[w] == 0 {
		b.summary[w>>6] &^= 1 << (w & 63)
	}
}

func (b *bitset) has(i int) bool {
	return i>>6 < len(b.words) && b.words[i>>6]>>(i&63)&1 == 1
}

// min returns the smallest member, -1 for an empty set.
func (b *bitset) min() int {
	for k, s := range b.summary {
		if s != 0 {
			w := k<<6 | bits.TrailingZeros64(s)
			return w<<6 | bits.TrailingZeros64(b.words[w])
		}
	}
	return -1
}
