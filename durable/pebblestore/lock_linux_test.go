package pebblestore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// errMount means that this user may not mount file systems.
var errMount = errors.New("cannot mount")

func init() { childReadOnly = openReadOnly }

// openReadOnly mounts a directory for reading only, opens a snapshot of that, and prints its
// messages. It then waits until stdin is closed. If name is "both", the process also has the
// directory itself open.
func openReadOnly(dir, name string) error {
	mounted := filepath.Join(filepath.Dir(dir), "m"+name)
	var stat syscall.Statfs_t
	err := errors.Join(os.Mkdir(mounted, 0o700), syscall.Statfs(dir, &stat), syscall.Mount(dir, mounted, "", syscall.MS_BIND, ""))
	locked := uintptr(stat.Flags) & (syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_NOEXEC)
	if err == nil {
		err = syscall.Mount("", mounted, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY|locked, "")
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errMount, err)
	}
	if name == "both" {
		if _, err := Open(dir, faultOptions(nil)); err != nil {
			return err
		}
	}
	s, err := OpenSnapshot(context.Background(), mounted, faultOptions(nil))
	if err != nil {
		fmt.Println(err)
	} else if q, err := s.Open(context.Background(), faultConfig); err != nil {
		fmt.Println(err)
	} else {
		records, _, err := q.List(context.Background(), 0, driver.StateScheduled, "", driver.MaxBatch)
		fmt.Println(len(records), "messages", err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	if s == nil {
		return nil
	}
	return s.Close()
}

// snapshotReadOnly runs openReadOnly in a process that may mount file systems, and returns what it
// prints. end ends the process.
func snapshotReadOnly(t *testing.T, dir, name string) (printed string, end func()) {
	t.Helper()
	cmd := child(t.Context(), "readonly", dir, name)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	if err := cmd.Start(); err != nil {
		t.Skipf("this user may not mount file systems: %v", err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if strings.Contains(line, errMount.Error()) {
		_ = cmd.Wait()
		t.Skipf("this user may not mount file systems: %s", line)
	}
	require.NoError(t, err)
	return line, func() {
		require.NoError(t, stdin.Close())
		assert.NoError(t, cmd.Wait())
	}
}

// Another process, or this one, has a directory open whose read-only mount is opened.
func TestSnapshotOnAReadOnlyMountRespectsTheLock(t *testing.T) {
	t.Parallel()
	dir := socketDir(t)
	ids := []string{"a", "b", "c"}
	owner := withMessages(t, dir, faultOptions(nil), ids...)
	self := fmt.Sprintf("process %d (", os.Getpid())
	printed, end := snapshotReadOnly(t, dir, "locked")
	assert.Contains(t, printed, driver.ErrLocked.Error())
	assert.Contains(t, printed, self)
	end()
	require.NoError(t, owner.Close())

	options := faultOptions(nil)
	options.Socket = true
	owner = withMessages(t, dir, options)
	printed, end = snapshotReadOnly(t, dir, "socket")
	assert.Contains(t, printed, driver.ErrLocked.Error())
	assert.Contains(t, printed, self)
	end()
	assert.Empty(t, copies(t, dir), "the owner was not asked for a copy")
	require.NoError(t, owner.Close())

	printed, end = snapshotReadOnly(t, dir, "both")
	assert.Contains(t, printed, driver.ErrLocked.Error())
	_, err := Open(dir, faultOptions(nil))
	require.ErrorIs(t, err, driver.ErrLocked, "the other process still has its lock")
	end()

	printed, end = snapshotReadOnly(t, dir, "free")
	assert.Equal(t, "3 messages <nil>\n", printed)
	requireIDs(t, dir, ids...) // the reader has no lock now
	end()
	require.NoError(t, os.Remove(filepath.Join(dir, lockName)))
	printed, end = snapshotReadOnly(t, dir, "copied")
	assert.Equal(t, "3 messages <nil>\n", printed)
	end()
}
