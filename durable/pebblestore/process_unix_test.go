//go:build unix

package pebblestore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

// A process is stopped in the middle of its commits. Other processes notice, and nothing is lost.
func TestStoppedProcessContinues(t *testing.T) {
	t.Parallel()
	k := killer{dir: socketDir(t), reported: make(map[string]string), tokens: make(map[string]uint64)}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := child(ctx, "serve", k.dir, "0")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := make(chan string, 1<<20)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	work := func() {
		for range 50 {
			k.record(t, <-lines)
		}
	}
	work()
	r, err := Connect(k.dir)
	require.NoError(t, err)
	defer r.Close()
	q, err := r.Open(t.Context(), faultConfig)
	require.NoError(t, err)
	queue, err := durable.Open(t.Context(), r, durable.Options{Queue: faultConfig.Queue, RetryFor: time.Second})
	require.NoError(t, err)
	defer queue.Close()
	require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
	var status syscall.WaitStatus
	for err = syscall.EINTR; err == syscall.EINTR; { // its threads stop one after another
		_, err = syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
	}
	require.NoError(t, err)
	require.True(t, status.Stopped())
	stopped := time.Now()
	_, err = queue.Enqueue(t.Context(), durable.Message{ID: "a-later"})
	require.ErrorIs(t, err, durable.ErrUnavailable)
	assert.Less(t, time.Since(stopped), 20*time.Second, "RetryFor, and not 30 seconds")
	short, end := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer end()
	_, err = q.Put(short, driver.Put{Items: []driver.PutItem{{ID: "a-late"}}})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = Open(k.dir, faultOptions(nil))
	require.ErrorIs(t, err, driver.ErrLocked)
	require.ErrorContains(t, err, fmt.Sprintf("process %d (", cmd.Process.Pid))
	require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
	work()
	_, err = q.Get(t.Context(), 0, "a-late")
	require.ErrorIs(t, err, driver.ErrNotFound, "its caller has given up")
	_, err = q.Get(t.Context(), contract.PartitionOf("a-later", q.Config().Partitions), "a-later")
	require.ErrorIs(t, err, driver.ErrNotFound, "its caller has given up")
	require.NoError(t, cmd.Process.Kill())
	for line := range lines {
		k.record(t, line)
	}
	require.Error(t, cmd.Wait())
	k.check(t)
}

// A process may open only few files. Open says so, and does not say that the directory is damaged.
func TestOpenWithoutDescriptorsSaysSo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, withMessages(t, dir, faultOptions(nil), "a", "b").Close())
	out, err := child(t.Context(), "descriptors", dir, "").Output()
	require.NoError(t, err, string(out))
	assert.Contains(t, string(out), "too many open files")
	requireIDs(t, dir, "a", "b")
}

func init() { childDescriptors = openWithFewDescriptors }

// openWithFewDescriptors opens a directory with more and more descriptors, until that succeeds.
func openWithFewDescriptors(dir string) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	for limit.Cur = 4; limit.Cur < 100; limit.Cur++ {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			return err
		}
		s, err := Open(dir, faultOptions(nil))
		if err == nil {
			return s.Close()
		}
		fmt.Println(limit.Cur, err)
		if !errors.Is(err, driver.ErrUnavailable) {
			return fmt.Errorf("with %d descriptors: %w", limit.Cur, err)
		}
	}
	return nil
}
