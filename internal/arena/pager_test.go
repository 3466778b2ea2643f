package arena

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBitsetModel(t *testing.T) {
	t.Parallel()
	for _, span := range []int{1, 63, 64, 65, 4096, 4097, 20_000} {
		rng := rand.New(rand.NewPCG(uint64(span), 0))
		var b bitset
		ref := map[int]bool{}
		for range 3000 {
			i := rng.IntN(span)
			if rng.IntN(3) > 0 {
				b.clear(i) // i may be beyond the words
				delete(ref, i)
			} else {
				b.set(i)
				ref[i] = true
			}
			least := -1
			for k := range ref {
				if least < 0 || k < least {
					least = k
				}
			}
			if b.min() != least || b.has(i) != ref[i] || b.has(1<<30) {
				t.Fatalf("span %d: min %d, want %d; has(%d) %v", span, b.min(), least, i, b.has(i))
			}
		}
	}
}

func (b bitset) has(i int) bool { return i>>6 < len(b) && b[i>>6]>>(i&63)&1 == 1 }

// pagerModel is a Pager with pages of n items and a reference model.
type pagerModel struct {
	Pager
	t       *testing.T
	n       int
	used    [][2]int // page and item
	held    map[[2]int]bool
	retired map[[2]int]bool
	open    []bool // by page: whether it has memory
}

func newPagerModel(t *testing.T, n int) *pagerModel {
	return &pagerModel{t: t, n: n, held: map[[2]int]bool{}, retired: map[[2]int]bool{}}
}

// take allocates a item and checks that it is the lowest free item of the lowest page. If no item
// is free, take first opens a page and checks that it is the lowest one without memory.
func (p *pagerModel) take() {
	page, item, ok := p.Take()
	if ok != p.hasRoom() {
		p.t.Fatalf("Take: %v", ok)
	}
	if !ok {
		want := 0
		for want < len(p.open) && p.open[want] {
			want++
		}
		if got := p.Next(); got != want {
			p.t.Fatalf("opens page %d, want %d of %v", got, want, p.open)
		}
		if want == len(p.open) {
			p.open = append(p.open, false)
		}
		p.Open(want, p.n)
		p.open[want] = true
		page, item, _ = p.Take()
	}
	for pg := range page + 1 {
		for k := 0; p.open[pg] && k < p.n && (pg < page || k < int(item)); k++ {
			if at := [2]int{pg, k}; !p.held[at] && !p.retired[at] {
				p.t.Fatalf("took item %d of page %d while item %d of page %d is free", item, page, k, pg)
			}
		}
	}
	at := [2]int{page, int(item)}
	if p.held[at] || p.retired[at] || int(item) >= p.n {
		p.t.Fatalf("took item %d of page %d, which is not free", item, page)
	}
	p.used = append(p.used, at)
	p.held[at] = true
}

func (p *pagerModel) hasRoom() bool {
	for pg := range p.open {
		for k := 0; p.open[pg] && k < p.n; k++ {
			if at := [2]int{pg, k}; !p.held[at] && !p.retired[at] {
				return true
			}
		}
	}
	return false
}

// put frees the k-th item in use.
func (p *pagerModel) put(k int, reuse bool) {
	at := p.used[k]
	p.used = slices.Delete(p.used, k, k+1)
	delete(p.held, at)
	if !reuse {
		p.retired[at] = true
	}
	if !p.Put(at[0], uint32(at[1]), reuse) {
		return
	}
	if slices.ContainsFunc(p.used, func(o [2]int) bool { return o[0] == at[0] }) {
		p.t.Fatalf("page %d was closed although it is in use", at[0])
	}
	p.open[at[0]] = false
	for k := range p.n {
		delete(p.retired, [2]int{at[0], k})
	}
}

func (p *pagerModel) verify() {
	p.t.Helper()
	if err := p.Pager.verify(); err != nil {
		p.t.Fatal(err)
	}
	used := make([]int, len(p.open))
	for _, at := range p.used {
		used[at[0]]++
	}
	for pg := range p.open {
		if p.open[pg] && p.Pager.Used(pg) != used[pg] {
			p.t.Fatalf("page %d: %d used, want %d", pg, p.Pager.Used(pg), used[pg])
		}
		for k := 0; p.open[pg] && k < p.n; k++ {
			if at := [2]int{pg, k}; p.IsFree(pg, uint32(k)) != (!p.held[at] && !p.retired[at]) {
				p.t.Fatalf("item %d of page %d: free is %v", k, pg, p.IsFree(pg, uint32(k)))
			}
		}
	}
	if p.Len() != len(p.open) {
		p.t.Fatalf("%d pages, want %d", p.Len(), len(p.open))
	}
}

