package timingwheel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"reflect"
	"runtime"
	"time"

	"github.com/timingwheel-go/timingwheel/internal/clock"
	"github.com/timingwheel-go/timingwheel/internal/watch"
)

// Accepted ranges and defaults. The default size and levels are measured: docs/experiments.md.
const (
	minTick      = time.Microsecond
	maxTick      = time.Hour
	minWheelSize = 2
	maxWheelSize = 1 << 16
	maxShards    = 1024

	maxProfileRate = 1 << 30

	defaultTick      = time.Millisecond
	defaultWheelSize = 256
	defaultLevels    = 4
	defaultSlow      = 100 * time.Millisecond
)

// Options configures a wheel. The zero value is ready to use, and a default never makes a field
// that was set invalid.
type Options struct {
	// Tick is the granularity: deadlines are rounded up to a multiple of it, so a callback starts
	// up to one tick after its deadline. From 1µs to 1h. Defaults to 1ms.
	Tick time.Duration

	// WheelSize is the number of slots of each wheel, a power of two from 2 to 65536. Defaults to
	// 256.
	WheelSize int

	// Levels is the number of wheels, from 1 to 16. A timer beyond the last wheel waits there for
	// several rounds. A wheel is made when it is first needed; those that the range of
	// time.Duration cannot reach never are. Defaults to 4, which with the default tick and size
	// spans 49 days.
	Levels int

	// Shards is the number of independent wheels that share the timers, each with its locks and its
	// driver, from 1 to 1024. The default depends on GOMAXPROCS: 1 on one processor, four for each
	// processor up to 15 processors, 64 from 16 processors on, and one for each processor beyond
	// 64, up to 1024. In Manual mode it defaults to 1.
	Shards int

	// Executor decides where callbacks run. Defaults to goroutines that the wheel reuses: a
	// callback that blocks delays no other timer. In Manual mode it defaults to Inline.
	Executor Executor

	// OnPanic is called with the value and the stack of a callback's panic, on the goroutine of the
	// callback, which then counts as finished. Defaults to nil: the panic crashes the program, as
	// it does with time.AfterFunc; in Manual mode with Inline it unwinds to the caller of Advance.
	OnPanic func(value any, stack []byte)

	// OnSlow is called for callbacks that take SlowAfter or longer; see [SlowCallback]. Defaults to
	// nil: slow callbacks are not reported.
	OnSlow func(SlowCallback)

	// SlowAfter is the time after which a callback, or a batch of [Timeouts], is slow. If it is
	// set without OnSlow, slow callbacks are counted in [Stats] and not reported. Defaults to 100ms
	// with OnSlow and to no measurement without it. A measurement reads the clock twice for each
	// callback, in Manual mode as well.
	SlowAfter time.Duration

	// Name identifies the wheel if a program has several: in [Stats], in a [SlowCallback] and in
	// profiles. Defaults to no name.
	Name string

	// ProfileLabels sets labels of runtime/pprof while a callback runs, so that a CPU profile tells
	// which timers use the processor: "timingwheel", the Name, and "callback", its function.
	// Goroutines that the callback starts inherit them. Defaults to false.
	ProfileLabels bool

	// ProfileRate samples one of this many timers, at random, for [TimingWheel.WriteProfile]. 512
	// costs 2% of an arm and stop. Up to 2^30. Defaults to 0: no profile, at no cost.
	ProfileRate int

	// ProfileContext has the labels that ProfileLabels adds to. A goroutine that is not the
	// wheel's, such as the caller of Advance, also has these labels after a callback, because the
	// labels that it had before cannot be read. Nothing else of the context is used. Defaults to
	// one without labels.
	ProfileContext context.Context

	// Manual makes a wheel without goroutines, alarms and clock readings. The caller drives its
	// clock with Advance.
	Manual bool

	// Start is the first reading of the clock of a Manual wheel. Defaults to the time of New.
	Start time.Time
}

