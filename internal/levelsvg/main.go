// Command levelsvg draws docs/levels.svg, the README's picture of the levels:
//
//	go run ./internal/levelsvg > docs/levels.svg
//
// Every number in the picture is computed from the constants below, so the picture agrees with the
// arithmetic of the wheel.
package main

import (
	"fmt"
	"os"
)

// The size of the wheel in the picture. It is much smaller than a real wheel, so that all slots are
// visible.
const (
	slots  = 8
	levels = 3
)

// The picture shows the tick at which the example timer has just moved to level 0.
const (
	armed    = 5    // the tick at which the example timer was armed
	deadline = 213  // the deadline of the example timer
	now      = 208  // the tick of the picture
	distant  = 1237 // the deadline of a timer that waits for further rounds
)

// others has the deadlines of the timers in the background.
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

// levelOf returns the finest level whose span includes the deadline at the tick at. The span of a
// level begins at its current slot.
func levelOf(deadline, at int) int {
	for level := range levels {
		begin := at - at%slotTicks(level)
		if deadline < begin+spanTicks(level) {
			return level
		}
	}
	return levels - 1
}

// slotOf returns the slot of level that contains the deadline.
func slotOf(deadline, level int) int { return deadline / slotTicks(level) % slots }

// expiration returns the tick at which the deadline's bucket in level expires: its first tick.
func expiration(deadline, level int) int { return deadline - deadline%slotTicks(level) }

func main() {
	if _, err := os.Stdout.WriteString(picture()); err != nil {
		fmt.Fprintln(os.Stderr, "levelsvg:", err)
		os.Exit(1)
	}
}
