//go:build !unix

package main

import "time"

// processorTime is not to be had here: rounds that need it show no figure.
func processorTime() time.Duration { return 0 }