// Executor decides where callbacks run.
//
// Go is called without a lock on the driver's goroutine, once for each callback that is due (for
// each batch with [Timeouts]). In Manual mode it is called on the goroutine of Advance or Flush. Go
// must not block for long. It must call f exactly once, now or later, on any goroutine. f claims a
// callback that is due and runs it. Until then the timer is pending and can be stopped. If nothing
// is due any more, f does nothing. Calls of Go may still be under way when the wheel's Stop
// returns, but not once Shutdown has returned nil.
//
// *sync.WaitGroup satisfies the interface as it is. The method of most pools has another name or a
// result: see [ExecutorFunc].
type Executor interface{ Go(f func()) }

// ExecutorFunc is an Executor by a function, such as the method of a pool:
//
//	Executor: timingwheel.ExecutorFunc(func(f func()) { pool.Submit(f) })
type ExecutorFunc func(f func())

// Go calls e.
func (e ExecutorFunc) Go(f func()) { e(f) }

// Inline runs callbacks on the driver's goroutine, one after the other in each shard. It is meant
// for tiny callbacks that never block. A callback that blocks delays all other timers of its shard.
var Inline Executor = inline{}

// Goroutines starts a new goroutine for each callback, as time.AfterFunc does.
var Goroutines Executor = goroutines{}

type inline struct{}

func (inline) Go(f func()) { f() }

type goroutines struct{}

func (goroutines) Go(f func()) { go f() }

// SlowCallback is a callback, or a batch of [Timeouts], that takes [Options.SlowAfter] or longer.
//
// Options.OnSlow is called up to twice. The first call reports a callback that still runs, with
// Running set, so a callback that never returns is seen as well. It comes from one goroutine of the
// wheel, which reports the callbacks that it has found one after the other: an OnSlow that blocks
// there delays the other reports. It comes late by up to an eighth of SlowAfter, or up to a
// millisecond if that is more. Manual mode has no goroutines and leaves it out. The second call
// comes from the callback's own goroutine when the callback has returned, panicked or called
// runtime.Goexit, with the whole time that it took. If the callback returns while it is being
// reported, the two calls may overlap or come in the other order.
//
// OnSlow is called without a lock, may be called by several goroutines at once, and may call
// everything. The callback counts as running until the second call returns; Shutdown waits for both
// calls. A panic in OnSlow is not recovered. OnSlow is called after Stop as well, for callbacks
// that still run. It is not called after Shutdown has returned nil.
type SlowCallback struct {
	Wheel    string        // Options.Name
	Func     string        // the function as in stack traces; with Timeouts the expire function
	File     string        // where the function begins; "<autogenerated>" for the method of a value
	Line     int           // in the file
	Took     time.Duration // by the machine's clock, also in Manual mode; if Running is set, so far
	Running  bool          // the callback has not returned yet
	Payloads int           // size of the batch; 1 for a callback
}

// LogValue implements [slog.LogValuer]. It returns a group.
func (c SlowCallback) LogValue() slog.Value {
	attrs := make([]slog.Attr, 0, 6)
	if c.Wheel != "" {
		attrs = append(attrs, slog.String("wheel", c.Wheel))
	}
	attrs = append(attrs,
		slog.String("func", c.Func),
		slog.Any("source", &slog.Source{Function: c.Func, File: c.File, Line: c.Line}),
		slog.Duration("took", c.Took),
		slog.Bool("running", c.Running),
		slog.Int("payloads", c.Payloads),
	)
	return slog.GroupValue(attrs...)
}

// describe fills in what is known about the function at pc.
func (c SlowCallback) describe(pc uintptr) SlowCallback {
	c.Func = watch.FuncName(pc)
	if f := runtime.FuncForPC(pc); f != nil {
		c.File, c.Line = f.FileLine(pc)
	}
	return c
}

// config is what the engine takes from Options.
type config struct {
	clock.Timeline
	geometry
	ticks   clock.Ticks
	perCall int  // payloads of one call
	procs   int  // processors
	pooled  bool // the default executor
	scanned bool // payloads hold pointers, so they are cleared

	profileRate int // one of this many timers is sampled; 0: none
}

