//go:build !linux

package alarm

import "time"

// Group is the alarms of one wheel.
type Group struct{}

// NewGroup returns a group without alarms. read reads the clock, in nanoseconds.
func NewGroup(func() int64) *Group { return nil }

func (*Group) add(*Alarm)     {}
func (*Group) closeIfUnused() {}

// set returns the delay for the runtime's timer.
func (*Group) set(_ *Alarm, at, now int64) time.Duration { return time.Duration(at - now) }
