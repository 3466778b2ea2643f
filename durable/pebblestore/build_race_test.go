//go:build race

package pebblestore

func init() { underRace = true }
