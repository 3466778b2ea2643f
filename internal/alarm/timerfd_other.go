//go:build !linux

package alarm

import "time"

// Group is the alarms of one wheel.
type Group struct{}

func NewGroup(func() int64) *Group { return nil }

func (*Group) add(*Alarm)     {}
func (*Group) closeIfUnused() {}

func (*Group) set(_ *Alarm, at, now int64) time.Duration { return time.Duration(at - now) }
