//go:build !unix

package adopters

import "time"

// Without getrusage the benchmarks report no processor time.
func processorTime() time.Duration { return 0 }
