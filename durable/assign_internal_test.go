package durable

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// randomMembers returns names like those of consumers, different for each seed.
func randomMembers(random *rand.Rand, n int) []string {
	members := make([]string, n)
	for i := range members {
		members[i] = fmt.Sprintf("%016x%010x", random.Uint64(), i)
	}
	slices.Sort(members)
	return members
}

// checkAssigned requires that each partition has an owner and that loads differ by at most one.
func checkAssigned(t *testing.T, members, owners []string, partitions int) {
	t.Helper()
	require.Len(t, owners, partitions)
	load := make(map[string]int)
	for _, owner := range owners {
		load[owner]++
	}
	least, most := partitions, 0
	for _, m := range members {
		least, most = min(least, load[m]), max(most, load[m])
		delete(load, m)
	}
	require.Empty(t, load, "owners that are not members")
	require.LessOrEqual(t, most-least, 1, "%d partitions, %d members", partitions, len(members))
}

func TestAssignmentIsBalanced(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for _, partitions := range []int{1, 2, 3, 7, 8, 31, 32, 33, 64, 256, driver.MaxPartitions} {
		for _, n := range []int{1, 2, 3, 5, 8, 9, 31, 32, 33, 70} {
			members := randomMembers(random, n)
			owners := assign(members, partitions)
			checkAssigned(t, members, owners, partitions)
			random.Shuffle(n, func(i, j int) { members[i], members[j] = members[j], members[i] })
			require.Equal(t, owners, assign(members, partitions), "the order of members has no effect")
		}
	}
}

// A member that joins or leaves moves few partitions. Rendezvous hashing without bounds moves
// fewer, but gives one of eight members 1.76 times the mean of 32 partitions.
func TestAssignmentMovesFewPartitions(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		partitions, members int
		most                float64 // of all partitions, on average
	}{
		{8, 1, 0.51}, {8, 2, 0.45}, {8, 7, 0.35}, {32, 4, 0.30}, {32, 8, 0.23}, {64, 5, 0.25}, {64, 16, 0.16}, {256, 20, 0.12},
	} {
		random := rand.New(rand.NewPCG(uint64(test.partitions), uint64(test.members)))
		const rounds = 100
		moved, gained := 0, 0
		for range rounds {
			after := randomMembers(random, test.members+1)
			k := random.IntN(len(after))
			before := slices.Delete(slices.Clone(after), k, k+1)
			was, is := assign(before, test.partitions), assign(after, test.partitions)
			for p := range is {
				if was[p] != is[p] {
					moved++
				}
				if is[p] == after[k] {
					gained++
				}
			}
		}
		share := float64(moved) / rounds / float64(test.partitions)
		t.Logf("%d partitions, member %d joins: %.1f move, %.1f of them to it", test.partitions, test.members+1,
			float64(moved)/rounds, float64(gained)/rounds)
		assert.Less(t, share, test.most, "%d partitions, member %d joins", test.partitions, test.members+1)
	}
}
