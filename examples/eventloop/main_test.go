package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSameSeedGivesTheSameDay(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	assert.NoError(t, run(&out, 1))
	assert.Equal(t, ""+
		"at noon, 12:00:00: 123 guests, 121 served, 1 left, longest queue 3\n"+
		"at the end, 17:02:16: 328 guests, 323 served, 5 left, longest queue 3\n", out.String())

	for seed := uint64(2); seed < 50; seed++ {
		out.Reset()
		assert.NoError(t, run(&out, seed), "seed %d", seed)
	}
}
