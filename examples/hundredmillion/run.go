package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/examples/internal/figures"
)

// outcome is the result of a run.
type outcome struct {
	cfg         config
	phases      []*phase
	trial, arm  *phase // arming of the small wheel and of the large one
	interrupted bool
	took        time.Duration
	overran     time.Duration // from the first deadline until the last beat; 0: none
	refused     int64         // beats and stops after the deadline

	collection time.Duration // a full garbage collection with all timers pending
	gcTime     time.Duration // CPU time of the garbage collector
	heap, left uint64        // live heap with all timers pending, and after Shutdown
	stopTook   time.Duration
	late       []time.Duration // 50th, 99th and 99.9th percentile, maximum
	stats      timingwheel.Stats
	length     int
	expired    checksum
	peak       uint64 // largest sample of the memory of the process

	faults []string
}

// runner is the state of a run.
type runner struct {
	ctx  context.Context
	cfg  config
	show display
	gc   *gcWatch
	pop  *population
	out  *outcome
}

// run runs all phases and the final check. It returns an error if a wheel could not be created or
// shut down before the check. It returns early if ctx is done.
func run(ctx context.Context, cfg config, show display) (*outcome, error) {
	begin := time.Now()
	if cfg.seed == 0 {
		cfg.seed = uint64(begin.UnixNano())
	}
	r := &runner{ctx: ctx, cfg: cfg, show: show, gc: newGCWatch(), out: &outcome{cfg: cfg}}
	if err := r.runTrials(); err != nil {
		return nil, err
	}
	lead, window := cfg.leadTime(time.Duration(r.out.trial.nanos())), cfg.expireWindow()
	r.printPlan(lead, window)
	var err error
	if r.pop, err = newPopulation(cfg, cfg.n, newPlan(cfg, lead, window)); err != nil {
		return nil, err
	}
	r.fill()
	r.beatAndStop()
	r.wait()
	r.expire()
	r.end()
	r.out.took = time.Since(begin)
	return r.out, nil
}

func (r *runner) printPlan(lead, window time.Duration) {
	cfg := r.cfg
	r.show.say("%s, seed %d: %v%% are beaten, %v%% stopped, %v%% expire, the others are due an hour later",
		figures.Plural(cfg.n, "timer"), cfg.seed, cfg.beat, cfg.stop, cfg.expire)
	r.show.say("%s on %s; the first timer is due %v after the start, the last one to expire %v later",
		figures.Plural(cfg.workers, "goroutine"), figures.Plural(runtime.GOMAXPROCS(0), "processor"),
		lead.Round(time.Millisecond), window.Round(time.Millisecond))
}

// runTrials fills a small wheel several times, for comparison with the large one and to determine
// the time until the first deadline. It keeps the trial with the median time.
func (r *runner) runTrials() error {
	n := min(r.cfg.n, r.cfg.trialTimers)
	var trials []*phase
	for range r.cfg.trials {
		pop, err := newPopulation(r.cfg, n, newPlan(r.cfg, farAhead, farAhead))
		if err != nil {
			return err
		}
		ph := r.newPhase(fmt.Sprintf("arm %s alone", figures.Comma(n)), busy, n)
		ph.each(r.ctx, pop.shares(), pop.arm)
		r.finish(ph)
		if err := r.shutdown(pop.wheel); err != nil {
			return err
		}
		trials = append(trials, ph)
		debug.FreeOSMemory() // so that the next trial maps its memory again
	}
	slices.SortFunc(trials, func(a, b *phase) int { return int(a.nanos() - b.nanos()) })
	r.out.trial = trials[len(trials)/2]
	r.out.phases = append(r.out.phases, r.out.trial)
	return nil
}

// fill arms all timers.
func (r *runner) fill() {
	pop := r.pop
	ph := r.newPhase("arm", busy, pop.n)
	r.out.arm = ph
	ph.detail = func() string { return fmt.Sprintf("%.1f B/timer", bytesPerTimer(pop.wheel.Stats())) }
	r.runPhase(ph, func() { ph.each(r.ctx, pop.shares(), pop.arm) })
	ph.bytes = bytesPerTimer(pop.wheel.Stats())
	r.out.phases = append(r.out.phases, ph)
}

func bytesPerTimer(st timingwheel.Stats) float64 {
	return float64(st.Bytes) / float64(max(st.Pending, 1))
}

// beatAndStop beats and stops timers.
func (r *runner) beatAndStop() {
	pop := r.pop
	beats, stops := pop.handles()
	shuffle := r.newPhase("shuffle", idle, pop.workers)
	ones := slices.Repeat([]int{1}, pop.workers)
	r.runPhase(shuffle, func() { shuffle.each(r.ctx, ones, func(w, _, _ int) { pop.shuffle(w) }) })

	beat := r.newPhase("beat", busy, beats)
	r.runPhase(beat, func() { beat.each(r.ctx, lengths(pop.beats), pop.beatRange) })
	stop := r.newPhase("stop", busy, stops)
	r.runPhase(stop, func() { stop.each(r.ctx, lengths(pop.stops), pop.stopRange) })
	r.out.phases = append(r.out.phases, beat, stop)
	pop.releaseHandles()
	r.out.overran = max(0, time.Since(pop.start)-pop.plan.opens)
	r.out.refused = pop.late.Load()
}

