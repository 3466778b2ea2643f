//go:build unix

package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

// A command holds a pipe open, so the pipe is closed when the command ends.
func TestSecondCtrlCEndsTheCommands(t *testing.T) {
	d := onDirectory(t)
	d.ok("enqueue", "-id", "a", "-body", "x")
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	cmd := d.process(io.Discard, nil, "consume", "-exec", "exec 3>'"+pipe+"'; sleep 600")
	r, err := os.Open(pipe) // waits until the command has opened the pipe
	require.NoError(t, err)
	defer r.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := io.ReadAll(r)
		ended <- err
	}()
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(100 * time.Millisecond) {
		_ = cmd.Process.Signal(os.Interrupt) // repeatedly, because the system may merge two signals into one
		select {
		case err := <-ended:
			require.NoError(t, err)
			_ = cmd.Wait()
			return
		default:
		}
	}
	require.Fail(t, "the command does not end")
}

func TestCommandThatLeavesAProcessSucceeds(t *testing.T) {
	d := onDirectory(t)
	d.ok("enqueue", "-id", "a", "-body", "x")
	pid := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	a := newApp(nil, &outputTrigger{lines: 1, end: cancel}, io.Discard)
	a.commandGrace = time.Second
	require.NoError(t, a.run(ctx, []string{"delayq", "-store", d.store, "consume", "-exec", "sleep 600 & echo $! > '" + pid + "'; echo up"}))
	require.ErrorIs(t, ctx.Err(), context.Canceled, "the command has printed a line")
	assert.EqualValues(t, 1, d.counts().Acked, "the command has exited with 0")
	text, err := os.ReadFile(pid)
	require.NoError(t, err)
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(n, syscall.SIGKILL))
}

func TestCommandThatIsNotExecutableEndsConsume(t *testing.T) {
	d := onDirectory(t)
	d.ok("enqueue", "-id", "a", "-n", "3", "-body", "x")
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.ErrorIs(t, d.fails([]string{"consume", "-exec", file}, "permission denied"), errNoCommand)
}

// A command is not found after it has succeeded once.
func TestCommandNotFoundAfterASuccessIsAFailedAttempt(t *testing.T) {
	d := onDirectory(t)
	for i, id := range []string{"a", "b", "c"} {
		at := time.Now().Add(time.Duration(i-10) * time.Minute).Format(time.RFC3339)
		d.ok("-partitions", "1", "enqueue", "-id", id, "-body", "x", "-at", at)
	}
	r := d.interruptAfter(2, false, "consume", "-exec", `test "$DELAYQ_ID" != b || exit 127; echo "$DELAYQ_ID"`)
	require.NoError(t, r.err)
}

func TestTakeReleasesSeveralBatches(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	const n = 2*driver.MaxBatch + 10
	args := []string{"-partitions", "1", "enqueue", "-id", "a", "-body", "x", "-n", strconv.Itoa(n)}
	require.NoError(t, onMemory(t.Context(), store, io.Discard, io.Discard, args...))
	require.NoError(t, onMemory(t.Context(), store, io.Discard, io.Discard, "take", "-wait", "1m", "-n", strconv.Itoa(n)))
	c := countsOf(t, store, "default")
	assert.EqualValues(t, n, c.Scheduled)
	assert.Zero(t, c.InFlight)
}

func TestCtrlCInTakeReleasesMessages(t *testing.T) {
	t.Parallel()
	for option, acked := range map[string]uint64{"-ack": 1, "-keep": 0, "-nack": 0} {
		store := memstore.New(memstore.Options{})
		require.NoError(t, onMemory(t.Context(), store, io.Discard, io.Discard, "enqueue", "-id", "a", "-body", "x"))
		ctx, cancel := context.WithCancel(t.Context())
		stdout := writerFunc(func(p []byte) (int, error) {
			cancel()
			return len(p), nil
		})
		require.NoError(t, onMemory(ctx, store, stdout, io.Discard, "take", option, "-n", "2", "-wait", "0s"))
		c := countsOf(t, store, "default")
		assert.Zero(t, c.InFlight, option)
		assert.Equal(t, acked, c.Acked, option)
	}
}

// discarding is a store that counts and discards all messages.
type discarding struct {
	durable.Store
	n *atomic.Int64
}