// validate returns the options with defaults filled in, or an error that names the first bad field.
func (o Options) validate() (Options, error) {
	if o.Tick == 0 {
		o.Tick = defaultTick
	}
	if o.WheelSize == 0 {
		o.WheelSize = defaultWheelSize
	}
	if o.Levels == 0 {
		o.Levels = defaultLevels
	}
	if o.Shards == 0 {
		o.Shards = defaultShards(o.Manual)
	}
	if o.Manual && o.Executor == nil {
		o.Executor = Inline
	}
	if o.OnSlow != nil && o.SlowAfter == 0 {
		o.SlowAfter = defaultSlow
	}
	switch {
	case o.Tick < minTick || o.Tick > maxTick:
		return o, badOption("Tick", o.Tick, "from 1µs to 1h, or 0 for 1ms")
	case o.WheelSize < minWheelSize || o.WheelSize > maxWheelSize || o.WheelSize&(o.WheelSize-1) != 0:
		return o, badOption("WheelSize", o.WheelSize, "a power of two from 2 to 65536, or 0 for the default")
	case o.Levels < 1 || o.Levels > maxLevels:
		return o, badOption("Levels", o.Levels, "from 1 to 16, or 0 for the default")
	case o.Shards < 1 || o.Shards > maxShards:
		return o, badOption("Shards", o.Shards, "from 1 to 1024, or 0 for the default")
	case o.SlowAfter < 0:
		return o, badOption("SlowAfter", o.SlowAfter, "a positive duration, or 0 for the default")
	case o.ProfileRate < 0 || o.ProfileRate > maxProfileRate:
		return o, badOption("ProfileRate", o.ProfileRate, "from 1 to 2^30, or 0 for no profile")
	case !o.Manual && !o.Start.IsZero():
		return o, badOption("Start", o.Start, "the zero time unless Manual is set")
	}
	return o, nil
}

// defaultShards makes it rare that two goroutines meet on a shard (docs/design.md). More shards
// would cost wake-ups, because each shard with due timers wakes once in a tick.
func defaultShards(manual bool) int {
	if manual {
		return 1
	}
	switch procs := runtime.GOMAXPROCS(0); {
	case procs == 1:
		return 1
	case procs < 16:
		return 4 * procs
	default:
		return min(max(procs, 64), maxShards)
	}
}

// ErrOption is wrapped by every error that [New] and [NewTimeouts] return.
var ErrOption = errors.New("timingwheel: bad option")

func badOption(field string, value any, accepted string) error {
	return fmt.Errorf("%w: Options.%s is %v; accepted is %s", ErrOption, field, value, accepted)
}

// config derives the engine's settings from valid options.
func (o Options) config() config {
	w := uint(bits.TrailingZeros(uint(o.WheelSize)))
	reach := int(63+w-1) / int(w) // this many levels span the whole range of an int64 of ticks
	c := config{
		ticks:    clock.NewTicks(int64(o.Tick)),
		geometry: geometry{size: int64(o.WheelSize), bits: w, last: min(o.Levels, reach) - 1},
		procs:    runtime.GOMAXPROCS(0),
		pooled:   o.Executor == nil,

		profileRate: o.ProfileRate,
	}
	if !o.Manual {
		c.cascadeTicks, c.cascadeTimers = int64(cascadeCost), int64(o.Tick)
	}
	return c
}

// cascadeCost is twice an upper bound of the time to move one timer to a finer level, because a
// bucket may double before it is looked at again.
const cascadeCost = 256 * time.Nanosecond

// ownGoroutines reports whether callbacks run on goroutines of the wheel.
func (o Options) ownGoroutines() bool {
	return !o.Manual && (o.Executor == nil || o.Executor == Inline)
}

// holdsPointers reports whether values of type t are of interest to the garbage collector.
func holdsPointers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return t.Len() > 0 && holdsPointers(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if holdsPointers(t.Field(i).Type) {
				return true
			}
		}
		return false
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr,
		reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return false
	default:
		return true
	}
}
