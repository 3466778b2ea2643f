package fault_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/timingwheel-go/timingwheel/examples/internal/fault"
)

func TestErrListsTheFirstFaultsAndCountsTheOthers(t *testing.T) {
	t.Parallel()
	var l fault.List
	assert.NoError(t, l.Err())
	l.Check(true, "no fault")
	assert.NoError(t, l.Err())
	l.Check(false, "order %d", 0)
	assert.EqualError(t, l.Err(), "FAIL: order 0")
	for i := range 11 {
		l.Add("order %d", i+1)
	}
	assert.ErrorContains(t, l.Err(), "order 9\n")
	assert.NotContains(t, l.Err().Error(), "order 10")
	assert.ErrorContains(t, l.Err(), "and 2 more")
}
