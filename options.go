package timingwheel

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"time"

	"github.com/timingwheel-go/timingwheel/internal/clock"
)

// Accepted ranges and defaults. BenchmarkGeometry of internal/bench compares sizes of the wheel.
const (
	minTick       = 50 * time.Microsecond // the timers of operating systems are hardly more exact
	minManualTick = time.Microsecond
	maxTick       = time.Hour

	minWheelSize = 2
	maxWheelSize = 1 << 16
	maxShards    = 1024

	maxProfileRate = 1 << 30

	defaultTick      = time.Millisecond
	defaultWheelSize = 256
	defaultLevels    = 4
)

// Options configures a wheel. The zero value is ready to use: a zero field selects its default.
// [New] and [NewTimeouts] return an error that wraps [ErrOption] for a value out of range.
type Options struct {
	// Tick is the granularity of the wheel, from 50µs to 1h, or from 1µs if Manual is set.
	// Deadlines are rounded up to a multiple of it. A longer tick wakes the process less often.
	// Defaults to 1ms.
	Tick time.Duration

	// WheelSize is the number of slots in each level, a power of two from 2 to 65536. Defaults to
	// 256.
	WheelSize int

	// Levels is the number of levels, from 1 to 16. A slot in one level covers as much time as all
	// slots in the level below. A timer beyond the last level waits on that level for one or more
	// rounds. Levels are allocated when a timer needs them. Defaults to 4.
	Levels int

	// Shards is the number of independent parts, from 1 to 1024, over which timers are spread to
	// reduce contention. Defaults to a number that grows with GOMAXPROCS, or to 1 if Manual is set.
	Shards int

	// Name identifies the wheel in [Stats], in a [Call] and in profiles. Defaults to "".
	Name string

	// Manual makes a wheel without goroutines whose clock moves only when the caller calls
	// [TimingWheel.Advance]. It is for tests, simulations and event loops.
	Manual bool

	// Start is the first reading of a Manual wheel's clock. Defaults to the time at which New is
	// called. It must be the zero time unless Manual is set.
	Start time.Time

	// Executor determines which goroutines run callbacks. Defaults to nil: goroutines that the
	// wheel starts and reuses, or [Inline] if Manual is set.
	Executor Executor

	// OnPanic is called with the value and the stack of a panic in a callback, on the callback's
	// goroutine, with no lock held. Defaults to nil: a panic crashes the program, or in Manual mode
	// with Inline unwinds to the caller of Advance.
	OnPanic func(value any, stack []byte)

	// Around is called around each callback, or with [Timeouts] around each batch, on the goroutine
	// that runs it, with no lock held. Several goroutines may call it at the same time. Around must
	// call run exactly once, on the same goroutine, before it returns, or the wheel panics. run
	// runs the callback, and OnPanic if the callback panics. Because run may panic or call
	// runtime.Goexit, Around must defer whatever it does after run.
	//
	// A panic in Around itself is reported to OnPanic only for a plan. If Around panics or exits
	// before run, the callback is lost, and a [Ticker] does not tick again. Shutdown waits until
	// Around has returned. Package callwatch provides values for this field. Defaults to nil: the
	// callback is called directly.
	Around func(c Call, run func())

	// ProfileRate makes the wheel sample one timer in ProfileRate, at random, for
	// [TimingWheel.WriteProfile]. It must be at most 2^30. A rate of 512 adds 3% to the cost of
	// arming and stopping. Defaults to 0: no profile.
	ProfileRate int
}

// Call describes a callback, or a batch of [Timeouts], to [Options.Around].
type Call struct {
	Wheel string // Options.Name

	// Func is the code address of the function, for [runtime.FuncForPC]: the function of the timer
	// or plan, or with Timeouts the expire function. For timers that this package itself arms, such
	// as the timers behind tickers and contexts, Func is a function of this package.
	Func     uintptr
	Payloads int // size of the batch; 1 for a callback of a TimingWheel
}

// config is what the engine takes from Options.
type config struct {
	clock.Timeline
	geometry
	ticks clock.Ticks
}

// validate returns the options with their defaults, or an error that names the first bad field.
func (o Options) validate() (Options, error) {
	shortest, shards := minTick, defaultShards()
	if o.Manual {
		shortest, shards, o.Executor = minManualTick, 1, cmp.Or(o.Executor, Inline)
	}
	o.Tick = cmp.Or(o.Tick, defaultTick)
	o.WheelSize = cmp.Or(o.WheelSize, defaultWheelSize)
	o.Levels = cmp.Or(o.Levels, defaultLevels)
	o.Shards = cmp.Or(o.Shards, shards)
	f, isFunc := o.Executor.(ExecutorFunc)
	switch {
	case isFunc && f == nil:
		return o, badOption("Executor", "ExecutorFunc(nil)", "a function, or a nil Executor for the default")
	case o.Tick < shortest || o.Tick > maxTick:
		return o, badOption("Tick", o.Tick, fmt.Sprintf("from %v to 1h, or 0 for 1ms", shortest))
	case o.WheelSize < minWheelSize || o.WheelSize > maxWheelSize || o.WheelSize&(o.WheelSize-1) != 0:
		return o, badOption("WheelSize", o.WheelSize, "a power of two from 2 to 65536, or 0 for the default")
	case o.Levels < 1 || o.Levels > maxLevels:
		return o, badOption("Levels", o.Levels, "from 1 to 16, or 0 for the default")
	case o.Shards < 1 || o.Shards > maxShards:
		return o, badOption("Shards", o.Shards, "from 1 to 1024, or 0 for the default")
	case o.ProfileRate < 0 || o.ProfileRate > maxProfileRate:
		return o, badOption("ProfileRate", o.ProfileRate, "from 1 to 2^30, or 0 for no profile")
	case !o.Manual && !o.Start.IsZero():
		return o, badOption("Start", o.Start, "the zero time unless Manual is set")
	}
	return o, nil
}

// defaultShards returns a number with which two goroutines rarely use the same shard at the same
// time. More shards would cost wake-ups, because each shard with due timers wakes once per tick.
func defaultShards() int {
	procs := runtime.GOMAXPROCS(0)
	if procs == 1 {
		return 1
	}
	return min(max(min(4*procs, 64), procs), maxShards)
}

// ErrOption is wrapped by the errors that [New], [NewTimeouts] and [TimingWheel.WriteProfile]
// return for a bad option. The errors name the option, its value and the accepted range.
var ErrOption = errors.New("timingwheel: bad option")

func badOption(field string, value any, want string) error {
	return fmt.Errorf("%w: Options.%s is %v; it must be %s", ErrOption, field, value, want)
}

// config is called for valid options.
func (o Options) config() config {
	w := uint(bits.TrailingZeros(uint(o.WheelSize)))
	reach := int(63+w-1) / int(w) // this many levels span all ticks that an int64 can count
	c := config{
		ticks:    clock.NewTicks(int64(o.Tick)),
		geometry: geometry{size: int64(o.WheelSize), bits: w, last: min(o.Levels, reach) - 1},
	}
	if !o.Manual {
		c.cascadeTicks, c.cascadeTimers = int64(cascadeCost), int64(o.Tick)
	}
	return c
}

// cascadeCost is twice an upper bound of the time to move one timer to a finer level, because the
// number of timers in a bucket may double before the owner looks again.
const cascadeCost = 256 * time.Nanosecond
