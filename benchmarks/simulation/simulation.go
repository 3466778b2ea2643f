// Package simulation plays a trace of connections on the timing wheel in Manual mode, in virtual time, and
// measures what a choice of options costs: memory, moves between wheels, wake-ups and processor time.
//
// Each connection has an idle timer. A beat resets it, closing stops it, and where a connection falls silent it
// fires. The clock is driven by Next and Advance, as an event loop would, so each Advance that Next asks for is
// one wake-up of the alarm that a running wheel has. It is checked that exactly those that fell silent expire,
// once each, never early and less than a tick late.
package simulation

import (
	"context"
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/benchmarks/trace"
)

// Choice is options of a wheel. Levels 0 stands for the default. Of shards each is driven by a clock of its own
// here, as each has its own alarm in a running wheel.
type Choice struct {
	Tick      time.Duration
	WheelSize int
	Levels    int
	Shards    int
}

// Span is the time that all levels reach, beyond which timers wait in rounds.
func (c Choice) Span() time.Duration {
	span := c.Tick
	for range c.Levels {
		if span > 1<<62/time.Duration(c.WheelSize) {
			return 1<<63 - 1
		}
		span *= time.Duration(c.WheelSize)
	}
	return span
}

func (c Choice) String() string {
	return fmt.Sprintf("%v/%d/%d/%d", c.Tick, c.WheelSize, c.Levels, c.Shards)
}

// Result is what was measured.
type Result struct {
	Choice Choice
	Counts trace.Counts
	For    time.Duration // virtual

	Peak    int     // the most pending timers
	Bytes   uint64  // the most memory
	PerPeak float64 // bytes for each pending timer at the peak, without the 8 that only Manual mode needs
	Moved   uint64  // moves to a finer wheel
	Wakeups int     // times that the clock was moved because Next said so
	Idle    int     // of these: nothing expired, timers were moved at most

	Advance time.Duration // processor time of these Advances
	Events  time.Duration // processor time of the events, the trace itself included

	Verdict Verdict
}

// Run plays the trace on a wheel of the choice. tell is called after each virtual second with the share that is
// done. Where ctx ends first, its error is returned.
func Run(ctx context.Context, cfg trace.Config, timeout time.Duration, choice Choice, tell func(share float64)) (Result, error) {
	r := &run{
		trace: trace.New(cfg), end: int64(cfg.For), timeout: int64(timeout), tick: int64(choice.Tick), tell: tell,
		result: Result{Choice: choice, For: cfg.For},
	}
	for range choice.Shards {
		w, err := timingwheel.NewTimeouts(timingwheel.Options{
			Manual: true, Start: epoch, Tick: choice.Tick, WheelSize: choice.WheelSize, Levels: choice.Levels,
		}, r.expire)
		if err != nil {
			return Result{}, err
		}
		defer w.Stop()
		r.shards = append(r.shards, w)
	}
	defer r.stopwatch.start()()
	if err := r.trace.Run(ctx, r); err != nil {
		return Result{}, err
	}
	return r.finish(), nil
}

// Alone plays the trace without a wheel and returns the processor time of that.
func Alone(ctx context.Context, cfg trace.Config) (time.Duration, error) {
	t := trace.New(cfg)
	var watch stopwatch
	defer watch.start()()
	err := t.Run(ctx, nobody{t})
	return watch.lap(), err
}

// nobody has no timers.
type nobody struct{ *trace.Trace }

func (nobody) Turn(int64)                      {}
func (nobody) Arrive(uint32, uint32, int64)    {}
func (nobody) Beat(uint32, int64)              {}
func (nobody) Leave(uint32, int64)             {}
func (n nobody) Silence(slot uint32, at int64) { n.Release(slot) }
