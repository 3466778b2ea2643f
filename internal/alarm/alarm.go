// Package alarm wakes a wheel when its first timer is due.
//
// An alarm is a timer of the runtime. Linux's poller waits whole milliseconds, so a timer of the
// runtime goes off up to a millisecond late even on an idle machine. On Linux, an alarm that is
// near also uses a timer descriptor (timerfd), which goes off within a tenth of a millisecond.
package alarm

import (
	"sync/atomic" // its 64-bit types are aligned on 32-bit platforms
	"time"
)

// Alarm calls a function when the clock has reached a certain reading. Concurrent calls to its
// methods are not allowed.
type Alarm struct {
	group *Group
	ring  func()
	timer *time.Timer
	owner *atomic.Pointer[Alarm] // nil while timer is stopped: the runtime may keep the timer
	near  atomic.Int64           // the reading for the descriptor, or none
}

// none is a reading that the clock never reaches.
const none = 1<<63 - 1

// Init initializes an alarm. No alarm of the group may have been set before.
//
// The alarm calls ring on a goroutine of its own. It may ring early, and then has to be set again:
// a distant alarm rings once when it has come near. It may still ring for a time for which it is no
// longer set.
func (a *Alarm) Init(g *Group, ring func()) {
	a.group, a.ring = g, ring
	a.near.Store(none)
	g.add(a)
}

// Set sets the alarm to a reading of the clock. now is the current reading.
func (a *Alarm) Set(at, now int64) {
	d := a.group.set(a, at, now)
	if a.timer == nil {
		owner := new(atomic.Pointer[Alarm])
		a.owner = owner
		a.timer = time.AfterFunc(none, func() {
			if a := owner.Load(); a != nil {
				a.ring()
			}
		})
	}
	a.owner.Store(a)
	a.timer.Reset(d)
}

func (a *Alarm) Off() {
	if a.timer != nil {
		a.timer.Stop()
		a.owner.Store(nil)
	}
	a.near.Store(none)
}

// Close turns the alarm off. Once all alarms of the group are closed, the group has no goroutine
// and no descriptor.
func (a *Alarm) Close() {
	a.Off()
	a.group.closeIfUnused()
}
