//go:build !unix

// Package processor measures the CPU time of the examples.
package processor

import "time"

// Time returns 0, because getrusage exists on Unix only.
func Time() time.Duration { return 0 }
