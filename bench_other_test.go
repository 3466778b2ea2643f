//go:build !unix

package timingwheel

import "time"

// Without getrusage the metrics that need it read 0.
func contextSwitches() int64       { return 0 }
func processorTime() time.Duration { return 0 }
