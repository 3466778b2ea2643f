package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

var memberTests = []test{
	{"Heartbeat/JoinAndLeave", joinAndLeave},
	{"Heartbeat/Expiry", memberExpiry},
	{"Heartbeat/ClockSetBack", membersClockSetBack},
	{"Members/Details", memberDetails},
}

// beat sends a heartbeat of a member and returns the names of all members.
func (q *queue) beat(member string, ttl time.Duration) []string {
	q.t.Helper()
	members, err := q.Heartbeat(q.t.Context(), driver.Member{Name: member}, ttl)
	require.NoError(q.t, err)
	return namesOf(members)
}

// members returns the members according to their last heartbeats, which are not in the future.
func (q *queue) members() []driver.Member {
	q.t.Helper()
	members, err := q.Members(q.t.Context())
	require.NoError(q.t, err)
	for _, m := range members {
		assert.LessOrEqual(q.t, m.Seen, driver.InstantOf(q.now())+1, m.Name)
	}
	return members
}

func namesOf(members []driver.Member) []string {
	return mapped(members, func(m driver.Member) string { return m.Name })
}

func joinAndLeave(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	assert.Equal(t, []string{"b"}, q.beat("b", far))
	assert.Equal(t, []string{"b", "c"}, q.beat("c", far))
	assert.Equal(t, []string{"a", "b", "c"}, q.beat("a", far))
	assert.Equal(t, []string{"a", "b", "c"}, q.beat("b", far), "again")
	assert.Equal(t, []string{"a", "c"}, q.beat("b", 0))
	assert.Equal(t, []string{"a", "c"}, q.beat("b", 0), "leaving again has no effect")
	assert.Equal(t, []string{"a", "c"}, q.beat("stranger", 0))
	assert.Equal(t, []string{"a", "b", "c"}, q.beat("b", far), "back again")
	q.beat("a", 0)
	q.beat("b", 0)
	assert.Empty(t, q.beat("c", 0))
	assert.Equal(t, []string{"ü 😀"}, q.beat("ü 😀", far))
}

// memberExpiry checks that members without further heartbeats expire.
func memberExpiry(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	start := q.now()
	q.beat("short", q.short())
	q.beat("long", far)
	q.beat("renewed", q.short())
	q.beat("renewed", far)
	if members := q.members(); q.now().Sub(start) < q.short() { // otherwise the machine stalled
		require.Len(t, members, 3)
	}
	q.pass()
	members := q.members()
	require.Equal(t, []string{"long", "renewed"}, namesOf(members), "without another heartbeat")
	assert.Less(t, members[0].Seen, driver.Instant(q.now().UnixMilli()))
	assert.Equal(t, []string{"long", "renewed"}, q.beat("long", far))
	assert.Equal(t, []string{"long", "renewed", "short"}, q.beat("short", far), "back again")
	q.beat("long", q.short())
	q.pass()
	assert.Equal(t, []string{"renewed"}, q.beat("short", 0),
		"the last heartbeat counts, although its ttl was shorter")
}

// membersClockSetBack sets the clock back after the last heartbeat of a member. The member must not
// stay until the clock has caught up, because its partitions would have no owner until then. A list
// or a heartbeat notices the step first.
func membersClockSetBack(t *testing.T, newStore Factory) {
	for _, list := range []bool{true, false} {
		q := open(t, newStore)
		if q.fixture.Advance == nil {
			t.Skip("the clock of this store cannot be set")
		}
		q.beat("killed", q.short())
		q.beat("alive", 2*q.short())
		q.fixture.Advance(-far)
		if list {
			require.Len(t, q.members(), 2)
		}
		assert.Equal(t, []string{"alive", "killed", "other"}, q.beat("other", far),
			"the remaining time does not change")
		require.Len(t, q.members(), 3)
		q.pass()
		assert.Equal(t, []string{"alive", "other"}, namesOf(q.members()))
		assert.Equal(t, []string{"alive", "other"}, q.beat("other", far))
		q.pass()
		assert.Equal(t, []string{"other"}, q.beat("other", far))
	}
}

func memberDetails(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	assert.Empty(t, q.members(), "Members does not join")
	before := driver.Instant(q.now().UnixMilli())
	all := make([]int, contract.MaxPartitions)
	for i := range all {
		all[i] = i
	}
	want := []driver.Member{
		{Name: "a", Host: "höst 1", PID: 17, Partitions: []int{0, 3}, Capacity: 64, Free: 3, Waiting: 2, WaitingFor: time.Hour + 1, OldestRun: 1<<63 - 1},
		{Name: "b", Host: strings.Repeat("x", 255), PID: 1 << 30, Partitions: all, Capacity: 1 << 20, Free: 1 << 20},
		{Name: strings.Repeat("c", 64)},
	}
	for i := range want {
		m := want[len(want)-1-i]
		_, err := q.Heartbeat(t.Context(), m, far)
		require.NoError(t, err)
	}
	all[7] = -1 // the store must have copied the list
	check := func() {
		t.Helper()
		members := q.members()
		now := driver.Instant(q.now().UnixMilli())
		for i := range members {
			m := &members[i]
			assert.GreaterOrEqual(t, m.Seen, before, m.Name)
			assert.LessOrEqual(t, m.Seen, now+1, m.Name)
			assert.InDelta(t, far.Milliseconds(), int64(m.Until-m.Seen), 1, m.Name)
			m.Seen, m.Until = 0, 0
		}
		assert.Equal(t, want, members)
	}
	all = append([]int(nil), all...)
	all[7] = 7
	want[1].Partitions = all
	check()
	want[0].Partitions, want[0].Host, want[0].PID, want[0].Free = []int{2}, "another", 18, 0
	_, err := q.Heartbeat(t.Context(), want[0], far)
	require.NoError(t, err)
	check()
	q.beat(want[1].Name, 0)
	want = append(want[:1], want[2])
	check()
	assert.Empty(t, q.in("other").members(), "members of another queue")
	q.beat(want[0].Name, 0)
	q.beat(want[1].Name, 0)
	assert.Empty(t, q.members())
}
