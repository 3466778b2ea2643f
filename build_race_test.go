//go:build race

package timingwheel

func init() { underRace = true }
