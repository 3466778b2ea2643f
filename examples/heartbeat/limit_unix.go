//go:build unix

package main

import "syscall"

// raiseFiles raises the number of files this process may open towards need, and returns what it
// got. Beyond the hard limit only a privileged process gets more.
func raiseFiles(need uint64) (uint64, error) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, err
	}
	if uint64(l.Cur) >= need {
		return uint64(l.Cur), nil
	}
	more := l
	setLimit(&more.Cur, need)
	if uint64(more.Max) < need {
		setLimit(&more.Max, need)
	}
	if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &more) != nil {
		more = l
		setLimit(&more.Cur, min(need, uint64(l.Max)))
		if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &more) != nil {
			return uint64(l.Cur), nil
		}
	}
	return uint64(more.Cur), nil
}

// setLimit exists since the fields of [syscall.Rlimit] are signed on some systems.
func setLimit[T int64 | uint64](to *T, n uint64) { *to = T(n) }
