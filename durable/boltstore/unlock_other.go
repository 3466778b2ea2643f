//go:build windows || plan9 || solaris || aix || android

package boltstore

import "os"

// unlock does nothing: these systems give up the lock when the file is closed.
func unlock(*os.File) {}
