package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEachOperationIsShown(t *testing.T) {
	t.Parallel()
	var w bytes.Buffer
	for _, name := range names() {
		if name == "fire" || name == "batches" || name == "wake" {
			continue // they wait for seconds
		}
		require.NoError(t, run(config{pending: 2000, ops: 1000, shards: 2, only: name}, &w))
		assert.Contains(t, w.String(), "| "+name)
	}
}

func TestTimersFire(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for timers")
	}
	t.Parallel()
	for _, name := range []string{"fire", "batches", "wake"} {
		var w bytes.Buffer
		require.NoError(t, run(config{pending: 1, ops: 1000, shards: 2, only: name}, &w))
		assert.Contains(t, w.String(), "| "+name)
	}
}

func TestBadOptions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args string
		want []string
	}{
		{"-pending 0", []string{"0", "-pending", "from 1 to 100000000"}},
		{"-ops -1", []string{"-1", "-ops", "from 1 to 100000000"}},
		{"-shards 1025", []string{"1025", "-shards", "from 1 to 1024"}},
		{"-shards x", []string{`"x"`, "-shards"}},
		{"-only all", []string{`"all"`, "-only", "one of [nothing clock latest"}},
		{"all", []string{`"all"`, "only options are accepted"}},
	} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, exitUsage, cost(strings.Fields(tt.args), &stdout, &stderr), tt.args)
		assert.Empty(t, stdout.String())
		for _, w := range tt.want {
			assert.Contains(t, stderr.String(), w, tt.args)
		}
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	assert.Equal(t, exitRight, cost([]string{"-help"}, &stdout, &stderr))
	for _, name := range []string{"-pending", "-ops", "-shards", "-only"} {
		assert.Contains(t, stdout.String(), name)
	}
}
