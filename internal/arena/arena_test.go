package arena

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/clock"
)

var kinds = []Kind{Spent, Staged, Ending, Ended, Placed, Flushed, Dead}

// flagSets returns all combinations of the flags.
func flagSets() (sets []Word) {
	for bits := range Word(8) {
		sets = append(sets, bits<<3)
	}
	return sets
}

// The documentation promises these sizes.
func TestSizesAreThoseOfTheDocumentation(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, 8, unsafe.Sizeof(Word(0)))
	require.EqualValues(t, PageSize*(8+4), unsafe.Sizeof(Page{}), "12 bytes for each timer, and a size class of the runtime")
	require.Zero(t, unsafe.Offsetof(Page{}.Words), "aligned like the page, also on 32-bit systems")
	require.LessOrEqual(t, unsafe.Sizeof(pageState{}), uintptr(PageSize/8+16), "a bit for each record and a few bytes")
	require.LessOrEqual(t, uint64(MaxPages)<<PageShift, uint64(1)<<29)
	require.Equal(t, Word(math.MaxUint64), kindMask|classMask|Listed|genMask<<genShift|(1<<tickBits-1)<<tickShift,
		"kind, flags, generation and deadline fill the word")
}

func TestPartsOfAWordAreIndependent(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		for _, flags := range flagSets() {
			for _, gen := range []Word{0, 1, genMask - 1, genMask} {
				for _, x := range []uint64{0, 1, 1<<32 - 1, 1 << 32, 1<<tickBits - 1} {
					w := Word(x)<<tickShift | gen<<genShift | flags | Word(kind)
					requireParts(t, w, kind, flags, gen, x)
					for _, other := range kinds {
						requireParts(t, w.With(other), other, flags, gen, x)
					}
					for _, y := range []uint64{0, 1<<tickBits - 1, 0xAAAAAAAAA} {
						requireParts(t, w.WithBits(y), kind, flags, gen, y)
					}
				}
			}
		}
	}
}

func requireParts(t *testing.T, w Word, kind Kind, flags, gen Word, x uint64) {
	t.Helper()
	if w.Kind() != kind || w&(classMask|Listed) != flags || w>>genShift&genMask != gen || w.Bits() != x {
		t.Fatalf("%#x: kind %d, want %d; flags %#x, want %#x; generation %d, want %d; bits %#x, want %#x",
			uint64(w), w.Kind(), kind, w&(classMask|Listed), flags, w>>genShift&genMask, gen, w.Bits(), x)
	}
	for _, f := range []Word{Lasting, Counted, Listed} {
		if w.Has(f) != (flags&f != 0) {
			t.Fatalf("%#x: Has(%#x) is %v", uint64(w), f, w.Has(f))
		}
	}
	if w.Exhausted() != (gen == genMask) {
		t.Fatalf("%#x: Exhausted is %v at generation %d", uint64(w), w.Exhausted(), gen)
	}
}

// A tick that does not fit into the deadline bits, such as the tick of math.MaxInt64 with a coarse
// tick, does not change the other parts.
func TestWithBitsDropsHighBits(t *testing.T) {
	t.Parallel()
	w := Word(0).WithBits(1).With(Placed) | Counted
	for _, tick := range []int64{-1, math.MaxInt64, math.MinInt64, 1 << tickBits, 1<<tickBits + 5} {
		requireParts(t, w.WithBits(uint64(tick)), Placed, Counted, 0, uint64(tick)&(1<<tickBits-1))
	}
}

func FuzzTick(f *testing.F) {
	f.Add(int64(0), uint64(math.MaxUint64))
	f.Add(int64(clock.LastTick), uint64(1))
	f.Fuzz(func(t *testing.T, tick int64, word uint64) {
		tick &= clock.LastTick
		w := Word(word).WithBits(uint64(tick))
		if got := w.Tick(); got != tick {
			t.Fatalf("tick %d is read as %d", tick, got)
		}
		if w&(1<<tickShift-1) != Word(word)&(1<<tickShift-1) {
			t.Fatal("WithBits changed another part")
		}
	})
}

func TestNextTimerOfARecordHasTheNextGeneration(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		for _, flags := range flagSets() {
			old := Word(7)<<tickShift | 41<<genShift | flags | Word(kind)
			w := old.next(Counted, 12)
			requireParts(t, w, Staged, Counted, 42, 12)
			require.NotEqual(t, old.Gen(), w.Gen())
			require.Equal(t, w.Gen(), (w.With(Dead).WithBits(3) | Listed).Gen())
		}
	}
	requireParts(t, Word(genMask-1)<<genShift|Word(Spent), Spent, 0, genMask-1, 0)
	w := (Word(genMask-1)<<genShift | Word(Spent)).next(0, 0)
	require.True(t, w.Exhausted(), "the timer has the last generation")
}

