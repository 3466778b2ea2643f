//go:build !unix

package keyed

import "time"

var processStart = time.Now()

// processorTime returns the elapsed time, because the CPU time is not available.
func processorTime() time.Duration { return time.Since(processStart) }
