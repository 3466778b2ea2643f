//go:build unix

package main

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// raiseFileLimit raises the limit of open files to need if it is lower, and returns the limit that
// it reached. Only a privileged process can exceed the hard limit.
func raiseFileLimit(need uint64) (uint64, error) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, err
	}
	if uint64(l.Cur) >= need {
		return uint64(l.Cur), nil
	}
	raised := l
	setLimit(&raised.Cur, need)
	if uint64(raised.Max) < need {
		setLimit(&raised.Max, need)
	}
	if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &raised) != nil {
		raised = l
		setLimit(&raised.Cur, min(need, uint64(l.Max)))
		if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &raised) != nil {
			return uint64(l.Cur), nil
		}
	}
	return uint64(raised.Cur), nil
}

// setLimit sets a field of [syscall.Rlimit], which is signed on some systems.
func setLimit[T int64 | uint64](to *T, n uint64) { *to = T(n) }

// readAvailable reads what the kernel has received for a connection. It does not wait for more: it
// returns 0 and no error if there is nothing, and io.EOF if the client has closed. Only the
// goroutine that reads from the connection may call it, and only while the read deadline is not in
// the past, because package net would return without asking the kernel.
func readAvailable(_ net.Conn, raw syscall.RawConn, buf []byte) (n int, err error) {
	rawErr := raw.Read(func(fd uintptr) bool {
		for {
			n, err = syscall.Read(int(fd), buf)
			if !errors.Is(err, syscall.EINTR) {
				return true // false would wait until the connection is readable
			}
		}
	})
	switch {
	case rawErr != nil:
		return 0, rawErr
	case errors.Is(err, syscall.EAGAIN):
		return 0, nil
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}
