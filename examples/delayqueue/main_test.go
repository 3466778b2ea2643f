package main

import (
	"bytes"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestEachJobIsDoneInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var out bytes.Buffer
		assert.NoError(t, run(&out))
		assert.Equal(t, "1000 jobs done by 3 workers in 2492 attempts, none of them early\n", out.String())
		took := time.Since(begin)
		assert.GreaterOrEqual(t, took, backoff+2*backoff+4*backoff)
		assert.Less(t, took, longest+backoff+2*backoff+4*backoff)
	})
}

func TestCheckFindsEachFault(t *testing.T) {
	t.Parallel()
	right := func() []*job { return []*job{{attempts: 1}, {attempts: 3, failures: 2}} }
	assert.NoError(t, check(io.Discard, right(), 4, 0))
	assert.ErrorContains(t, check(io.Discard, right(), 5, 0), "5 jobs taken for 4 attempts")
	assert.ErrorContains(t, check(io.Discard, right(), 4, 1), "1 left")
	wrong := right()
	wrong[1].early = 1
	assert.ErrorContains(t, check(io.Discard, wrong, 4, 0), "job 1")
	wrong = right()
	wrong[0].attempts = 2
	assert.ErrorContains(t, check(io.Discard, wrong, 5, 0), "job 0")
}
