package durable

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// planning returns the admission of two overdue partitions, with takers that wait and takers that
// are expected.
func planning(t *testing.T, waiting, ahead, beginning int) (a *admission, first, second *share) {
	t.Helper()
	opts, err := ConsumerOptions{}.withDefaults()
	require.NoError(t, err)
	a = &admission{opts: &opts, owned: 2, handover: new(handover), beginning: beginning}
	for range waiting {
		require.Nil(t, a.handover.take(newTaker(), time.Time{}))
	}
	a.readAhead.messages = ahead
	return a, &share{partition: 0, overdue: true, wake: func() {}}, &share{partition: 1, overdue: true, wake: func() {}}
}

func TestPlanGrantsNoMoreThanTheTakers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		what                      string
		waiting, ahead, beginning int
		begin                     int
		ok, ahead0                bool
	}{
		{"half of the takers, if they are slow", 10, 0, 0, 5, true, false},
		{"the only one", 1, 0, 0, 1, true, false},
		{"all of them, if they are fast", 0, 200, 50, 150, true, true},
		{"no fewer than a quarter", 0, 400, 350, 0, false, false},
		{"no more than a batch", 0, 1000, 0, driver.MaxBatch, true, true},
	} {
		a, s, _ := planning(t, test.waiting, test.ahead, test.beginning)
		claim, ok := a.plan(s, false)
		assert.Equal(t, test.ok, ok, test.what)
		assert.Equal(t, test.begin, claim.Begin, test.what)
		if test.ahead0 {
			assert.Equal(t, test.begin, claim.Max, test.what)
			assert.Zero(t, claim.Horizon, "nothing is claimed ahead")
		}
		if !ok {
			_, ok = a.plan(s, true)
			assert.True(t, ok, "the partition is stale")
		}
	}
}

func TestPartitionsGetGrantsInTurn(t *testing.T) {
	t.Parallel()
	a, first, second := planning(t, 0, 200, 200)
	_, ok := a.plan(first, false)
	assert.False(t, ok)
	a.beginning = 0
	claim, ok := a.plan(second, false)
	assert.False(t, ok, "the other partition waits already")
	assert.Zero(t, claim.Begin)
	a.grantNext()
	assert.Equal(t, 200, first.granted)
	assert.Zero(t, second.granted)
	a.disowned(first)
	a.grantNext()
	assert.False(t, first.overdue)
	assert.Zero(t, first.granted)
	assert.Equal(t, 200, second.granted, "the next partition in turn")
	assert.Zero(t, a.free())
}

func TestDisownedPartitionGetsNoGrant(t *testing.T) {
	t.Parallel()
	a, s, _ := planning(t, 0, 200, 200)
	_, ok := a.plan(s, false)
	assert.False(t, ok)
	a.disowned(s)
	assert.Zero(t, a.waiting.len())
}

func TestFullPartitionGetsNoGrantIfTakersAreSlow(t *testing.T) {
	t.Parallel()
	a, s, _ := planning(t, 10, 0, 0)
	s.unbegun = a.quota()
	claim, ok := a.plan(s, true)
	assert.True(t, ok)
	assert.Zero(t, claim.Max)
	assert.Zero(t, claim.Begin)
	assert.Zero(t, a.beginning)
}

// A claim without a grant, because its partition is stale, gets no grant while it is in progress.
// It could not use the grant, and would hold it until the claim ends.
func TestClaimWithoutAGrantGetsNoneLater(t *testing.T) {
	t.Parallel()
	a, s, _ := planning(t, 0, 200, 200)
	_, ok := a.plan(s, false)
	assert.False(t, ok, "it waits for a grant")
	claim, ok := a.plan(s, true)
	assert.True(t, ok, "it is stale")
	assert.Zero(t, claim.Begin)
	a.beginning = 0
	a.grantNext()
	assert.Zero(t, s.granted)
	assert.Equal(t, 200, a.free())
}
