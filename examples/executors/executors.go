// Package executors lets well-known pools run the callbacks of a wheel. Each function is the one or
// two lines that a program writes into its options itself; docs/tuning.md has them in a table.
//
// A pool is closed after the wheel's Shutdown has returned nil. From then on the wheel gives it no
// calls, and calls that the pool has not begun do nothing.
package executors

import (
	"github.com/alitto/pond/v2"
	"github.com/gammazero/workerpool"
	"github.com/panjf2000/ants/v2"
	"github.com/sourcegraph/conc/pool"
	"github.com/timingwheel-go/timingwheel"
	"golang.org/x/sync/errgroup"
)

// Ants uses a pool of ants. Submit waits for a goroutine of the pool, and the wheel's driver with
// it, unless the pool has the option WithNonblocking. Then Submit fails while the pool is full, and
// the callback gets a goroutine of its own. Without this a due timer would have no call.
func Ants(pool *ants.Pool) timingwheel.Executor {
	return timingwheel.ExecutorFunc(func(f func()) {
		if pool.Submit(f) != nil {
			go f()
		}
	})
}

// Pond uses a pool of pond. Go never waits, as the queue of the pool is unbounded. With the option
// WithQueueSize it waits while the queue is full, and with WithNonBlocking as well it fails.
func Pond(pool pond.Pool) timingwheel.Executor {
	return timingwheel.ExecutorFunc(func(f func()) {
		if pool.Go(f) != nil {
			go f()
		}
	})
}

// Errgroup uses a group of goroutines. Go never waits, unless SetLimit has set a limit.
func Errgroup(g *errgroup.Group) timingwheel.Executor {
	return timingwheel.ExecutorFunc(func(f func()) {
		g.Go(func() error { f(); return nil })
	})
}

// Workerpool uses a pool of workerpool. Submit never waits. It panics after the pool is stopped.
func Workerpool(wp *workerpool.WorkerPool) timingwheel.Executor {
	return timingwheel.ExecutorFunc(wp.Submit)
}

// Conc uses a pool of conc, which is an Executor as it is. With WithMaxGoroutines Go waits for a
// goroutine of the pool.
func Conc(p *pool.Pool) timingwheel.Executor { return p }
