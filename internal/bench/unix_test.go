//go:build unix

package bench_test

import (
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// unscanned returns a slice in memory that the garbage collector does not scan. The timer heap of
// the runtime keeps the timers alive.
func unscanned(b *testing.B, n int) []*time.Timer {
	b.Helper()
	size := n * int(unsafe.Sizeof((*time.Timer)(nil)))
	mem, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = syscall.Munmap(mem) })
	return unsafe.Slice((**time.Timer)(unsafe.Pointer(&mem[0])), n)
}

// contextSwitches returns the number of voluntary context switches of the process.
func contextSwitches() int64 {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		panic(err)
	}
	return int64(ru.Nvcsw)
}

// processorTime returns the user and system time of the process.
func processorTime() time.Duration {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		panic(err)
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}
