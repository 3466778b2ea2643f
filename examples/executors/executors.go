// Package executors adapts well-known pools to run the callbacks of a wheel. A program can copy the
// one or two lines of each function into its options. docs/operating.md has a table of them.
//
// Close a pool after the wheel's Shutdown has returned nil. From then on the wheel makes no calls,
// and calls that the pool has not begun do nothing.
package executors

import (
	"github.com/alitto/pond/v2"
	"github.com/gammazero/workerpool"
	"github.com/panjf2000/ants/v2"
	"github.com/sourcegraph/conc/pool"
	"github.com/timingwheel-go/timingwheel"
	"golang.org/x/sync/errgroup"
)

// Ants uses a pool of ants. If the pool is full, Submit blocks, and with it the driver of the
// wheel. With the option WithNonblocking Submit fails instead, and the callback runs on its own
// goroutine. Without that goroutine the callback would never run.
func Ants(pool *ants.Pool) timingwheel.Executor {
	return timingwheel.ExecutorFunc(func(f func()) {
		if pool.Submit(f) != nil {
			go f()
		}
	})
}

// Pond uses a pool of pond. Go never blocks, because the queue of the pool is unbounded. With the
// option WithQueueSize Go blocks while the queue is full, and with WithNonBlocking too it fails
// instead.
func Pond(pool pond.Pool) timingwheel.Executor {
	return timingwheel.ExecutorFunc(func(f func()) {
		if pool.Go(f) != nil {
			go f()
		}
	})
}

// Errgroup uses a group of goroutines. Go blocks only if SetLimit has set a limit.
func Errgroup(g *errgroup.Group) timingwheel.Executor {
	return timingwheel.ExecutorFunc(func(f func()) {
		g.Go(func() error { f(); return nil })
	})
}

// Workerpool uses a pool of workerpool. Submit never blocks. It panics after the pool is stopped.
func Workerpool(wp *workerpool.WorkerPool) timingwheel.Executor {
	return timingwheel.ExecutorFunc(wp.Submit)
}

// Conc uses a pool of conc, which is already an Executor. With WithMaxGoroutines Go blocks while
// all goroutines are busy.
func Conc(p *pool.Pool) timingwheel.Executor { return p }
