//go:build !unix

package adopters

import "time"

// Without getrusage the metrics of processor time read 0.
func processorTime() time.Duration { return 0 }
