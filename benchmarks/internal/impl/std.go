package impl

import "time"

// Std is time.AfterFunc.
var Std = Implementation[*time.Timer]{
	Traits: Traits{
		Name: "std", Title: "time.AfterFunc",
		Stop: Exact, Reset: Exact,
		Note: "timer heaps of the runtime, one for each processor",
	},
	Open: func(Config) (Timers[*time.Timer], error) { return std{}, nil },
}

type std struct{}

func (std) After(d time.Duration, _ uint64, f func()) *time.Timer { return time.AfterFunc(d, f) }
func (std) Stop(t *time.Timer) bool                               { return t.Stop() }
func (std) Reset(t *time.Timer, d time.Duration) bool             { return t.Reset(d) }
func (std) Close()                                                {}
