// Command levelsvg draws docs/levels.svg, the README's picture of the levels:
//
//	go run ./internal/levelsvg > docs/levels.svg
//
// Every number in the picture is computed from the few constants below, so that it cannot tell a
// story that the arithmetic does not.
package main

import (
	"fmt"
	"os"
)

// The wheel of the picture. It is far smaller than a real one, so that all its slots can be seen.
const (
	slots  = 8
	levels = 3
)

// The picture's moment is the tick at which the example timer has just come down to level 0.
const (
	armed    = 5   // the tick at which the example timer was armed
	deadline = 213 // its deadline
	now      = 208 // the moment of the picture
	distant  = 1237
)

// others are the deadlines of the timers in the background.
var others = []int{215, 232, 234, 391, 405, 499}

// slotTicks returns how many ticks a slot of level covers.
func slotTicks(level int) int {
	ticks := 1
	for range level {
		ticks *= slots
	}
	return ticks
}

// spanTicks returns how many ticks level covers.
func spanTicks(level int) int { return slotTicks(level) * slots }

// levelOf returns the finest level that reaches the deadline, seen from the tick at. The lap of a
// level begins at its current slot, so the distance is counted from there.
func levelOf(deadline, at int) int {
	for level := range levels {
		begin := at - at%slotTicks(level)
		if deadline < begin+spanTicks(level) {
			return level
		}
	}
	return levels - 1
}

// slotOf returns the slot of level in which the deadline lies.
func slotOf(deadline, level int) int { return deadline / slotTicks(level) % slots }

// expiration returns when the deadline's bucket in level is due: its first tick.
func expiration(deadline, level int) int { return deadline - deadline%slotTicks(level) }

func main() {
	if _, err := os.Stdout.WriteString(picture()); err != nil {
		fmt.Fprintln(os.Stderr, "levelsvg:", err)
		os.Exit(1)
	}
}
