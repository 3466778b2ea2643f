//go:build !unix

package bench_test

import (
	"testing"
	"time"
)

// Without getrusage, metrics that need it are 0. Without mmap, the garbage collector scans the
// handles of std in BenchmarkGC.
func contextSwitches() int64       { return 0 }
func processorTime() time.Duration { return 0 }

func unscanned(_ *testing.B, n int) []*time.Timer { return make([]*time.Timer, n) }
