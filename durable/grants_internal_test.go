package durable

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// A claim that is made without a grant, as its partition has waited long for one, is given none while it is under way: it could not use it, and nothing
// would take it back from a claim that takes long.
func TestClaimWithoutAGrantIsGivenNoneLater(t *testing.T) {
	t.Parallel()
	opts, err := ConsumerOptions{}.withDefaults()
	assert.NoError(t, err)
	c := &consumer{opts: opts, ctx: t.Context(), owned: 1, beginning: 200}
	c.pace.ahead = 200
	p := &consumed{pump: newPump(c, 0), overdue: true}
	c.parts = []*consumed{p}

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
