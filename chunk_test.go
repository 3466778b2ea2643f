package timingwheel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBitsetAgainstMap(t *testing.T) {
	t.Parallel()
	for _, span := range []int{1, 63, 64, 65, 4096, 4097, 20_000} {
		rng := rand.New(rand.NewPCG(uint64(span), 0))
		var b bitset
		ref := map[int]bool{}
		for range 3000 {
			i := rng.IntN(span)
			if rng.IntN(3) > 0 {
				b.clear(i) // beyond the words as well
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

// pagerModel is a pager of pages of 64 slots beside a reference.
type pagerModel struct {
	pager
	t    *testing.T
	used [][2]int // page and slot
	held map[[2]int]bool
	open []bool // by page: has memory
	lost []bool // by page: may not be made again
}

// takeSlot takes the lowest free slot of the lowest page with room, or else opens the lowest page that may be made.
func (p *pagerModel) takeSlot() {
	page, slot, ok := p.take()
	if !ok {
		want := 0
		for want < len(p.open) && (p.open[want] || p.lost[want]) {
			want++
		}
		if got := p.next(); got != want {
			p.t.Fatalf("opens page %d, want %d of %v", got, want, p.open)
		}
		if want == len(p.open) {
			p.open, p.lost = append(p.open, false), append(p.lost, false)
		}
		p.pager.open(want, 64)
		p.open[want] = true
		page, slot, _ = p.take()
	}
	for pg := range page + 1 {
		for k := 0; p.open[pg] && k < 64 && (pg < page || k < int(slot)); k++ {
			if !p.held[[2]int{pg, k}] {
				p.t.Fatalf("took slot %d of page %d while slot %d of page %d is free", slot, page, k, pg)
			}
		}
	}
	p.used = append(p.used, [2]int{page, int(slot)})
	p.held[[2]int{page, int(slot)}] = true
}

// putSlot gives one back, and the page with it where the pager says so; one in eight of those is lost.
func (p *pagerModel) putSlot(rng *rand.Rand) {
	k := rng.IntN(len(p.used))
	at := p.used[k]
	p.used = slices.Delete(p.used, k, k+1)
	delete(p.held, at)
	if p.put(at[0], uint32(at[1]), true) {
		p.open[at[0]], p.lost[at[0]] = false, rng.IntN(8) == 0
		p.close(at[0], p.lost[at[0]])
	}
}

func TestPagerAgainstReference(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 0))
			p := &pagerModel{pager: pager{low: -1}, t: t, held: map[[2]int]bool{}}
			for step := range 4000 {
				fill := 9 - step/500%2*8 // of 10 steps: for a while the pages fill, then they drain
				if rng.IntN(10) < fill {
					p.takeSlot()
				} else if len(p.used) > 0 {
					p.putSlot(rng)
				}
				if err := p.verify(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestBucketListIsFirstInFirstOut(t *testing.T) {
	t.Parallel()
	var l bucketList
	b := make([]*bucket, 6)
	for i := range b {
		b[i] = &bucket{id: uint32(i)}
	}
	for _, i := range []int{0, 1, 2} {
		l.push(b[i])
	}
	require.Same(t, b[0], l.pop())
	l.push(b[3])
	for _, i := range []int{1, 2, 3} {
		require.Same(t, b[i], l.pop())
		require.Nil(t, b[i].next)
	}
	require.Nil(t, l.head)
	require.Nil(t, l.tail)
	l.push(b[4])
	l.push(b[5])
	require.Same(t, b[4], l.pop())
	require.Same(t, b[5], l.pop())
	require.Nil(t, l.head)
}

// chunksUsed is the number of chunks that lists hold.
func chunksUsed(s *shard) int {
	n := 0
	for i := range s.chunks.state {
		n += int(s.chunks.state[i].used)
	}
	return max(n-1, 0) // chunk 0 is nobody's
}

func nodePages(s *shard) (n int) {
	for _, pg := range s.nodes.pages {
		if pg != nil {
			n++
		}
	}
	return n
}

// removal is an order in which timers are stopped.
var removal = map[string]func(n int) []int{
	"oldest first": func(n int) []int { return sequence(n) },
	"newest first": func(n int) []int { s := sequence(n); slices.Reverse(s); return s },
	"at random":    func(n int) []int { return rand.New(rand.NewPCG(uint64(n), 1)).Perm(n) },
	"every other first": func(n int) []int {
		s := sequence(n)
		slices.SortStableFunc(s, func(a, b int) int { return a&1 - b&1 })
		return s
	},
	"all but one of each chunk first": func(n int) []int {
		s := sequence(n)
		slices.SortStableFunc(s, func(a, b int) int {
			return 2*(1-min(a%chunkSize, 1)) - 2*(1-min(b%chunkSize, 1))
		})
		return s
	},
}

func sequence(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

// One bucket of many timers, stopped in some order: its list keeps the order of arming, and its chunks stay
// within a factor of what lives. That no two neighbours are both sparse means that two chunks hold more
// than mergeMax/2 timers.
func TestChunksKeepOrderAndStayDense(t *testing.T) {
	t.Parallel()
	for name, order := range removal {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 40*chunkSize + 7
			s := newStory(t, Options{}, 0)
			sh := &s.engine.shards[0].shard
			timers := make([]Timer, n)
			alive := make([]bool, n)
			for i := range timers {
				timers[i] = s.after(time.Minute, "")
				alive[i] = true
			}
			for _, i := range order(n) {
				require.True(t, timers[i].Stop())
				alive[i] = false
				checkBucket(t, sh, timers, alive)
			}
			require.LessOrEqual(t, chunksUsed(sh), 1)
		})
	}
}

func checkBucket(t *testing.T, s *shard, timers []Timer, alive []bool) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settleWheel()
	var want, got []uint32
	for i, t := range timers {
		if alive[i] {
			want = append(want, t.index)
		}
	}
	_ = s.eachEntry(s.queue.items[0], func(_, i uint32) error { got = append(got, i); return nil })
	if !slices.Equal(got, want) {
		t.Fatalf("the list is %v, want %v", got, want)
	}
	if c, live := chunksUsed(s), len(want); c > 2*live/(mergeMax/2+1)+1 {
		t.Fatalf("%d chunks for %d timers", c, live)
	}
	if err := s.verify(); err != nil {
		t.Fatal(err)
	}
}

// The last chunk is used up, but little of it lives: it makes room for the next timer.
func TestLastChunkIsCompactedBeforeAnotherIsTaken(t *testing.T) {
	t.Parallel()
	s, sh := newSlab(t)
	timers := s.fillPlaced(chunkSize, time.Minute)
	s.stopAll(timers[:chunkSize-1])
	s.fillPlaced(chunkSize-1, time.Minute)
	s.verify()
	require.Equal(t, 1, chunksUsed(sh))
	s.fillPlaced(1, time.Minute)
	require.Equal(t, 2, chunksUsed(sh))
}

// A list whose end is stopped and armed again and again makes room in its last chunk.
func TestTailOfListIsReused(t *testing.T) {
	t.Parallel()
	s := newStory(t, Options{}, 0)
	sh := &s.engine.shards[0].shard
	rng := rand.New(rand.NewPCG(3, 3))
	s.engine.defers(math.MaxInt)
	var timers []Timer
	for range 20_000 {
		for len(timers) < chunkSize*3/2 {
			timers = append(timers, s.after(time.Minute, ""))
		}
		k := chunkSize/2 + rng.IntN(len(timers)-chunkSize/2) // not of the first half chunk
		require.True(t, timers[k].Stop())
		timers = slices.Delete(timers, k, k+1)
		if c := chunksUsed(sh); c > 4 {
			t.Fatalf("%d chunks for %d timers", c, len(timers))
		}
	}
	s.verify()
}

// Buckets that all their timers have left are swept once they are the majority, whatever the order in which
// they were emptied: the heap's last element may be one of them.
func TestSweepFreesHollowBucketsInAnyOrder(t *testing.T) {
	t.Parallel()
	for name, order := range removal {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 5 * hollowMax
			s := newStory(t, Options{}, 0)
			sh := &s.engine.shards[0].shard
			timers := make([]Timer, n)
			for i := range timers {
				timers[i] = s.after(time.Duration(i+1)*msec, "")
			}
			for _, i := range order(n) {
				require.True(t, timers[i].Stop())
				s.verify()
				if h := sh.hollow; h > hollowMax && h > sh.queue.len()/2 {
					t.Fatalf("%d of %d buckets are empty", h, sh.queue.len())
				}
			}
			require.LessOrEqual(t, sh.queue.len(), hollowMax)
		})
	}
}

// Arm and cancel in a loop grows nothing, at one instant, at ever new ones, and beside a population.
func TestArmAndCancelGrowsNothing(t *testing.T) {
	t.Parallel()
	for _, population := range []int{0, 1, 3 * pageSize} {
		for _, spread := range []time.Duration{0, msec, 1017 * msec, time.Hour} {
			t.Run(fmt.Sprintf("population=%d/spread=%v", population, spread), func(t *testing.T) {
				s := newStory(t, Options{WheelSize: 64, Levels: 3}, 0)
				f := func() {}
				for i := range population {
					s.AfterFunc(time.Hour+time.Duration(i)*time.Second, f)
				}
				round := func(i int) {
					d := time.Second + time.Duration(i)*spread
					if t1, t2 := s.AfterFunc(d, f), s.AfterFunc(2*d, f); !t1.Stop() || !t2.Reschedule(3*d) || !t2.Stop() {
						t.Fatal("a timer was not pending")
					}
				}
				for i := range 2000 {
					round(i)
				}
				before := s.Stats()
				for i := range 2000 {
					round(2000 + i)
				}
				after := s.Stats()
				require.Equal(t, before.Pending, after.Pending)
				require.LessOrEqual(t, after.Bytes, before.Bytes+4096)
				require.LessOrEqual(t, len(s.engine.shards[0].all), before.Buckets+2*hollowMax+4)
				s.verify()
			})
		}
	}
}
