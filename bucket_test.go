package timingwheel

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

// The documents and the benchmarks state these sizes. A change must be deliberate.
func TestSizesOfBuckets(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, 16, unsafe.Sizeof(chunkMeta{}))
	require.EqualValues(t, 4*chunkSize, unsafe.Sizeof([chunkSize]uint32{}), "an entry is 4 bytes")
	require.EqualValues(t, chunkPageSize*(4*chunkSize+16), unsafe.Sizeof(chunkPage{}))
	require.LessOrEqual(t, unsafe.Sizeof(bucket{}), uintptr(96))
	require.LessOrEqual(t, chunkSize, 32, "chunkMeta.alive has a bit for each entry")
	require.Zero(t, chunkPageSize%64, "a page's bitmap is whole words")
	require.LessOrEqual(t, chunkPageSize, arena.PageSize, "the pager has a bit for each slot")
	for _, v := range []any{chunkMeta{}, chunkPage{}} {
		require.False(t, holdsPointers(reflect.TypeOf(v)), "%T: the garbage collector would scan each timer", v)
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
	require.Equal(t, b[1:4], slices.Collect(l.all))
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

// listing is a bucketStore and a reference for it: the slots of each bucket, in order.
type listing struct {
	bucketStore
	t       testing.TB
	table   arena.Table[arena.Page]
	buckets []*bucket
	want    map[*bucket][]uint32
	in      map[uint32]*bucket // the bucket of each listed slot
	unused  []uint32           // slots that no bucket lists
}

func newListing(t testing.TB, slots, buckets int) *listing {
	l := &listing{t: t, want: map[*bucket][]uint32{}, in: map[uint32]*bucket{}}
	l.slots = &l.table
	for p := range (slots-1)/arena.PageSize + 1 {
		l.table.Set(p, new(arena.Page))
	}
	for i := range slots {
		l.unused = append(l.unused, uint32(i))
	}
	for range buckets {
		l.buckets = append(l.buckets, l.newBucket())
	}
	return l
}

func (l *listing) add(b *bucket, i uint32) {
	l.append(b, i)
	l.want[b] = append(l.want[b], i)
	l.in[i] = b
}

// addNew appends n unused slots to a bucket.
func (l *listing) addNew(b *bucket, n int) (added []uint32) {
	added = slices.Clone(l.unused[:n])
	l.unused = l.unused[n:]
	for _, i := range added {
		l.add(b, i)
	}
	return added
}

// forget removes a slot from the reference.
func (l *listing) forget(i uint32) {
	b := l.in[i]
	k := slices.Index(l.want[b], i)
	l.want[b] = slices.Delete(l.want[b], k, k+1)
	delete(l.in, i)
	l.unused = append(l.unused, i)
}

func (l *listing) takeOut(i uint32) {
	l.t.Helper()
	pos := l.pos(i)
	if got := l.remove(*pos); got != l.in[i] {
		l.t.Fatalf("slot %d was in bucket %d, want %d", i, got.id, l.in[i].id)
	}
	*pos = 0
	l.forget(i)
}

// drainSome drains a non-empty bucket and returns the number of drained slots.
func (l *listing) drainSome(b *bucket, most int) int {
	l.t.Helper()
	var to [chunkSize]uint32
	n := l.takeChunk(b, &to, most)
	if n == 0 || n > most || !slices.Equal(to[:n], l.want[b][:n]) {
		l.t.Fatalf("drained %v, want the first of %v", to[:n], l.want[b])
	}
	for _, i := range to[:n] {
		if *l.pos(i) != 0 {
			l.t.Fatalf("drained slot %d keeps position %d", i, *l.pos(i))
		}
		l.forget(i)
	}
	return n
}

// chunksUsed returns the number of chunks in lists.
func (cs *chunks) used() (n int) {
	for p, pg := range cs.pages {
		if pg != nil {
			n += cs.pager.Used(p)
		}
	}
	if len(cs.pages) > 0 && cs.pages[0] != nil {
		n-- // chunk 0 is in no list
	}
	return n
}

// verify compares the store with the reference.
func (l *listing) verify() {
	l.t.Helper()
	total := 0
	for _, b := range l.buckets {
		var got []uint32
		l.each(b, func(pos, i uint32) {
			if *l.pos(i) != pos {
				l.t.Fatalf("slot %d is at %d and has position %d", i, pos, *l.pos(i))
			}
			got = append(got, i)
		})
		if !slices.Equal(got, l.want[b]) || b.live != len(got) {
			l.t.Fatalf("bucket %d lists %v (live %d), want %v", b.id, got, b.live, l.want[b])
		}
		total += l.verifyChunks(b)
	}
	for _, i := range l.unused {
		if *l.pos(i) != 0 {
			l.t.Fatalf("slot %d has position %d but is in no list", i, *l.pos(i))
		}
	}
	if err := l.chunks.verify(); err != nil {
		l.t.Fatal(err)
	}
	if n := l.chunks.used(); n != total {
		l.t.Fatalf("%d chunks in use, the lists have %d", n, total)
	}
	here := 0
	for _, pg := range l.chunks.pages {
		if pg != nil {
			here++
		}
	}
	if here != l.chunks.openPages {
		l.t.Fatalf("%d pages of chunks, counted %d", here, l.chunks.openPages)
	}
}

// verifyChunks checks that the list of a bucket is linked correctly and has no chunk without
// entries. It returns the number of chunks.
func (l *listing) verifyChunks(b *bucket) (n int) {
	l.t.Helper()
	prev := uint32(0)
	for c := b.head; c != 0; c = l.chunks.meta(c).next {
		m := l.chunks.meta(c)
		if m.prev != prev || m.bucket != b.id || m.alive == 0 {
			l.t.Fatalf("bucket %d: chunk %d has previous %d, want %d; owner %d; bits %b", b.id, c, m.prev, prev, m.bucket, m.alive)
		}
		prev = c
		n++
	}
	if b.tail != prev {
		l.t.Fatalf("bucket %d ends in %d, want %d", b.id, b.tail, prev)
	}
	return n
}

// removal is an order in which timers are stopped.
var removal = map[string]func(n int) []int{
	"oldest first": sequence,
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

// The timers of a large bucket are stopped in several orders. Its list keeps the order of
// appending, and each chunk is freed with its last entry.
func TestListKeepsOrderAndFreesEmptyChunks(t *testing.T) {
	t.Parallel()
	for name, order := range removal {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 40*chunkSize + 7
			l := newListing(t, n, 1)
			slots := l.addNew(l.buckets[0], n)
			for _, k := range order(n) {
				l.takeOut(slots[k])
				l.verify()
			}
			require.Zero(t, l.chunks.used())
		})
	}
}

