package durable

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// planning is a consumer of two partitions, the first of which is overdue, with takers that wait and others that are expected.
func planning(t *testing.T, waiting, ahead, beginning int) (*consumer, *consumed) {
	t.Helper()
	opts, err := ConsumerOptions{}.withDefaults()
	require.NoError(t, err)
	c := &consumer{opts: opts, ctx: t.Context(), owned: 2, waiting: waiting, beginning: beginning}
	c.pace.ahead = ahead
	c.parts = []*consumed{{pump: newPump(c, 0), overdue: true}, {pump: newPump(c, 1), overdue: true}}
	return c, c.parts[0]
}

func TestPlanOfAnOverduePartition(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		what                      string
		waiting, ahead, beginning int
		begin                     int
		ok, ahead0                bool
	}{
		{"half of the takers, where they are slow", 10, 0, 0, 5, true, false},
		{"the only one", 1, 0, 0, 1, true, false},
		{"all of them, where they are quick", 0, 200, 50, 150, true, true},
		{"no fewer than a quarter", 0, 400, 350, 0, false, false},
		{"no more than a batch", 0, 1000, 0, driver.MaxBatch, true, true},
	} {
		c, p := planning(t, test.waiting, test.ahead, test.beginning)
		claim, ok := c.plan(p, false)
		assert.Equal(t, test.ok, ok, test.what)
		assert.Equal(t, test.begin, claim.Begin, test.what)
		if test.ahead0 {
			assert.Equal(t, test.begin, claim.Max, test.what)
			assert.Zero(t, claim.Horizon, "nothing is claimed ahead")
		}
		if !ok {
			_, ok = c.plan(p, true)
			assert.True(t, ok, "it has waited for long")
		}
	}
}

func TestPartitionsAreFedInTurn(t *testing.T) {
	t.Parallel()
	c, p := planning(t, 0, 200, 200)
	_, ok := c.plan(p, false)
	assert.False(t, ok)
	c.beginning = 0
	claim, ok := c.plan(c.parts[1], false)
	assert.False(t, ok, "the other one comes first")
	assert.Zero(t, claim.Begin)
	c.feed()
	assert.Equal(t, 200, p.granted)
	assert.Zero(t, c.parts[1].granted)
	c.starve(p)
	assert.False(t, p.overdue)
	assert.Zero(t, p.granted)
	assert.Equal(t, 200, c.parts[1].granted, "its turn has come")
	assert.Zero(t, c.free())
}

func TestPartitionThatEndsIsNotFed(t *testing.T) {
	t.Parallel()
	c, p := planning(t, 0, 200, 200)
	_, ok := c.plan(p, false)
	assert.False(t, ok)
	c.starve(p)
	assert.Zero(t, c.hungry.len())
}

func TestPartitionWithoutRoomIsGrantedNothingWhereTakersAreSlow(t *testing.T) {
	t.Parallel()
	c, p := planning(t, 10, 0, 0)
	p.unbegun = c.quota()
	claim, ok := c.plan(p, true)
	assert.True(t, ok)
	assert.Zero(t, claim.Max)
	assert.Zero(t, claim.Begin)
	assert.Zero(t, c.beginning)
}

// A claim that is made without a grant, as its partition has waited long for one, is given none while it is under way: it could not use it, and nothing
// would take it back from a claim that takes long.
func TestClaimWithoutAGrantIsGivenNoneLater(t *testing.T) {
	t.Parallel()
	c, p := planning(t, 0, 200, 200)
	_, ok := c.plan(p, false)
	assert.False(t, ok, "it waits for a grant")
	claim, ok := c.plan(p, true)
	assert.True(t, ok, "it has waited for long")
	assert.Zero(t, claim.Begin)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.beginning = 0
	c.match()
	assert.Zero(t, p.granted)
	assert.Equal(t, 200, c.free())
}
