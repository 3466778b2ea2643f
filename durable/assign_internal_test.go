package durable

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

// randomMembers returns names like consumers' names, different for each seed.
func randomMembers(random *rand.Rand, n int) []driver.Member {
	members := make([]driver.Member, n)
	for i := range members {
		members[i].Name = fmt.Sprintf("%016x%010x", random.Uint64(), i)
	}
	slices.SortFunc(members, func(a, b driver.Member) int { return strings.Compare(a.Name, b.Name) })
	return members
}

// checkAssigned requires that each partition has an owner and that loads differ by at most one.
func checkAssigned(t *testing.T, members []driver.Member, owners []string, partitions int) {
	t.Helper()
	require.Len(t, owners, partitions)
	load := make(map[string]int)
	for _, owner := range owners {
		load[owner]++
	}
	least, most := partitions, 0
	for _, m := range members {
		least, most = min(least, load[m.Name]), max(most, load[m.Name])
		delete(load, m.Name)
	}
	require.Empty(t, load, "owners that are not members")
	require.LessOrEqual(t, most-least, 1, "%d partitions, %d members", partitions, len(members))
}

func TestAssignmentIsBalanced(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for _, partitions := range []int{1, 2, 3, 7, 8, 31, 32, 33, 64, 256, contract.MaxPartitions} {
		for _, n := range []int{1, 2, 3, 5, 8, 9, 31, 32, 33, 70} {
			members := randomMembers(random, n)
			owners := assign(members, partitions)
			checkAssigned(t, members, owners, partitions)
		}
	}
}

// Shares follow capacity. A member whose capacity is unknown counts 1, and a tool owns nothing
// beside other members.
func TestAssignmentFollowsCapacity(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		capacities []int
		want       []int
	}{
		{[]int{64, 1}, []int{32, 0}},
		{[]int{3, 1}, []int{24, 8}},
		{[]int{1, 0}, []int{16, 16}},
		{[]int{10, 20, 2}, []int{10, 20, 2}},
		{[]int{5, -1}, []int{32, 0}},
		{[]int{-1, -1}, []int{16, 16}},
		{[]int{1 << 20, 1 << 20, 1}, []int{16, 16, 0}},
	} {
		var members []driver.Member
		for i, c := range test.capacities {
			members = append(members, driver.Member{Name: fmt.Sprint("member", i), Capacity: c})
		}
		got := make([]int, len(members))
		for _, owner := range assign(members, 32) {
			var i int
			_, err := fmt.Sscanf(owner, "member%d", &i)
			require.NoError(t, err)
			got[i]++
		}
		require.Equal(t, test.want, got, "%v", test.capacities)
	}
	require.Equal(t, []string{"", ""}, assign(nil, 2))
}
