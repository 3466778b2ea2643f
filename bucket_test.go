package timingwheel

import (
	"math/rand/v2"
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
	require.LessOrEqual(t, chunkPageSize, arena.PageSize, "the pager has a bit for each record")
}

// chunksUsed returns the number of chunks in lists.
func (bs *bucketStore) chunksUsed() (n int) {
	for p := range bs.chunks.Len() {
		n += bs.chunks.Used(p)
	}
	return max(0, n-1) // chunk 0 is in no list
}

// removal is an order in which timers are stopped.
var removal = map[string]func(n int) []int{
	"oldest first": sequence,
	"newest first": func(n int) []int { s := sequence(n); slices.Reverse(s); return s },
	"at random":    func(n int) []int { return rand.New(rand.NewPCG(uint64(n), 1)).Perm(n) },
}

func sequence(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}