type discardingBackend struct {
	driver.Backend
	n *atomic.Int64
}

func (d discarding) Open(ctx context.Context, c driver.Config) (driver.Backend, error) {
	b, err := d.Store.Open(ctx, c)
	return discardingBackend{b, d.n}, err
}

func (d discardingBackend) Put(_ context.Context, p driver.Put) ([]driver.Status, error) {
	d.n.Add(int64(len(p.Items)))
	statuses := make([]driver.Status, len(p.Items))
	for i := range statuses {
		statuses[i] = driver.StatusDone
	}
	return statuses, nil
}

// The queue copies the bodies of a call. The output follows each call.
func TestLargeBodiesAreEnqueuedInSmallBatches(t *testing.T) {
	t.Parallel()
	calls, store := 0, memstore.New(memstore.Options{})
	q, err := durable.Open(t.Context(), store, durable.Options{MaxBody: 4 << 20})
	require.NoError(t, err)
	defer q.Close()
	var stored atomic.Int64
	stdout := writerFunc(func(p []byte) (int, error) {
		n := stored.Swap(0)
		assert.LessOrEqual(t, n, int64(16), "64 MiB in a call")
		if n > 0 {
			calls++
		}
		return len(p), nil
	})
	a := newApp(strings.NewReader(strings.Repeat("x", 4<<20)), stdout, io.Discard)
	a.parse = opens(discarding{store, &stored})
	require.NoError(t, a.run(t.Context(), []string{"delayq", "-store", "memory:", "enqueue", "-n", "20"}))
	assert.Equal(t, 2, calls)
}

func TestCtrlCEndsReadingABody(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := run(ctx, []string{"delayq", "-store", "memory:", "enqueue"}, r, io.Discard, io.Discard)
	require.ErrorIs(t, err, context.Canceled)
}

func TestBodyAboveTheLimitIsRejected(t *testing.T) {
	t.Parallel()
	size := func(n int64) error {
		stdin := io.LimitReader(zeros{}, n)
		return run(t.Context(), []string{"delayq", "-store", "memory:", "enqueue"}, stdin, io.Discard, io.Discard)
	}
	require.NoError(t, size(1<<20), "as much as a queue accepts by default")
	require.ErrorIs(t, size(1<<20+1), durable.ErrInvalid)
	err := size(maxBody + 1)
	require.ErrorIs(t, err, durable.ErrInvalid)
	require.ErrorContains(t, err, "67108864")
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// unreachable is a store whose second Count fails, as if the server could not be reached.
type unreachable struct{ durable.Store }

type unreachableBackend struct {
	driver.Backend
	calls *int
}

func (a unreachable) Open(ctx context.Context, c driver.Config) (driver.Backend, error) {
	b, err := a.Store.Open(ctx, c)
	return unreachableBackend{b, new(int)}, err
}

func (a unreachableBackend) Count(ctx context.Context, partition int) (driver.Counts, error) {
	if *a.calls++; *a.calls == 2 {
		return driver.Counts{}, durable.ErrUnavailable
	}
	return a.Backend.Count(ctx, partition)
}

func TestWatchContinuesAfterAnOutage(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	a := newApp(nil, &stdout, &stderr)
	a.parse = opens(unreachable{memstore.New(memstore.Options{})})
	args := []string{"delayq", "-store", "memory:", "-partitions", "1", "watch", "-n", "3", "-interval", "10ms"}
	require.NoError(t, a.run(t.Context(), args))
	assert.Equal(t, 2, strings.Count(stdout.String(), "scheduled"))
	assert.Equal(t, 1, strings.Count(stderr.String(), "cannot be reached"), stderr.String())
}

func TestFailedReplayPrintsNoResult(t *testing.T) {
	t.Parallel()
	var stdout bytes.Buffer
	a := newApp(nil, &stdout, io.Discard)
	store := memstore.New(memstore.Options{})
	_, err := durable.Open(t.Context(), store, durable.Options{Partitions: 2})
	require.NoError(t, err)
	a.parse = opens(unreachable{store})
	err = a.run(t.Context(), []string{"delayq", "-store", "memory:", "dead", "replay", "-all"})
	require.ErrorIs(t, err, durable.ErrUnavailable)
	assert.Empty(t, stdout.String())
}
