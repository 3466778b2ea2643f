package impl

import (
	"sync/atomic"
	"time"

	"github.com/zeromicro/go-zero/core/collection"
)

// GoZero is the timing wheel of go-zero: one wheel that counts rounds, owned by one goroutine that
// takes requests from channels. Its timers have keys; the adapter uses consecutive numbers.
var GoZero = Implementation[uint64]{
	Traits: Traits{
		Name: "gozero", Title: "go-zero collection.TimingWheel", Module: "github.com/zeromicro/go-zero",
		Tick: time.Millisecond, Stop: NoResult, Reset: WrongDeadline,
		Note: "tick, and slots for a minute, chosen by the adapter; runs the callbacks of a tick one after another, so the adapter starts a " +
			"goroutine for each",
	},
	Open: func(c Config) (Timers[uint64], error) {
		tw, err := collection.NewTimingWheel(c.Tick, int(time.Minute/c.Tick), func(_, f any) { go f.(func())() })
		return &goZero{tw: tw}, err
	},
}

type goZero struct {
	tw   *collection.TimingWheel
	last atomic.Uint64
}

// After ignores the error, which occurs only after Close.
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
