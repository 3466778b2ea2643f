package timingwheel

// Executor decides where callbacks run.
//
// Go is called without a lock on the driver's goroutine, once for each callback that is due (for each
// batch with [Timeouts]). It must not block for long and must call f exactly once, now or later, on
// any goroutine. f claims a callback and runs it; until then the timer is pending and can be stopped,
// in which case f does nothing. Calls of Go may still be under way when the wheel's Stop
// returns; none is when Shutdown has returned nil. *sync.WaitGroup and most pools satisfy the interface as they are.
type Executor interface{ Go(f func()) }

// Inline runs callbacks on the driver's goroutine, one after the other in each shard: for tiny
// callbacks that never block. A callback that blocks delays all other timers of its shard.
var Inline Executor = inline{}

// Goroutines starts a new goroutine for each callback, as time.AfterFunc does.
var Goroutines Executor = goroutines{}

type inline struct{}

func (inline) Go(f func()) { f() }

type goroutines struct{}

func (goroutines) Go(f func()) { go f() }
