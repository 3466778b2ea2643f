//go:build !windows && !plan9 && !solaris && !aix && !android

package boltstore

import (
	"os"
	"syscall"
)

// unlock releases the lock of bbolt. Closing the file does not release it while the file is mapped.
func unlock(f *os.File) { _ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }
