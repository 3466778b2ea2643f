package main

import (
	"bytes"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
)

// In a synctest bubble the example takes no time, and no callback is late.
func TestOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		assert.NoError(t, run(&out))
		assert.Equal(t, ""+
			"   0s  stopped the second timer\n"+
			"   0s  postponed the third timer\n"+
			"100ms  hello\n"+
			"200ms  tick\n"+
			"400ms  tick\n"+
			"500ms  hello again, later than planned\n"+
			"600ms  tick\n"+
			"700ms  the third timer has fired and cannot be rescheduled\n", out.String())
	})
}
