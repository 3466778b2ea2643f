// Package survey describes where the pending timers of a wheel are, for packages that draw wheels.
package survey

import (
	"slices"
	"time"
)

// Limits of a Wheel.
const (
	maxCells = 512 // cells of a level; the slots of a larger wheel share them
	maxNext  = 16  // expirations in Next
)

// Take surveys a wheel: a *timingwheel.TimingWheel, a *timingwheel.Timeouts, a set of package
// keyed, or a struct that embeds one of the first two. It returns the zero Wheel for other types.
// It holds each lock of the wheel for a quantum of buckets at a time, and is O(buckets). The init
// function of package timingwheel sets the variable.
var Take func(wheel any) Wheel

// Wheel is the distribution of the pending timers over the levels and slots of a wheel. Pending is
// the sum of Due, Moving, Unseen and the Timers of all levels.
type Wheel struct {
	Now       time.Time     // time of the survey on the wheel's clock
	Tick      time.Duration // interval of a slot of the finest level
	WheelSize int           // slots of each level
	Shards    int           // shards of the wheel, whose timers are added up
	Stopped   bool          // the wheel was stopped, and nothing is pending

	Pending int          // pending timers
	Due     int          // timers that are due and have not been claimed
	Moving  int          // timers that have left a slot and are being moved to a finer level
	Unseen  int          // timers that moved during the survey
	Levels  []Level      // the finest level first; levels without timers included
	Next    []Expiration // the earliest expirations, at most 16, in order of time
}

// Level is one level of a wheel, over all shards.
type Level struct {
	Interval time.Duration // interval of a slot; the largest Duration if the interval is longer
	Hand     int           // slot of the current interval, from 0 to WheelSize-1
	Timers   int           // pending timers of the level, which is the sum of Cells
	Later    int           // those of Timers in slots with nothing due in this round; only on the last level
	Cells    []int         // timers by slot, from Hand on; a cell has several slots if WheelSize > 512
}

// NewLevel returns a level without timers.
func NewLevel(interval time.Duration, size, hand int) Level {
	return Level{Interval: interval, Hand: hand, Cells: make([]int, min(size, maxCells))}
}

// Add adds n timers to a slot. ahead is the distance of the slot from the hand in a wheel of the
// given size. It is size or more for a slot of a later round.
func (l *Level) Add(ahead, size int64, n int) {
	if ahead >= size {
		l.Later += n
		ahead &= size - 1
	}
	l.Cells[ahead*int64(len(l.Cells))/size] += n
	l.Timers += n
}

// Expiration describes the buckets of one level that expire at one time. Timers of level 0 are due
// then. Timers of other levels move to a finer level.
type Expiration struct {
	At     time.Time // on the wheel's clock
	Level  int       // 0 is the finest level
	Timers int       // pending timers of the buckets
}

// AddNext adds an expiration to Next if it is one of the earliest.
func (w *Wheel) AddNext(x Expiration) {
	k, found := slices.BinarySearchFunc(w.Next, x, func(a, b Expiration) int {
		if c := a.At.Compare(b.At); c != 0 {
			return c
		}
		return a.Level - b.Level
	})
	switch {
	case found:
		w.Next[k].Timers += x.Timers
	case k < maxNext:
		w.Next = slices.Insert(w.Next, k, x)
		w.Next = w.Next[:min(len(w.Next), maxNext)]
	}
}
