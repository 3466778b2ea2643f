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

// task is a job with the records of its caller and of the server.
type task struct {
	id        int
	malformed bool
	deadline  time.Duration // after its arrival; 0: none

	attempts atomic.Int32 // counted by the server
	served   atomic.Int32 // successes, counted by the server
	running  atomic.Bool
	ends     atomic.Int32 // calls to done
	result   Result       // argument of done
}

// outcome counts the jobs by their end.
type outcome struct {
	succeeded, refused, attempts, budget, cancelled int
	retries                                         int // attempts after the first
	calls, whileDown                                int
	skipped                                         int // not begun: interrupted
	waiting, goroutines                             int // largest numbers
}

// run runs the jobs without and with a budget, prints the figures and returns an error with the
// faults.
func run(ctx context.Context, cfg config, w io.Writer) error {
	faults := &fault.List{}
	t := figures.Table(w, 2, 11, "budget", "succeeded", "refused", "attempts used up", "budget used up", "cancelled", "calls", "while down", "retries", "max timers", "max goroutines")
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
		o, err := runJobs(ctx, cfg, budget, faults)
		if err != nil {
			return err
		}
		if limited {
			// Every retry takes a token from the upper half of the bucket, which was full at first
			// and is refilled by successes.
			bound := float64(cfg.size)/2 + cfg.refill*float64(o.succeeded)
			faults.Check(float64(o.retries) <= bound+1e-6, "%d retries, but the budget allows %v", o.retries, bound)
		}
		t.AppendRow(o.row(name))
	}
	t.Render()
	if ctx.Err() != nil {
		fmt.Fprintln(w, "interrupted: the check covers the run until then")
	}
	if err := faults.Err(); err != nil {
		return err
	}
	fmt.Fprintln(w, "PASS: each job has ended once, and its result matches the records of the server")
	return nil
}

// runJobs runs all jobs once.
func runJobs(ctx context.Context, cfg config, budget *Budget, faults *fault.List) (*outcome, error) {
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
	endWatch := o.watch(tw, runtime.NumGoroutine())
	o.start(ctx, cfg, tasks, tw, func(ctx context.Context, t *task, ended func()) {
		r.Do(ctx, func(ctx context.Context) error { return b.call(ctx, t) }, func(result Result) {
			t.result = result
			faults.Check(t.ends.Inc() == 1, "job %d: has ended twice", t.id)
			ended()
		})
	})
	endWatch()
	o.calls, o.whileDown = int(b.calls.Load()), int(b.whileDown.Load())
	for _, t := range tasks {
		o.check(t, cfg, faults)
	}
	faults.Check(tw.Len() == 0, "%d timers are left although all jobs have ended", tw.Len())
	return o, nil
}

// newTasks returns the jobs. Two in a hundred are malformed, and ten in a hundred have a deadline.
func newTasks(cfg config, rng *rand.Rand) []*task {
	tasks := make([]*task, cfg.jobs)
	for i := range tasks {
		tasks[i] = &task{id: i, malformed: rng.IntN(50) == 0}
		if rng.IntN(10) == 0 {
			tasks[i].deadline = time.Millisecond + time.Duration(rng.Int64N(int64(cfg.arrive/4)+1))
		}
	}
	return tasks
}

// start starts the jobs at their times of arrival, which are timers too, and returns when all have
// ended.
func (o *outcome) start(ctx context.Context, cfg config, tasks []*task, tw *timingwheel.TimingWheel, do func(context.Context, *task, func())) {
	var jobs sync.WaitGroup
	arrivals := make([]timingwheel.Timer, len(tasks))
	jobs.Add(len(tasks))
	for i, t := range tasks {
		at := time.Duration(float64(cfg.arrive) * float64(i) / float64(len(tasks)))
		arrivals[i] = tw.AfterFunc(at, func() {
			ctx, cancel := ctx, func() {}
			if t.deadline > 0 {
				ctx, cancel = tw.WithTimeout(ctx, t.deadline)
			}
			do(ctx, t, func() {
				cancel()
				jobs.Done()
			})
		})
	}
	defer context.AfterFunc(ctx, func() { // Ctrl-C: running jobs end with their context
		for _, t := range arrivals {
			if t.Stop() {
				jobs.Done()
			}
		}
	})()
	jobs.Wait()
}

// check compares a job with the records of the server and counts it.
func (o *outcome) check(t *task, cfg config, faults *fault.List) {
	seen, served, err := int(t.attempts.Load()), int(t.served.Load()), t.result.Err
	if t.ends.Load() == 0 {
		o.skipped++
		faults.Check(seen == 0, "job %d: attempted, but has not ended", t.id)
		return
	}
	o.retries += max(seen-1, 0)
	faults.Check(seen == t.result.Attempts, "job %d: %d attempts, but the server counted %d", t.id, t.result.Attempts, seen)
	faults.Check(seen <= cfg.policy.Attempts, "job %d: %d attempts", t.id, seen)
	faults.Check((err == nil) == (served == 1) && served <= 1, "job %d: ended with %v, served %d times", t.id, err, served)
	switch {
	case err == nil:
		o.succeeded++
	case errors.Is(err, errMalformed):
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

// watch records the largest numbers of timers and of goroutines until the caller calls end. It
// subtracts the goroutines before the run.
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
