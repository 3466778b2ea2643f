//go:build !unix

package process

import "time"

// CPUTime returns false: there is no getrusage.
func CPUTime() (time.Duration, bool) { return 0, false }

// ContextSwitches returns false: there is no getrusage.
func ContextSwitches() (int64, bool) { return 0, false }
