package pebblestore

import (
	"errors"
	"os"
	"syscall"
)

func init() { lockForReading = lockOpenFile }

// The commands of fcntl for a lock of an open file. Unlike a lock of the process, it conflicts with
// the lock that this process may have through another open file.
const getOpenFileLock, setOpenFileLock = 36, 37

// lockOpenFile is lockForReading. If this process has the lock, the file stays open: closing it
// would release the lock.
func lockOpenFile(name string) (unlock func(), err error) {
	fd, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return func() {}, nil
	}
	closeFile := func() { _ = syscall.Close(fd) }
	lock := syscall.Flock_t{Type: syscall.F_RDLCK}
	err = syscall.FcntlFlock(uintptr(fd), setOpenFileLock, &lock)
	if !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EACCES) {
		return closeFile, nil
	}
	if syscall.FcntlFlock(uintptr(fd), getOpenFileLock, &lock) != nil || int(lock.Pid) != os.Getpid() {
		closeFile()
	}
	return nil, err
}
