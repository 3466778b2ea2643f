//go:build !windows && !plan9 && !solaris && !aix && !android

package boltstore

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
)

// A child process that was forked during the check of a file has a copy of the descriptor until it
// executes its program. The lock of the check must still end with the check.
func TestCheckReleasesItsLockDespiteAForkedChild(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "queue.db")
	require.NoError(t, openStore(t, path, Options{}).Close())
	f, err := openRecovered(path, 0, &bolt.Options{ReadOnly: true, Timeout: time.Minute})
	require.NoError(t, err)
	child, err := syscall.Dup(int(f.f.Fd()))
	require.NoError(t, err)
	defer func() { assert.NoError(t, syscall.Close(child)) }()
	require.NoError(t, f.close())
	s, err := Open(path, Options{LockTimeout: -1})
	require.NoError(t, err)
	require.NoError(t, s.Close())
}
