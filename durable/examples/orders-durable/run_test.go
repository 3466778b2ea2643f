package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
)

// TestMain lets the test binary be a consumer, as the program is its own.
func TestMain(m *testing.M) {
	if isConsumer() {
		os.Exit(consumerMain())
	}
	os.Exit(m.Run())
}

// output is what several processes write to.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func newFile(t *testing.T) string { return "file:" + filepath.Join(t.TempDir(), "queue.db") }

func runSmall(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs output
	args = append([]string{"orders-durable", "-orders", "80", "-over", "1s", "-timeout", "600ms", "-kills", "2"}, args...)
	code = ordersDurable(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestOnAFile(t *testing.T) {
	t.Parallel()
	file := newFile(t)
	for range 2 { // the second time with a file that is there
		code, stdout, stderr := runSmall(t, "-store", file)
		assert.Equal(t, exitRight, code, "%s%s", stdout, stderr)
		assert.Empty(t, stderr)
		assert.Contains(t, stdout, "RIGHT: each of ")
		assert.Regexp(t, `orders placed +│ +80 │`, stdout)
		assert.Regexp(t, `consumers killed +│ +2 │`, stdout)
		assert.Regexp(t, `wrong: lost +│ +0 │`, stdout)
		assert.Regexp(t, `wrong: early +│ +0 │`, stdout)
	}
}

func TestOnATemporaryFile(t *testing.T) { // not parallel: it sets a variable
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	code, stdout, stderr := runSmall(t, "-over", "100ms", "-kills", "1")
	assert.Equal(t, exitRight, code, "%s%s", stdout, stderr)
	assert.Contains(t, stdout, "RIGHT")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestOnRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	code, stdout, stderr := runSmall(t, "-store", "redis://"+server.Addr())
	assert.Equal(t, exitRight, code, "%s%s", stdout, stderr)
	assert.Contains(t, stdout, "RIGHT: each of ")
	assert.Regexp(t, `orders placed +│ +80 │`, stdout)
}

// Ctrl-C ends all processes, as the file can be opened, and takes the messages back, as the next run finds the queue empty.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	file := newFile(t)
	for _, after := range []time.Duration{0, 30 * time.Millisecond, 800 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		var stdout, stderr output
		begin := time.Now()
		code := ordersDurable(ctx, []string{"orders-durable", "-store", file, "-over", "1m", "-timeout", "1h", "-kills", "100"}, &stdout, &stderr)
		cancel()
		assert.Equal(t, exitInterrupted, code, stderr.String())
		assert.Contains(t, stdout.String(), "interrupted after ")
		assert.NotContains(t, stdout.String(), "RIGHT")
		assert.Empty(t, stderr.String())
		assert.Less(t, time.Since(begin), 30*time.Second)
		require.NoError(t, mustBeEmpty(t.Context(), file, defaults().queue))
	}
}

func TestQueueInUseIsRefused(t *testing.T) {
	t.Parallel()
	file := newFile(t)
	require.NoError(t, withQueue(t.Context(), file, defaults().queue, func(q direct) error {
		return q.enqueue(t.Context(), "somebody's", time.Now().Add(time.Hour))
	}))
	code, stdout, stderr := runSmall(t, "-store", file)
	assert.Equal(t, exitWrong, code)
	assert.Empty(t, stdout)
	assert.Contains(t, stderr, `queue "orders-durable" in `+file+" holds 1 messages")
	require.NoError(t, withQueue(t.Context(), file, defaults().queue, func(q direct) error {
		n, err := q.left(t.Context())
		assert.EqualValues(t, 1, n, "it was left alone")
		return err
	}))
}

// Without consumers the shop ends with their error, and does not wait for another one.
func TestConsumerThatFails(t *testing.T) {
	t.Parallel()
	_, j, _ := openBoth(t)
	var stderr output
	cfg := defaults()
	cfg.store = newFile(t)
	consumers := newSupervisor(job{cfg.store, cfg.queue, filepath.Join(t.TempDir(), "nowhere", "journal")}, &stderr)
	s := &shop{cfg: cfg, journal: j, timeouts: remote{consumers}, answers: make(map[string]bool)}
	err := s.open(t.Context(), consumers, []customer{{order: "o"}}, nil)
	require.ErrorContains(t, err, "has ended by itself: exit status 1")
	assert.Contains(t, stderr.String(), "nowhere")
}

// What was asked of a consumer that was killed is asked of the next one, with the answers that pay expects.
func TestAskingAgain(t *testing.T) {
	t.Parallel()
	var stderr output
	consumers := newSupervisor(job{newFile(t), "q", filepath.Join(t.TempDir(), "journal")}, &stderr)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r := remote{consumers}
	first, err := consumers.start()
	require.NoError(t, err)
	due := time.Now().Add(time.Hour)
	for range 2 {
		require.NoError(t, r.enqueue(ctx, "a", due))
	}
	require.NoError(t, r.enqueue(ctx, "b", due))
	result, err := r.cancel(ctx, "a")
	require.NoError(t, err)
	assert.Equal(t, durable.Cancelled, result)
	require.NoError(t, first.kill(ctx))

	answered := make(chan durable.Result, 1)
	go func() {
		result, err := r.cancel(ctx, "a") // waits for the next one
		assert.NoError(t, err)
		answered <- result
	}()
	second, err := consumers.start()
	require.NoError(t, err)
	assert.Equal(t, durable.NotFound, <-answered)
	n, err := r.left(ctx)
	require.NoError(t, err)
	assert.EqualValues(t, 1, n)
	err = r.enqueue(ctx, strings.Repeat("x", durable.MaxID+1), due)
	require.ErrorContains(t, err, "1 to 255", "a refusal is an answer")

	ended, end := context.WithCancel(ctx)
	end()
	_, err = consumers.other(ended, second)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, second.stop(ctx))
	assert.Empty(t, stderr.String())
}

// Ctrl-C reaches the consumer as well, which goes on: it is the shop that says when to end.
func TestConsumerIgnoresCtrlC(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("no process can be sent an interrupt there")
	}
	var stderr output
	consumers := newSupervisor(job{newFile(t), "q", filepath.Join(t.TempDir(), "journal")}, &stderr)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p, err := consumers.start()
	require.NoError(t, err)
	r := remote{consumers}
	_, err = r.left(ctx)
	require.NoError(t, err, "it runs")
	require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
	select {
	case <-p.exited:
		require.Fail(t, "it has ended", p.cmd.ProcessState)
	case <-time.After(200 * time.Millisecond):
	}
	_, err = r.left(ctx)
	require.NoError(t, err)
	require.NoError(t, p.stop(ctx))
	assert.Empty(t, stderr.String())
}
