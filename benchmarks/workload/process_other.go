//go:build !unix

package workload

import "time"

// Without getrusage, figures that need it are left out.
func contextSwitches() (int64, bool)       { return 0, false }
func processorTime() (time.Duration, bool) { return 0, false }