func TestPagerModel(t *testing.T) {
	t.Parallel()
	for _, n := range []int{64, 128, PageSize} {
		for seed := range uint64(5) {
			t.Run(fmt.Sprintf("items=%d/seed=%d", n, seed), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(seed, uint64(n)))
				p := newPagerModel(t, n)
				for step := range 1200 {
					fill := 9 - step/300%2*8 // of 10 steps: for a while the pages fill, then they drain
					if rng.IntN(10) < fill {
						p.take()
					} else if len(p.used) > 0 {
						p.put(rng.IntN(len(p.used)), rng.IntN(16) > 0)
					}
					p.verify()
				}
			})
		}
	}
}

func FuzzPager(f *testing.F) {
	f.Add([]byte{60, 60, 60, 61, 62, 63, 255, 255, 254})
	f.Fuzz(func(t *testing.T, script []byte) {
		const most = 32 * 64 // items; the time of verify is proportional
		p := newPagerModel(t, 64)
		for _, op := range script[:min(len(script), 256)] {
			switch n := int(op >> 2); op & 3 {
			case 0:
				for range min(n, most-len(p.used)) {
					p.take()
				}
			case 1:
				for range min(n, len(p.used)) {
					p.put(len(p.used)-1, true)
				}
			default:
				if len(p.used) > 0 {
					p.put(n%len(p.used), op&3 == 2)
				}
			}
			p.verify()
		}
	})
}

// A loop of arm and stop neither opens nor closes pages, even at the boundary of a page.
func TestOneEmptyPageIsKept(t *testing.T) {
	t.Parallel()
	for fill := range 3 * 64 {
		p := newPagerModel(t, 64)
		for range fill {
			p.take()
		}
		p.take()
		p.put(fill, true)
		for range 3 {
			pages := slices.Clone(p.open)
			p.take()
			p.put(fill, true)
			require.Equal(t, pages, p.open, "%d items in use", fill)
		}
	}
}

// verify checks that the counts and sets agree with the bitmaps, and that at most one page is
// empty.
func (p *Pager) verify() error {
	empties := 0
	for i := range p.state {
		st := &p.state[i]
		room := 0
		for _, w := range st.free {
			room += bits.OnesCount64(w)
		}
		open := !p.withoutMemory.has(i)
		switch {
		case int(st.room) != room:
			return fmt.Errorf("page %d: room is %d, bitmap has %d", i, st.room, room)
		case p.withFree.has(i) != (room > 0):
			return fmt.Errorf("page %d: room is %d, withFree has it: %v", i, room, p.withFree.has(i))
		case !open && room != 0:
			return fmt.Errorf("page %d has %d free items and is in withoutMemory", i, room)
		case !open && st.used != 0:
			return fmt.Errorf("page %d has %d items in use but no memory", i, st.used)
		}
		if open && st.used == 0 {
			empties++
		}
	}
	if empties != p.empties || empties > 1 {
		return fmt.Errorf("%d empty pages, empties is %d", empties, p.empties)
	}
	if p.low != p.withFree.min()+1 {
		return fmt.Errorf("low is %d, lowest page with a free item is %d", p.low-1, p.withFree.min())
	}
	return nil
}

func TestPagerVerifyFindsDamage(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(p *Pager){
		"room":          func(p *Pager) { p.state[0].room++ },
		"withFree":      func(p *Pager) { p.withFree.clear(0) },
		"withoutMemory": func(p *Pager) { p.withoutMemory.set(0) },
		"no memory":     func(p *Pager) { p.state[1].used++ },
		"empties":       func(p *Pager) { p.empties++ },
		"low":           func(p *Pager) { p.low = 0 },
	} {
		var p Pager
		for i := range 3 {
			p.Open(i, 64)
			for range 64 {
				_, _, ok := p.Take()
				require.True(t, ok)
			}
		}
		for k := range uint32(64) {
			require.Equal(t, k == 63, p.Put(1, k, false), "a page of retired items")
		}
		p.Put(0, 9, true)
		require.NoError(t, p.verify())
		damage(&p)
		require.ErrorContains(t, p.verify(), name)
	}
}