func TestSwapOfAChangedWordFails(t *testing.T) {
	t.Parallel()
	pg := new(Page)
	w := pg.Arm(PageSize+3, Lasting, 9) // the page uses the low bits of the record
	requireParts(t, w, Staged, Lasting, 1, 9)
	require.Equal(t, w, pg.Load(3))
	require.False(t, pg.Swap(3, w.WithBits(8), w))
	require.True(t, pg.Swap(3, w, w.With(Placed)))
	require.False(t, pg.Swap(3, w, w.With(Ending)), "the word was changed by another goroutine")
	require.Equal(t, w.With(Placed), pg.Load(3))
	require.Zero(t, pg.Load(2))
	require.Zero(t, pg.Load(4))
}

func TestTableGrowsAndClears(t *testing.T) {
	t.Parallel()
	for _, order := range [][]int{{0, 3, 4, 2, 1000, 77}, {4, 0}, {1000, 3, 77}} {
		var table Table[int]
		require.Nil(t, table.At(0))
		require.Nil(t, table.At(math.MaxUint32))
		require.Zero(t, table.cap())
		pages := map[int]*int{}
		for _, p := range order {
			pages[p] = new(int)
			table.Set(p, pages[p])
			for i := range 2000 {
				require.Same(t, pages[i], table.At(uint32(i)), "page %d after page %d", i, p)
			}
			require.Greater(t, table.cap(), p)
		}
		first, second := order[0], order[1]
		table.Set(second, nil)
		require.Nil(t, table.At(uint32(second)))
		require.Same(t, pages[first], table.At(uint32(first)))
		table.Clear()
		require.Nil(t, table.At(uint32(first)))
		require.Zero(t, table.cap())
	}
}

// While the table grows, a reader finds each page that was set before the read.
func TestTableIsReadableWhileItGrows(t *testing.T) {
	t.Parallel()
	const pages = 3000
	var table Table[int]
	var mu sync.Mutex
	set := 0 // mu: pages below were set
	var readers sync.WaitGroup
	for r := range 4 {
		readers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(r), 0))
			for n := 0; n < pages; runtime.Gosched() {
				mu.Lock()
				n = set
				mu.Unlock()
				for range 20 {
					p := rng.IntN(n + 1)
					if pg := table.At(uint32(p)); p < n && (pg == nil || *pg != p) {
						t.Errorf("page %d of %d is missing", p, n)
						return
					}
				}
			}
		})
	}
	for p := range pages {
		v := p
		table.Set(p, &v)
		mu.Lock()
		set++
		mu.Unlock()
	}
	readers.Wait()
}

// slab is a Slab of records with a reference model.
type slab struct {
	Slab[Page]
	t       *testing.T
	inUse   []uint32          // records
	gens    map[uint32]uint32 // by record: the generation of its last timer
	retired map[uint32]bool   // records of pages that have memory
	closed  []int
}

func newSlab(t *testing.T) *slab {
	s := &slab{t: t, gens: map[uint32]uint32{}, retired: map[uint32]bool{}}
	s.Shift = PageShift
	return s
}

// arm takes a record and arms a timer in it.
func (s *slab) arm() uint32 {
	s.t.Helper()
	i, ok := s.Take()
	if !ok {
		s.Open(new(Page))
		i, ok = s.Take()
		require.True(s.t, ok)
	}
	if slices.Contains(s.inUse, i) || s.retired[i] {
		s.t.Fatalf("record %d is in use or retired", i)
	}
	gen := s.Pages.At(i>>PageShift).Arm(i, 0, uint64(i)).Gen()
	if last, again := s.gens[i]; again && gen <= last {
		s.t.Fatalf("record %d: generation %d after %d", i, gen, last)
	}
	s.gens[i] = gen
	s.inUse = append(s.inUse, i)
	return i
}

// end frees the k-th record in use.
func (s *slab) end(k int) {
	i := s.inUse[k]
	s.inUse = slices.Delete(s.inUse, k, k+1)
	exhausted := s.word(i).Exhausted()
	if exhausted {
		s.retired[i] = true
	}
	if s.Put(i, !exhausted) {
		s.wasClosed(i >> PageShift)
	}
}

// wasClosed notes that page p was closed.
func (s *slab) wasClosed(p uint32) {
	for _, i := range s.inUse {
		if i>>PageShift == p {
			s.t.Fatalf("page %d was closed although record %d is in use", p, i)
		}
	}
	for i := range uint32(PageSize) {
		delete(s.retired, p<<PageShift|i)
		delete(s.gens, p<<PageShift|i)
	}
	s.closed = append(s.closed, int(p))
}

func (s *slab) word(i uint32) Word { return s.Pages.At(i >> PageShift).Load(i) }

// age sets the generation of a record in use to gen.
func (s *slab) age(i uint32, gen Word) {
	pg := s.Pages.At(i >> PageShift)
	w := pg.Load(i)&^(genMask<<genShift) | gen<<genShift
	pg.Store(i, w)
	s.gens[i] = w.Gen()
}

