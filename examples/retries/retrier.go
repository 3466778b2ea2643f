package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// Errors of [Result] that wrap the error of the last attempt.
var (
	ErrAttempts = errors.New("retries: attempts used up")
	ErrBudget   = errors.New("retries: budget used up")
)

// Permanent marks an error after which a retry is useless, such as a malformed request.
func Permanent(err error) error { return permanent{err} }

type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// Retrier retries jobs until they succeed. A job that waits for its next attempt is a timer and a
// few hundred bytes, not a goroutine. Create a Retrier with [NewRetrier]. All methods are safe for
// concurrent use.
type Retrier struct {
	tw     *timingwheel.TimingWheel
	policy Policy
	budget *Budget

	mu  sync.Mutex
	rng *rand.Rand
}

// NewRetrier returns a Retrier whose attempts run as callbacks of the wheel. With the default
// executor they may block without delaying other timers. A nil budget is no limit. The error names
// the invalid field of the policy.
func NewRetrier(tw *timingwheel.TimingWheel, p Policy, budget *Budget, rng *rand.Rand) (*Retrier, error) {
	if err := p.validate(); err != nil {
		return nil, err
	}
	return &Retrier{tw: tw, policy: p, budget: budget, rng: rng}, nil
}

// Result is the end of a job.
type Result struct {
	Attempts int
	Err      error // nil: the last attempt succeeded
}

// Do starts a job and returns immediately. It calls done exactly once: after an attempt that
// returned nil or a [Permanent] error, when the attempts or the budget are used up, or with the
// cause of ctx when ctx is done. If ctx is done while the job waits, done is called immediately.
// During an attempt it is called when the attempt returns, and a success of this attempt counts.
//
// After the wheel has stopped there are no further calls, so cancel the contexts first. An attempt
// that panics ends the program or is reported to OnPanic of the wheel; done is then not called.
func (r *Retrier) Do(ctx context.Context, attempt func(context.Context) error, done func(Result)) {
	j := &job{retrier: r, ctx: ctx, attempt: attempt, done: done}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.unwatch = context.AfterFunc(ctx, j.cancel)
	j.timer = r.tw.AfterFunc(0, j.run)
}

func (r *Retrier) wait(attempts int) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.policy.wait(attempts, r.rng)
}

// job is owned by its timer while it waits. The wheel passes the ownership to run, and cancel gets
// it if Stop returns true. The owner ends the job, so done is called exactly once without a flag.
type job struct {
	retrier *Retrier
	ctx     context.Context
	attempt func(context.Context) error
	done    func(Result)

	attempts int // written by the owner

	mu      sync.Mutex // guards timer and unwatch
	timer   timingwheel.Timer
	unwatch func() bool
}

// run is the callback of the timer.
func (j *job) run() {
	if err := context.Cause(j.ctx); err != nil {
		j.end(err) // cancel did not stop the timer
		return
	}
	j.attempts++
	err := j.attempt(j.ctx)
	if err == nil {
		j.success()
		return
	}
	if errors.As(err, new(permanent)) {
		j.end(err) // not a failure of the server, so it costs no budget
		return
	}
	if cause := context.Cause(j.ctx); cause != nil {
		j.end(cause) // costs no budget either
		return
	}
	retry := j.retrier.budget == nil || j.retrier.budget.failure()
	switch {
	case j.attempts >= j.retrier.policy.Attempts:
		j.end(fmt.Errorf("%w: %w", ErrAttempts, err))
	case !retry:
		j.end(fmt.Errorf("%w: %w", ErrBudget, err))
	default:
		j.sleep()
	}
}

func (j *job) success() {
	if j.retrier.budget != nil {
		j.retrier.budget.success()
	}
	j.end(nil)
}

// sleep passes the ownership to a new timer, unless ctx is done. If ctx is done later, cancel stops
// the timer.
func (j *job) sleep() {
	wait := j.retrier.wait(j.attempts)
	j.mu.Lock()
	err := context.Cause(j.ctx)
	if err == nil {
		j.timer = j.retrier.tw.AfterFunc(wait, j.run)
	}
	j.mu.Unlock()
	if err != nil {
		j.end(err)
	}
}

// cancel is called when ctx is done.
func (j *job) cancel() {
	j.mu.Lock()
	stopped := j.timer.Stop()
	j.mu.Unlock()
	if stopped {
		j.end(context.Cause(j.ctx))
	}
}

// end ends the job. Only the owner calls it.
func (j *job) end(err error) {
	j.mu.Lock()
	unwatch := j.unwatch
	j.mu.Unlock()
	unwatch() // otherwise a long-lived context would keep the job
	j.done(Result{j.attempts, err})
}
