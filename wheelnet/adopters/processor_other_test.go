//go:build !unix

package adopters

import "time"

// processorTime returns 0, because getrusage exists on Unix only.
func processorTime() time.Duration { return 0 }
