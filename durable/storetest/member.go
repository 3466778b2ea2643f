package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

var memberTests = []test{
	{"Heartbeat/JoinAndLeave", joinAndLeave},
	{"Heartbeat/Expiry", memberExpiry},
	{"Heartbeat/ClockSetBack", membersClockSetBack},
	{"Heartbeat/Many", manyMembers},
}

// beat is the heartbeat of a member.
func (q *queue) beat(member string, ttl time.Duration) []string {
	q.t.Helper()
	members, err := q.Heartbeat(q.t.Context(), member, ttl)
	require.NoError(q.t, err)
	return members
}

func joinAndLeave(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	assert.Equal(t, []string{"b"}, q.beat("b", far))
	assert.Equal(t, []string{"b", "c"}, q.beat("c", far))
	assert.Equal(t, []string{"a", "b", "c"}, q.beat("a", far))
	assert.Equal(t, []string{"a", "b", "c"}, q.beat("b", far), "again")
	assert.Equal(t, []string{"a", "c"}, q.beat("b", 0))
	assert.Equal(t, []string{"a", "c"}, q.beat("b", 0), "to leave again does nothing")
	assert.Equal(t, []string{"a", "c"}, q.beat("nobody", 0))
	assert.Equal(t, []string{"a", "b", "c"}, q.beat("b", far), "back again")
	q.beat("a", 0)
	q.beat("b", 0)
	assert.Empty(t, q.beat("c", 0))
	assert.Equal(t, []string{"ü 😀"}, q.beat("ü 😀", far))
}

// memberExpiry has members that give no sign of life any more.
func memberExpiry(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	q.beat("short", q.short())
	q.beat("long", far)
	q.beat("renewed", q.short())
	q.beat("renewed", far)
	q.pass()
	assert.Equal(t, []string{"long", "renewed"}, q.beat("long", far))
	assert.Equal(t, []string{"long", "renewed", "short"}, q.beat("short", far), "back again")
	q.beat("long", q.short())
	q.pass()
	assert.Equal(t, []string{"renewed"}, q.beat("short", 0), "the last word counts, though it was for a shorter time")
}

// membersClockSetBack has a member that is gone when the clock is set back. It must not stay until the
// clock has caught up, because its partitions would have no owner for so long.
func membersClockSetBack(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	if q.fixture.Advance == nil {
		t.Skip("the clock of this store cannot be set")
	}
	q.beat("killed", q.short())
	q.beat("alive", 2*q.short())
	q.fixture.Advance(-far)
	assert.Equal(t, []string{"alive", "killed", "other"}, q.beat("other", far), "the time that is left stays the same")
	q.pass()
	assert.Equal(t, []string{"alive", "other"}, q.beat("other", far))
	q.pass()
	assert.Equal(t, []string{"other"}, q.beat("other", far))
}

func manyMembers(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	var want []string
	for i := range 60 {
		want = append(want, fmt.Sprintf("m%02d", i))
		q.beat(want[i], far)
	}
	assert.Equal(t, want, q.beat("m30", far))
	other := q.in("other")
	assert.Equal(t, []string{"x"}, other.beat("x", far), "members of another queue")
	assert.Equal(t, want, q.beat("m00", far))
	assert.Equal(t, driver.Counts{}.Scheduled, q.count().Scheduled, "members are no messages")
}
