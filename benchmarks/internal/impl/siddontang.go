package impl

import (
	"time"

	"github.com/siddontang/go/timingwheel"
)

// Siddontang is the wheel of channels of siddontang/go. The timers of a slot share a channel that
// is closed when they are due, so each callback needs a goroutine that waits. Timers cannot be
// stopped or reset.
var Siddontang = Implementation[struct{}]{
	Traits: Traits{
		Name: "siddontang", Title: "siddontang/go timingwheel", Module: "github.com/siddontang/go",
		Tick: time.Millisecond, Population: "keeps no timers: the adapter's goroutines would be measured",
		Note: "as many slots as the longest delay needs, because it panics on a longer one; returns channels, so the adapter " +
			"starts a goroutine for each callback",
	},
	Open: func(c Config) (Timers[struct{}], error) {
		slots := int(c.Horizon/c.Tick) + 2
		return siddontang{timingwheel.NewTimingWheel(c.Tick, slots), make(chan struct{})}, nil
	},
}

type siddontang struct {
	w      *timingwheel.TimingWheel
	closed chan struct{}
}

func (s siddontang) After(d time.Duration, _ uint64, f func()) struct{} {
	due := s.w.After(max(d, 0))
	go func() {
		select {
		case <-due:
			f()
		case <-s.closed:
		}
	}()
	return struct{}{}
}

func (siddontang) Stop(struct{}) bool                 { return false }
func (siddontang) Reset(struct{}, time.Duration) bool { return false }

func (s siddontang) Close() {
	s.w.Stop()
	close(s.closed)
}
