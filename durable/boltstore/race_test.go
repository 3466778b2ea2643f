//go:build race

package boltstore

func init() { underRace = true }