func (s *slab) verify() {
	s.t.Helper()
	if err := s.Pager.verify(); err != nil {
		s.t.Fatal(err)
	}
	here := 0
	for p, pg := range s.Pages.All {
		require.Same(s.t, pg, s.Pages.At(p))
		here++
	}
	if here != s.OpenPages {
		s.t.Fatalf("%d pages have memory, OpenPages is %d", here, s.OpenPages)
	}
}

// No two timers of a record of one page have the same generation, and an exhausted record is not
// allocated again.
func TestNoGenerationOfAPageIsUsedTwice(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 0))
		s := newSlab(t)
		for step := range 4000 {
			fill := 9 - step/1000%2*8 // of 10 steps: for a while the pages fill, then they drain
			switch {
			case rng.IntN(10) < fill:
				i := s.arm()
				if rng.IntN(20) == 0 {
					gen := s.word(i) >> genShift & genMask
					s.age(i, gen+Word(rng.IntN(int(genMask-gen)+1)))
				}
			case len(s.inUse) > 0:
				s.end(rng.IntN(len(s.inUse)))
			}
			s.verify()
		}
		for len(s.inUse) > 0 {
			s.end(len(s.inUse) - 1)
		}
		s.verify()
		require.LessOrEqual(t, s.OpenPages, 1)
		require.NotEmpty(t, s.closed)
	}
}

func FuzzSlab(f *testing.F) {
	f.Add([]byte{0, 1, 2, 200, 3, 255, 255, 9})
	f.Fuzz(func(t *testing.T, script []byte) {
		s := newSlab(t)
		for _, op := range script[:min(len(script), 512)] {
			switch n := int(op >> 2); op & 3 {
			case 0: // up to a quarter of a page
				for range 2 * n {
					s.arm()
				}
			case 1:
				for range 2 * n {
					if len(s.inUse) > 0 {
						s.end(len(s.inUse) - 1)
					}
				}
			case 2:
				if len(s.inUse) > 0 {
					s.end(n % len(s.inUse))
				}
			case 3: // nearly the last generations
				if len(s.inUse) > 0 {
					i := s.inUse[n%len(s.inUse)]
					s.age(i, max(s.word(i)>>genShift&genMask, genMask-Word(n&3)))
				}
			}
			s.verify()
		}
	})
}

func TestExhaustedRecordIsRetired(t *testing.T) {
	t.Parallel()
	s := newSlab(t)
	other := s.arm()
	i := s.arm()
	s.age(i, genMask)
	s.end(1)
	require.True(t, s.retired[i])
	for range 2 * PageSize {
		require.NotEqual(t, i, s.arm())
	}
	require.Equal(t, other, s.inUse[0])
	s.verify()
}

// A page whose records are all exhausted is released even if it is the only page.
func TestPageOfExhaustedRecordsIsClosed(t *testing.T) {
	t.Parallel()
	s := newSlab(t)
	for range PageSize {
		s.age(s.arm(), genMask)
	}
	for len(s.inUse) > 0 {
		require.Empty(t, s.closed)
		s.end(0)
	}
	require.Equal(t, []int{0}, s.closed)
	require.Zero(t, s.OpenPages)
	s.arm()
	require.EqualValues(t, 1, s.word(s.inUse[0]).Gen(), "a new page")
	s.verify()
}

// closePage0 closes page 0 while page 1 is empty, after a timer of page 0 had the generation gen.
func closePage0(s *slab, gen Word) {
	for range PageSize + 1 {
		s.arm()
	}
	s.age(s.inUse[PageSize/2], gen)
	s.end(PageSize) // page 1 is empty
	for len(s.inUse) > 0 {
		s.end(0)
	}
}

// A closed page is opened again with new memory. Its generations start again, and records that were
// retired can be used.
func TestClosedPageIsReopenedWithNewMemory(t *testing.T) {
	t.Parallel()
	for _, gen := range []Word{1000, genMask} {
		s := newSlab(t)
		s.arm()
		before := s.Pages.At(0)
		s.end(0)
		closePage0(s, gen)
		require.Equal(t, []int{0}, s.closed)
		require.Nil(t, s.Pages.At(0))
		records := map[uint32]bool{}
		for range 2 * PageSize {
			records[s.arm()] = true
		}
		require.Len(t, records, 2*PageSize)
		require.NotSame(t, before, s.Pages.At(0))
		s.verify()
	}
}

func TestBytesOfASlab(t *testing.T) {
	t.Parallel()
	s := newSlab(t)
	require.Zero(t, s.Bytes())
	for range 2 * PageSize {
		s.arm()
	}
	pages, rest := 2*unsafe.Sizeof(Page{}), 2*unsafe.Sizeof(pageState{})+4*unsafe.Sizeof(uintptr(0))
	require.Equal(t, pages+rest, s.Bytes())
	for len(s.inUse) > 0 {
		s.end(0)
	}
	require.Equal(t, pages/2+rest, s.Bytes(), "a page is released")
}
