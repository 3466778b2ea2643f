//go:build !unix

package timingwheel

import (
	"testing"
	"time"
)

// Without getrusage the metrics that need it read 0, and without mmap BenchmarkGC scans the handles
// of std.
func contextSwitches() int64       { return 0 }
func processorTime() time.Duration { return 0 }

func unscanned(_ *testing.B, n int) []*time.Timer { return make([]*time.Timer, n) }
