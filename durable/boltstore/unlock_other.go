//go:build windows || plan9 || solaris || aix || android

package boltstore

import "os"

// unlock does nothing: these systems release the lock when the file is closed.
func unlock(*os.File) {}
