package impl

import (
	"sync/atomic"
	"time"

	"github.com/zeromicro/go-zero/core/collection"
)

// GoZero is the timing wheel of go-zero: one wheel that counts rounds, and one goroutine that is asked
// through channels. Its timers have keys, which the adapter numbers.
var GoZero = Implementation[uint64]{
	Traits: Traits{
		Name: "gozero", Title: "go-zero collection.TimingWheel", Module: "github.com/zeromicro/go-zero",
		Tick: time.Millisecond, Stop: Silent, Reset: Silent,
		Note: "tick 1 ms and 60,000 slots, as it leaves both to the caller; the callbacks of a tick run one after another",
	},
	Open: func(Config) (Timers[uint64], error) {
		const slots = 60_000 // a minute
		tw, err := collection.NewTimingWheel(time.Millisecond, slots, func(_, f any) { f.(func())() })
		return &goZero{tw: tw}, err
	},
}

type goZero struct {
	tw   *collection.TimingWheel
	last atomic.Uint64
}

// After leaves the error aside: there is one after Close only.
func (g *goZero) After(d time.Duration, _ uint64, f func()) uint64 {
	key := g.last.Add(1)
	_ = g.tw.SetTimer(key, f, max(d, 1))
	return key
}

func (g *goZero) Stop(key uint64) bool {
	_ = g.tw.RemoveTimer(key)
	return false
}

func (g *goZero) Reset(key uint64, d time.Duration) bool {
	_ = g.tw.MoveTimer(key, max(d, 1))
	return false
}

func (g *goZero) Close() { g.tw.Stop() }
