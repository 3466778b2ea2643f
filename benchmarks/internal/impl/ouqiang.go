package impl

import (
	"sync/atomic"
	"time"

	"github.com/ouqiang/timewheel"
)

// Ouqiang is one wheel that counts rounds: a list of timers for each slot, owned by one goroutine
// that takes requests from channels. Its timers have keys; the adapter uses consecutive numbers. It
// calls one function for all timers, with a value for each; the adapter passes the callback as this
// value.
var Ouqiang = Implementation[uint64]{
	Traits: Traits{
		Name: "ouqiang", Title: "ouqiang/timewheel", Module: "github.com/ouqiang/timewheel",
		Tick: time.Second, Seconds: true, Stop: NoResult,
		Note: "tick and delays are whole seconds; as many slots as the longest delay needs; a goroutine for each callback",
	},
	Open: func(c Config) (Timers[uint64], error) {
		slots := int(c.Horizon/time.Second) + 2
		w := timewheel.New(time.Second, slots, func(f any) { f.(func())() })
		w.Start()
		return &ouqiang{w: w}, nil
	},
}

type ouqiang struct {
	w    *timewheel.TimeWheel
	last atomic.Uint64
}

// After replaces a negative delay by zero: the library drops a timer with a negative delay.
func (o *ouqiang) After(d time.Duration, _ uint64, f func()) uint64 {
	key := o.last.Add(1)
	o.w.AddTimer(max(d, 0), key, f)
	return key
}

func (o *ouqiang) Stop(key uint64) bool {
	o.w.RemoveTimer(key)
	return false
}

func (o *ouqiang) Reset(uint64, time.Duration) bool { return false }
func (o *ouqiang) Close()                           { o.w.Stop() }