// A freed bucket is reused with its id, and its chunks are reused.
func TestBucketsAndChunksAreReused(t *testing.T) {
	t.Parallel()
	l := newListing(t, 10*chunkSize, 0)
	for range 50 {
		b := l.newBucket()
		require.Equal(t, bucket{heapIndex: -1}, *b)
		l.buckets = []*bucket{b}
		l.addNew(b, 5*chunkSize)
		l.verify()
		for b.live > 0 {
			l.drainSome(b, chunkSize)
		}
		b.at, b.level, b.slot, b.state = 7, 3, 5, bucketCascading
		l.freeBucket(b)
		l.buckets = nil
		l.verify()
	}
	require.Len(t, l.all, 1)
	require.Zero(t, l.chunks.used())
	require.Equal(t, 1, l.chunks.openPages)
}

// After a spike the memory of the lists is freed, except for the page of chunk 0 and one empty
// page.
func TestPagesOfChunksAreFreed(t *testing.T) {
	t.Parallel()
	const n = 20 * chunkPageSize * chunkSize
	l := newListing(t, n, 1)
	slots := l.addNew(l.buckets[0], n)
	require.GreaterOrEqual(t, l.chunks.openPages, 20)
	slices.Reverse(slots)
	for _, i := range slots {
		l.remove(*l.pos(i))
	}
	require.LessOrEqual(t, l.chunks.openPages, 2)
	require.NoError(t, l.chunks.verify())
}

func TestCoarsestBucketOfATickGoesFirst(t *testing.T) {
	t.Parallel()
	fine, coarse := &bucket{key: 5, level: 0}, &bucket{key: 5, level: 2}
	require.True(t, coarse.Before(fine))
	require.False(t, fine.Before(coarse))
	fine.key = 4
	require.True(t, fine.Before(coarse))
	require.False(t, coarse.Before(fine))
	require.False(t, fine.Before(fine))
}

// playListing performs the operations that pick chooses on a few buckets and compares them with the
// reference after each step.
func playListing(t *testing.T, pick choices) {
	const slots, buckets = 1500, 3
	l := newListing(t, slots, buckets)
	for pick.more() {
		b := l.buckets[pick.below(buckets)]
		switch pick.below(8) {
		case 0, 1: // a number of appends, some to other buckets in between
			for range min(len(l.unused), 1+pick.below(3*chunkSize)) {
				if pick.below(16) == 1 {
					b = l.buckets[pick.below(buckets)]
				}
				l.addNew(b, 1)
			}
		case 2, 3, 4:
			for range 1 + pick.below(chunkSize) {
				if b.live > 0 {
					l.takeOut(l.want[b][pick.below(b.live)])
				}
			}
		case 5:
			for _, i := range l.choose(pick, 1+pick.below(chunkSize)) {
				l.takeOut(i)
			}
		case 6:
			if b.live > 0 {
				l.drainSome(b, 1+pick.below(chunkSize))
			}
		case 7:
			l.replace(b)
		}
		l.verify()
	}
}

// choose returns up to n listed slots, adjacent or anywhere.
func (l *listing) choose(pick choices, n int) (slots []uint32) {
	b := l.buckets[pick.below(len(l.buckets))]
	if b.live == 0 {
		return nil
	}
	first := pick.below(b.live)
	if pick.below(2) == 0 {
		return slices.Clone(l.want[b][first:min(first+n, b.live)])
	}
	for k := first; len(slots) < n && k < b.live; k += 1 + pick.below(9) {
		slots = append(slots, l.want[b][k])
	}
	return slots
}

// replace frees an empty bucket and takes another one.
func (l *listing) replace(b *bucket) {
	if b.live > 0 {
		return
	}
	k := slices.Index(l.buckets, b)
	l.freeBucket(b)
	delete(l.want, b)
	l.buckets[k] = l.newBucket()
}

func TestModelBuckets(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			playListing(t, newSeeded(seed, 300))
		})
	}
}

func FuzzBuckets(f *testing.F) {
	addModelSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) { playListing(t, &scripted{data[:min(len(data), 1024)]}) })
}
