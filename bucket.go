package timingwheel

import (
	"math"
	"math/bits"

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

// never is a tick that no clock reaches.
const never = math.MaxInt64

type bucketState uint8

const (
	bucketQueued    bucketState = iota // in its slot and the queue; freed when it becomes empty
	bucketCascading                    // in wheel.cascade; freed once its timers have moved
)

// bucket is the list of timers of one slot: an unrolled list of record numbers, so that reading 32
// timers costs one cache miss. It leaves its slot as a whole (docs/internals/design.md).
type bucket struct {
	at         int64 // expiration in ticks
	key        int64 // orders the queue: at, or earlier if the bucket begins to cascade early
	live       int   // entries
	id         uint32
	head, tail uint32 // chunks
	slot       uint32
	level      int32
	heapIndex  int32
	state      bucketState
}

// Before orders the queue of buckets.
func (b *bucket) Before(o *bucket) bool { return b.key < o.key }

func (b *bucket) SetHeapIndex(i int) { b.heapIndex = int32(i) }

const (
	chunkShift     = 5
	chunkSize      = 1 << chunkShift // entries of one chunk
	chunkMask      = chunkSize - 1
	chunkPageShift = 6
	chunkPageSize  = 1 << chunkPageShift // chunks of one page
	chunkPageMask  = chunkPageSize - 1
	chunkPagesMax  = 1 << (32 - chunkShift - chunkPageShift) // positions have 32 bits
)

// chunkMeta describes one chunk of a bucket's list. Bit k of alive says that entry k names a timer
// of the bucket. Entries above the highest set bit are free. Removing an entry therefore clears one
// bit without reading the entry, and the free end of a list is reused immediately. A removal needs
// only the chunkMeta, so the entries are stored separately.
type chunkMeta struct {
	prev, next uint32 // neighbours in the bucket's list; 0: none
	bucket     uint32 // id of the bucket
	alive      uint32
}

// full reports whether there is no room behind the last entry.
func (m *chunkMeta) full() bool { return m.alive>>chunkMask != 0 }

// chunkPage is one object, because the garbage collector marks each object separately.
type chunkPage struct {
	entries [chunkPageSize][chunkSize]uint32 // record numbers
	meta    [chunkPageSize]chunkMeta
}

// bucketStore holds the buckets of a shard and writes the position of each entry to its record.
type bucketStore struct {
	records *arena.Table[arena.Page]
	chunks  arena.Slab[chunkPage] // chunk 0 is in no list
	all     []*bucket             // by id; the unused ones are in spare
	spare   []*bucket
}

func (bs *bucketStore) init(records *arena.Table[arena.Page]) {
	bs.records, bs.chunks.Shift = records, chunkPageShift
}

func (bs *bucketStore) meta(c uint32) *chunkMeta {
	m, _ := bs.chunk(c)
	return m
}

// chunk returns a chunk and its entries. c may be 0.
func (bs *bucketStore) chunk(c uint32) (*chunkMeta, *[chunkSize]uint32) {
	pg := bs.chunks.Pages.At(c >> chunkPageShift)
	if pg == nil { // see arena.Page.Load
		return nil, nil
	}
	return &pg.meta[c&chunkPageMask], &pg.entries[c&chunkPageMask]
}

func (bs *bucketStore) pos(i uint32) *uint32 {
	pg := bs.records.At(i >> arena.PageShift)
	if pg == nil { // never; see arena.Page.Load
		return nil
	}
	return &pg.Pos[i&arena.PageMask]
}

// loadWord returns the word of record i, or 0 if its page is gone.
func loadWord(pages *arena.Table[arena.Page], i uint32) arena.Word {
	pg := pages.At(i >> arena.PageShift)
	if pg == nil {
		return 0
	}
	return pg.Load(i)
}

func (bs *bucketStore) newBucket() *bucket {
	if n := len(bs.spare); n > 0 {
		b := bs.spare[n-1]
		bs.spare = bs.spare[:n-1]
		*b = bucket{id: b.id, heapIndex: -1}
		return b
	}
	b := &bucket{id: uint32(len(bs.all)), heapIndex: -1}
	bs.all = append(bs.all, b)
	return b
}

// freeBucket frees a bucket without entries, which has no chunk.
func (bs *bucketStore) freeBucket(b *bucket) { bs.spare = append(bs.spare, b) }

func (bs *bucketStore) append(b *bucket, i uint32) {
	c := b.tail
	m, entries := bs.chunk(c)
	if c == 0 || m.full() {
		c = bs.addChunk(b)
		m, entries = bs.chunk(c)
	}
	off := uint32(bits.Len32(m.alive)) & chunkMask
	m.alive |= 1 << off
	entries[off] = i
	*bs.pos(i) = c<<chunkShift | off
	b.live++
}

func (bs *bucketStore) addChunk(b *bucket) uint32 {
	c, ok := bs.chunks.Take()
	if !ok {
		bs.openPage()
		c, _ = bs.chunks.Take()
	}
	*bs.meta(c) = chunkMeta{prev: b.tail, bucket: b.id}
	if b.tail == 0 {
		b.head = c
	} else {
		bs.meta(b.tail).next = c
	}
	b.tail = c
	return c
}

func (bs *bucketStore) openPage() {
	p := bs.chunks.Next()
	if p >= chunkPagesMax {
		panic("timingwheel: a shard is full: more than 2^27 chunks of timers; use more shards")
	}
	bs.chunks.Open(new(chunkPage))
	if p == 0 {
		bs.chunks.Take() // chunk 0: a position of 0 means none
	}
}

// remove removes the entry at pos and returns its bucket. It frees a chunk without entries. O(1).
func (bs *bucketStore) remove(pos uint32) *bucket {
	c := pos >> chunkShift
	m := bs.meta(c)
	m.alive &^= 1 << (pos & chunkMask)
	b := bs.all[m.bucket]
	b.live--
	if m.alive == 0 {
		bs.unlink(b, c, m)
	}
	return b
}

// unlink also frees the chunk.
func (bs *bucketStore) unlink(b *bucket, c uint32, m *chunkMeta) {
	if m.prev == 0 {
		b.head = m.next
	} else {
		bs.meta(m.prev).next = m.next
	}
	if m.next == 0 {
		b.tail = m.prev
	} else {
		bs.meta(m.next).prev = m.prev
	}
	bs.chunks.Put(c, true)
}

// takeChunk removes the entries of the first chunk of b, in order. b must not be empty.
func (bs *bucketStore) takeChunk(b *bucket, to *[chunkSize]uint32) (n int) {
	c := b.head
	m, from := bs.chunk(c)
	for ; m.alive != 0; m.alive &= m.alive - 1 {
		i := from[bits.TrailingZeros32(m.alive)]
		*bs.pos(i) = 0
		to[n] = i
		n++
	}
	b.live -= n
	bs.unlink(b, c, m)
	return n
}
