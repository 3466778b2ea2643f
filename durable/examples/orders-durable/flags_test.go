package main

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	t.Parallel()
	want := defaults()
	cfg, ok, err := parse([]string{"orders-durable"}, nil)
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, want, cfg)

	want.store, want.queue, want.orders, want.over = "redis://host:1/2", "shop", 10, 2*time.Second
	want.timeout, want.kills, want.seed = 500*time.Millisecond, 0, 7
	for _, dash := range []string{"-", "--"} {
		cfg, ok, err = parse([]string{"orders-durable", dash + "store", "redis://host:1/2", dash + "queue=shop", dash + "orders", "10",
			dash + "over=2s", dash + "timeout", "500ms", dash + "kills=0", dash + "seed", "7"}, nil)
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Equal(t, want, cfg)
	}
}

func TestBadOptions(t *testing.T) {
	t.Parallel()
	file := "file:" + filepath.Join(t.TempDir(), "q.db")
	for _, tt := range []struct{ args, want []string }{
		{[]string{"-orders", "0"}, []string{`"0"`, "-orders", "a whole number from 1 to 100000"}},
		{[]string{"-orders", "many"}, []string{`"many"`, "-orders", "from 1 to 100000"}},
		{[]string{"-orders"}, []string{"-orders", "needs an argument"}},
		{[]string{"-over", "-1s"}, []string{`"-1s"`, "-over", "a time from 0s to 1h0m0s"}},
		{[]string{"-timeout", "5"}, []string{`"5"`, "-timeout", "a time from 100ms to 1h0m0s"}},
		{[]string{"-timeout", "99ms"}, []string{`"99ms"`, "-timeout", "from 100ms"}},
		{[]string{"-kills", "101"}, []string{`"101"`, "-kills", "from 0 to 100"}},
		{[]string{"-seed", "-1"}, []string{`"-1"`, "-seed", "from 0 to 18446744073709551615"}},
		{[]string{"-store", "orders.db"}, []string{`"orders.db"`, "-store", "file:PATH"}},
		{[]string{"-store", "memory:"}, []string{`"memory:"`, "-store", "file:PATH"}},
		{[]string{"-store", "http://host"}, []string{`"http://host"`, "file:PATH"}},
		{[]string{"-store", file, "-queue", "a b"}, []string{`"a b"`, "1 to 128 letters"}},
		{[]string{"-fast"}, []string{"-fast", "not defined"}},
		{[]string{"fast"}, []string{`"fast"`, "only options are accepted"}},
	} {
		var stdout, stderr bytes.Buffer
		args := append([]string{"orders-durable"}, tt.args...)
		assert.Equal(t, exitUsage, ordersDurable(t.Context(), args, &stdout, &stderr), "%v", tt.args)
		assert.Empty(t, stdout.String(), "%v", tt.args)
		for _, w := range tt.want {
			assert.Contains(t, stderr.String(), w, "%v", tt.args)
		}
	}
}

func TestHelpNamesEveryOption(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	assert.Equal(t, exitRight, ordersDurable(t.Context(), []string{"orders-durable", "-help"}, &stdout, &stderr))
	assert.Empty(t, stderr.String())
	cfg := defaults()
	for _, f := range options(&cfg) {
		assert.Contains(t, stdout.String(), "-"+f.Names()[0]+" ")
	}
}
