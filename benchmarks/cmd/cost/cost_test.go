package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEachOperationIsPrinted(t *testing.T) {
	t.Parallel()
	for _, name := range names() {
		t.Run(name, func(t *testing.T) {
			cfg := config{pending: 2000, ops: 1000, shards: 2, only: name}
			if name == "fire" || name == "batches" || name == "wake" {
				if testing.Short() {
					t.Skip("waits for timers")
				}
				t.Parallel()
				cfg.pending = 1
			}
			var w bytes.Buffer
			require.NoError(t, run(cfg, &w))
			assert.Contains(t, w.String(), "| "+name)
		})
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args string
		want []string
	}{
		{"-pending 0", []string{"0", "-pending", "from 1 to 100000000"}},
		{"-ops -1", []string{"-1", "-ops", "from 1 to 100000000"}},
		{"-shards 1025", []string{"1025", "-shards", "from 1 to 1024"}},
		{"-shards x", []string{`"x"`, "-shards"}},
		{"-only all", []string{`"all"`, "-only", "one of [draw clock armstop"}},
		{"all", []string{`"all"`, "the program takes only options"}},
	} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, exitUsage, cost(strings.Fields(tt.args), &stdout, &stderr), tt.args)
		assert.Empty(t, stdout.String())
		for _, w := range tt.want {
			assert.Contains(t, stderr.String(), w, tt.args)
		}
	}
}

func TestHelpNamesEachOption(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	assert.Equal(t, exitOK, cost([]string{"-help"}, &stdout, &stderr))
	for _, name := range []string{"-pending", "-ops", "-shards", "-only"} {
		assert.Contains(t, stdout.String(), name)
	}
}
