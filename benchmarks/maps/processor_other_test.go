//go:build !unix

package maps

import "time"

var processStart = time.Now()

// processorTime is the time that passes, where there is nothing better.
func processorTime() time.Duration { return time.Since(processStart) }
