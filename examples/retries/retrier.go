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

// Errors with which a job may end, beside those of its attempts. They wrap the error of the last
// attempt.
var (
	ErrAttempts = errors.New("retries: attempts used up")
	ErrBudget   = errors.New("retries: budget used up")
)

// Permanent marks an error after which trying again makes no sense, such as a request that is
// malformed.
func Permanent(err error) error { return permanent{err} }

type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// Retrier tries jobs until they succeed. A job that waits for its next attempt is a timer and some
// hundred bytes, not a goroutine. Make one with [NewRetrier]; all methods may be called from any
// goroutine.
type Retrier struct {
	tw     *timingwheel.TimingWheel
	policy Policy
	budget *Budget

	mu  sync.Mutex
	rng *rand.Rand
}

// NewRetrier returns a Retrier whose attempts run where the wheel runs its callbacks: with the
// default executor they may take as long as they want, and delay no other timer. budget may be nil:
// no bound. It returns an error that names what is not accepted.
func NewRetrier(tw *timingwheel.TimingWheel, p Policy, budget *Budget, rng *rand.Rand) (*Retrier, error) {
	if err := p.validate(); err != nil {
		return nil, err
	}
	return &Retrier{tw: tw, policy: p, budget: budget, rng: rng}, nil
}

// Result is how a job has ended.
type Result struct {
	Attempts int
	Err      error // nil: the last attempt succeeded
}

// Do begins with the attempts of a job and returns at once. done is called exactly once, when an
// attempt has returned nil or a [Permanent] error, when the attempts or the budget are used up, or
// with the context's cause when it has ended: at once where the job waits, else when the attempt
// that is under way returns; what that one returns counts, if it is a success. Once the wheel is
// stopped nothing is called any more: end the contexts first. An attempt that panics ends the
// program, or goes to the wheel's OnPanic; done is not called for it.
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

// job belongs to its timer while it waits. Whoever takes the timer away has the job: the wheel does
// when it calls run, and cancel does where Stop says true. So done is called once, without a flag
// that says whether it was.
type job struct {
	retrier *Retrier
	ctx     context.Context
	attempt func(context.Context) error
	done    func(Result)

	attempts int // by whoever has the job

	mu      sync.Mutex // between cancel and those that set these
	timer   timingwheel.Timer
	unwatch func() bool
}

// run is called by the wheel.
func (j *job) run() {
	if err := context.Cause(j.ctx); err != nil {
		j.end(err) // cancel came too late to stop the timer
		return
	}
	j.attempts++
	err := j.attempt(j.ctx)
	if err == nil {
		j.success()
		return
	}
	if errors.As(err, new(permanent)) {
		j.end(err) // which is not the server's fault, and costs no budget
		return
	}
	if cause := context.Cause(j.ctx); cause != nil {
		j.end(cause) // nor is this
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

// sleep gives the job back to the timer. A context that has ended before is seen here; one that
// ends later finds the timer.
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

// cancel is called when the context has ended.
func (j *job) cancel() {
	j.mu.Lock()
	mine := j.timer.Stop()
	j.mu.Unlock()
	if mine {
		j.end(context.Cause(j.ctx))
	}
}

// end is called by whoever has the job.
func (j *job) end(err error) {
	j.mu.Lock()
	unwatch := j.unwatch
	j.mu.Unlock()
	unwatch() // else a context that lives on would keep the job
	j.done(Result{j.attempts, err})
}
