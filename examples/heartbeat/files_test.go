package main

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestConnectionsFitTheFiles(t *testing.T) {
	t.Parallel()
	for _, conns := range []int{1, 2, 5000, maxConns} {
		assert.Equal(t, conns, connsFor(filesFor(conns)))
		assert.Equal(t, conns-1, connsFor(filesFor(conns)-1), "two files for each")
	}
	assert.Zero(t, connsFor(0))
	assert.Zero(t, connsFor(filesBeside))
	assert.Equal(t, maxConns, connsFor(math.MaxUint64))
}

func TestFewFilesNeedNoNote(t *testing.T) {
	t.Parallel()
	cfg := config{conns: 1}
	var out bytes.Buffer
	assert.NoError(t, fitFiles(&cfg, &out))
	assert.Equal(t, 1, cfg.conns)
	assert.Empty(t, out.String())
}
