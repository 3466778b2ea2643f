// Package survey describes where the pending timers of a wheel are, for packages that draw wheels.
package survey

import (
	"cmp"
	"slices"
	"time"
)

const MaxCells = 512 // of a level; the slots of a larger wheel share them

// Take surveys a wheel: a *timingwheel.TimingWheel, a *timingwheel.Timeouts, a set of package
// keyed, or a struct that embeds one of the first two. It returns the zero Wheel for other types.
// It holds a lock for a quantum of buckets at a time, O(buckets). Package timingwheel sets Take.
var Take func(wheel any) Wheel

// Wheel describes a wheel. Pending is the sum of Due, Moving, Unseen and the Timers of all levels.
type Wheel struct {
	Now       time.Time    // time of the survey on the wheel's clock
	WheelSize int          // slots of each level
	Stopped   bool         // the wheel was stopped, and nothing is pending
	Pending   int          // pending timers
	Due       int          // timers that are due and have not been claimed
	Moving    int          // timers that have left a slot and are being moved to a finer level
	Unseen    int          // timers that moved during the survey
	Levels    []Level      // the finest level first; levels without timers included
	Next      []Expiration // the earliest expirations, at most 16, in order of time
}

// Level is one level of a wheel, over all shards.
type Level struct {
	Interval time.Duration // interval of a slot; the largest Duration if the interval is longer
	Hand     int           // slot of the current interval, from 0 to WheelSize-1
	Timers   int           // pending timers of the level, which is the sum of Cells
	Later    int           // the part of Timers in slots with nothing due in this round; only on the last level
	Cells    []int         // timers by slot, from Hand on; a cell has several slots if WheelSize > 512
}

// Expiration is a time at which buckets of one level expire.
type Expiration struct {
	At     time.Time // on the wheel's clock
	Level  int       // 0: the timers are due at that time; else they move to a finer level
	Timers int       // pending timers of the buckets
}

// Add adds a bucket, which is ahead slots from the hand. Later rounds have WheelSize slots each.
func (w *Wheel) Add(x Expiration, ahead int64) {
	l, size := &w.Levels[x.Level], int64(w.WheelSize)
	if ahead >= size {
		l.Later += x.Timers
	}
	l.Timers += x.Timers
	l.Cells[ahead%size*int64(len(l.Cells))/size] += x.Timers
	order := func(a, b Expiration) int { return cmp.Or(a.At.Compare(b.At), a.Level-b.Level) }
	k, known := slices.BinarySearchFunc(w.Next, x, order)
	if known {
		w.Next[k].Timers += x.Timers
		return
	}
	w.Next = slices.Insert(w.Next, k, x)[:min(len(w.Next)+1, 16)]
}
