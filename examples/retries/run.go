package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"go.uber.org/atomic"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/examples/internal/fault"
	"github.com/timingwheel-go/timingwheel/examples/internal/figures"
)

// task is a job, as its caller and the server know it.
type task struct {
	id        int
	malformed bool
	patience  time.Duration // 0: unlimited

	attempts atomic.Int32 // that the server has seen
	served   atomic.Int32 // with success
	running  atomic.Bool
	ends     atomic.Int32 // how often done was called
	result   Result       // by done
}

// outcome is how many jobs have ended in which way.
type outcome struct {
	succeeded, refused, attempts, budget, cancelled int
	retries                                         int // attempts after the first
	calls, whileDown                                int
	skipped                                         int // never begun, as the run was interrupted
	waiting, goroutines                             int // at most, at the same time
}

// run does the jobs without and with a budget, prints what has happened, and returns an error if
// something was wrong.
func run(ctx context.Context, cfg config, w io.Writer) error {
	faults := &fault.List{}
	t := figures.Table(w, 2, 11, "budget", "succeeded", "refused", "gave up", "no budget", "cancelled", "calls", "while down", "retries", "timers", "goroutines")
	for _, limited := range []bool{false, true} {
		if ctx.Err() != nil {
			break
		}
		var budget *Budget
		name := "none"
		if limited {
			budget = NewBudget(cfg.size, cfg.refill)
			name = fmt.Sprintf("%d + %v", cfg.size, cfg.refill)
		}
		o, err := do(ctx, cfg, budget, faults)
		if err != nil {
			return err
		}
		if limited {
			// What is taken out above one half of the bucket was in it at first, or has been put in
			// since.
			bound := float64(cfg.size)/2 + cfg.refill*float64(o.succeeded)
			faults.Check(float64(o.retries) <= bound+1e-6, "%d retries with a budget for %v", o.retries, bound)
		}
		t.AppendRow(o.row(name))
	}
	t.Render()
	if ctx.Err() != nil {
		fmt.Fprintln(w, "interrupted: what had happened by then is judged")
	}
	if err := faults.Err(); err != nil {
		return err
	}
	fmt.Fprintln(w, "RIGHT: each job has ended once, and as the server has seen it")
	return nil
}

// do does the jobs once.
func do(ctx context.Context, cfg config, budget *Budget, faults *fault.List) (*outcome, error) {
	tw, err := timingwheel.New(timingwheel.Options{})
	if err != nil {
		return nil, err
	}
	defer tw.Stop()
	r, err := NewRetrier(tw, cfg.policy, budget, newRand(cfg.seed, 1))
	if err != nil {
		return nil, err
	}
	b := &backend{tw: tw, cfg: cfg, begin: time.Now(), faults: faults, rng: newRand(cfg.seed, 2)}
	tasks := newTasks(cfg, newRand(cfg.seed, 3))
	o := &outcome{}
	watched := o.watch(tw, runtime.NumGoroutine())
	o.begin(ctx, cfg, tasks, tw, func(ctx context.Context, t *task, ended func()) {
		r.Do(ctx, func(ctx context.Context) error { return b.call(ctx, t) }, func(result Result) {
			t.result = result
			faults.Check(t.ends.Inc() == 1, "job %d: has ended twice", t.id)
			ended()
		})
	})
	watched()
	o.calls, o.whileDown = int(b.calls.Load()), int(b.whileDown.Load())
	for _, t := range tasks {
		o.judge(t, cfg, faults)
	}
	faults.Check(tw.Len() == 0, "%d timers are left though all jobs have ended", tw.Len())
	return o, nil
}

// newTasks makes the jobs: of a hundred, two are malformed, and ten have a caller who does not wait
// for long.
func newTasks(cfg config, rng *rand.Rand) []*task {
	tasks := make([]*task, cfg.jobs)
	for i := range tasks {
		tasks[i] = &task{id: i, malformed: rng.IntN(50) == 0}
		if rng.IntN(10) == 0 {
			tasks[i].patience = time.Millisecond + time.Duration(rng.Int64N(int64(cfg.arrive/4)+1))
		}
	}
	return tasks
}

// begin begins the jobs, one after the other, and returns when all have ended. That a job arrives
// is a timer as well.
func (o *outcome) begin(ctx context.Context, cfg config, tasks []*task, tw *timingwheel.TimingWheel, do func(context.Context, *task, func())) {
	var jobs sync.WaitGroup
	arrivals := make([]timingwheel.Timer, len(tasks))
	jobs.Add(len(tasks))
	for i, t := range tasks {
		at := time.Duration(float64(cfg.arrive) * float64(i) / float64(len(tasks)))
		arrivals[i] = tw.AfterFunc(at, func() {
			ctx, cancel := ctx, func() {}
			if t.patience > 0 {
				ctx, cancel = tw.WithTimeout(ctx, t.patience)
			}
			do(ctx, t, func() {
				cancel()
				jobs.Done()
			})
		})
	}
	defer context.AfterFunc(ctx, func() { // Ctrl-C: jobs that have begun end by their context
		for _, t := range arrivals {
			if t.Stop() {
				jobs.Done()
			}
		}
	})()
	jobs.Wait()
}

// judge checks a job against what the server has seen of it, and counts it.
func (o *outcome) judge(t *task, cfg config, faults *fault.List) {
	seen, served, err := int(t.attempts.Load()), int(t.served.Load()), t.result.Err
	if t.ends.Load() == 0 {
		o.skipped++
		faults.Check(seen == 0, "job %d: was tried and has not ended", t.id)
		return
	}
	o.retries += max(seen-1, 0)
	faults.Check(seen == t.result.Attempts, "job %d: %d attempts, the server has seen %d", t.id, t.result.Attempts, seen)
	faults.Check(seen <= cfg.policy.Attempts, "job %d: %d attempts", t.id, seen)
	faults.Check((err == nil) == (served == 1) && served <= 1, "job %d: ended with %v, served %d times", t.id, err, served)
	switch {
	case err == nil:
		o.succeeded++
	case errors.Is(err, errRefuse):
		o.refused++
		faults.Check(t.malformed && seen == 1, "job %d: refused after %d attempts", t.id, seen)
	case errors.Is(err, ErrAttempts):
		o.attempts++
		faults.Check(seen == cfg.policy.Attempts, "job %d: gave up after %d attempts", t.id, seen)
	case errors.Is(err, ErrBudget):
		o.budget++
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		o.cancelled++
	default:
		faults.Add("job %d: ended with %v", t.id, err)
	}
}

// watch notes how many timers and goroutines there are, until the function that it returns is
// called. Goroutines that were there before do not count.
func (o *outcome) watch(tw *timingwheel.TimingWheel, before int) (end func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			o.waiting = max(o.waiting, tw.Len())
			o.goroutines = max(o.goroutines, runtime.NumGoroutine()-before)
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
	}
}

func (o *outcome) row(name string) table.Row {
	row := table.Row{name}
	for _, n := range []int{o.succeeded, o.refused, o.attempts, o.budget, o.cancelled, o.calls, o.whileDown, o.retries, o.waiting, o.goroutines} {
		row = append(row, figures.Comma(n))
	}
	return row
}