// wait measures a full garbage collection with all timers pending and waits for the first deadline.
// During a long wait the wheel moves the timers of the window to finer levels.
func (r *runner) wait() {
	if r.ctx.Err() != nil {
		return
	}
	runtime.GC() // frees the handles
	r.out.collection, r.out.heap = collectGarbage()
	opens, moved := r.pop.start.Add(r.pop.plan.opens), r.pop.wheel.Stats().Moved
	ph := r.newPhase("wait", idle, max(0, int(time.Until(opens)/time.Millisecond)))
	ph.detail = func() string {
		return fmt.Sprintf("the first timer is due in %.1fs", max(0, time.Until(opens).Seconds()))
	}
	r.runPhase(ph, func() {
		for r.ctx.Err() == nil && time.Now().Before(opens) {
			r.sleep(min(50*time.Millisecond, time.Until(opens)))
			ph.done.Store(min(time.Since(ph.started).Milliseconds(), int64(ph.total)))
		}
	})
	moves := &phase{name: "move, before the first is due", pace: clocked, ended: ph.ended, took: ph.took, cpu: ph.cpu, pauses: ph.pauses}
	moves.done.Store(int64(r.pop.wheel.Stats().Moved - moved))
	r.out.phases = append(r.out.phases, moves)
}

// expire waits until the window has ended and all due timers have expired, or until they are
// overdue by maxWait. It then waits 100 ms for timers that should not expire.
func (r *runner) expire() {
	pop := r.pop
	ph := r.newPhase("expire", clocked, int(pop.toExpire.Load()))
	ph.detail = func() string { return lateLine(pop.recorder.late(50, 99)) }
	closes := pop.start.Add(pop.plan.opens + pop.plan.window)
	overdue := closes.Add(r.cfg.maxWait)
	r.runPhase(ph, func() {
		for r.ctx.Err() == nil && time.Now().Before(overdue) && (time.Now().Before(closes) || pop.outstanding() > 0) {
			r.sleep(10 * time.Millisecond)
			ph.done.Store(pop.recorder.fired.Load())
		}
	})
	r.sleep(100 * time.Millisecond)
	ph.done.Store(pop.recorder.fired.Load())
	r.out.phases = append(r.out.phases, ph)
}

func lateLine(late []time.Duration) string {
	if late == nil {
		return "no timer has expired"
	}
	return fmt.Sprintf("lateness p50 %s p99 %s max %s", figures.Millis(late[0]), figures.Millis(late[1]), figures.Millis(late[2]))
}

// end stops the wheel and checks the run.
func (r *runner) end() {
	pop, out := r.pop, r.out
	out.stats, out.length = pop.wheel.Stats(), pop.wheel.Len()
	out.late = pop.recorder.late(50, 99, 99.9)
	start := time.Now()
	err := r.shutdown(pop.wheel)
	out.stopTook = time.Since(start)
	_, out.left = collectGarbage()
	out.gcTime = gcTime()
	out.interrupted = r.ctx.Err() != nil

	ob := observation{
		n: pop.n, complete: !out.interrupted, overran: out.overran > 0, got: pop.recorder.result(), refusedEarly: pop.refusedEarly.Load(),
		beat: pop.beat.Load(), stopped: pop.stopped.Load(), stats: out.stats, length: out.length,
	}
	if !out.interrupted {
		ob.comparison = r.verify()
		ob.complete = r.ctx.Err() == nil
		out.interrupted = !ob.complete
	}
	out.expired = ob.got.checksum
	out.faults = ob.faults()
	if err != nil {
		out.faults = append(out.faults, fmt.Sprintf("the wheel did not shut down: %v", err))
	}
}

// verify compares all numbers with the plan, without the wheel.
func (r *runner) verify() comparison {
	pop := r.pop
	ph := r.newPhase("verify", busy, pop.n)
	parts := make([]comparison, pop.workers)
	r.runPhase(ph, func() {
		ph.each(r.ctx, pop.shares(), func(w, from, to int) {
			first, _ := pop.share(w)
			parts[w].merge(compare(pop, first+from, first+to))
		})
	})
	var all comparison
	for _, p := range parts {
		all.merge(p)
	}
	return all
}

func (r *runner) shutdown(w wheel) error {
	ctx, cancel := context.WithTimeout(context.Background(), r.cfg.maxWait)
	defer cancel()
	return w.Shutdown(ctx)
}

// sleep sleeps for d, or until the context of the run is done.
func (r *runner) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-r.ctx.Done():
	}
}
