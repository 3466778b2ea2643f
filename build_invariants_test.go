//go:build invariants

package timingwheel

func init() { underInvariants = true }
