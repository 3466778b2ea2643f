//go:build race

package keyed

func init() { underRace = true }
