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

// outcome is what a run leaves behind.
type outcome struct {
	cfg         config
	phases      []*phase
	trial, arm  *phase // of the small wheel and of the large one
	interrupted bool
	took        time.Duration
	overran     time.Duration // by which the first deadline came before the last beat; 0: it did not
	refused     int64         // beats and stops that came after their deadline

	collection    time.Duration // a full one with everything pending
	collectorTime time.Duration // of processors, in all
	heap, left    uint64        // live, with everything pending and after Stop
	stopTook      time.Duration
	late          []time.Duration // 50th, 99th and 99.9th percentile, the most
	stats         timingwheel.Stats
	length        int
	expired       checksum
	peak          uint64
	peakSampled   bool

	faults []string
}

// runner is a run under way.
type runner struct {
	ctx  context.Context
	cfg  config
	show display
	gc   *collectorWatch
	pop  *population
	out  *outcome
}

// run does everything, and judges. An error means that there was nothing to judge. When ctx ends
// everything ends at once.
func run(ctx context.Context, cfg config, show display) (*outcome, error) {
	begin := time.Now()
	if cfg.seed == 0 {
		cfg.seed = uint64(begin.UnixNano())
	}
	r := &runner{ctx: ctx, cfg: cfg, show: show, gc: newCollectorWatch(), out: &outcome{cfg: cfg}}
	if err := r.try(); err != nil {
		return nil, err
	}
	lead, window := cfg.leadFor(time.Duration(r.out.trial.nanos())), cfg.expireWindow()
	r.printPlan(lead, window)
	var err error
	if r.pop, err = newPopulation(cfg, cfg.n, newPlan(cfg, lead, window)); err != nil {
		return nil, err
	}
	r.fill()
	r.handle()
	r.rest()
	r.expire()
	r.end()
	r.out.took = time.Since(begin)
	return r.out, nil
}

func (r *runner) printPlan(lead, window time.Duration) {
	cfg := r.cfg
	r.show.say("%s, seed %d: %v%% beaten, %v%% stopped, %v%% expire, the rest lies an hour ahead",
		figures.Plural(cfg.n, "timer"), cfg.seed, cfg.beat, cfg.stop, cfg.expire)
	r.show.say("%s on %s; the first one is due %v after the start, the last to expire %v later",
		figures.Plural(cfg.workers, "goroutine"), figures.Plural(runtime.GOMAXPROCS(0), "processor"),
		lead.Round(time.Millisecond), window.Round(time.Millisecond))
}

// try fills a small wheel some times: to compare the large one with it, and to learn how much time
// to leave until the first deadline. The median counts.
func (r *runner) try() error {
	n := min(r.cfg.n, r.cfg.calibrant)
	var trials []*phase
	for range r.cfg.calibrate {
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
		debug.FreeOSMemory() // the next one shall not find memory that is mapped already
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
	r.watched(ph, func() { ph.each(r.ctx, pop.shares(), pop.arm) })
	ph.bytes = bytesPerTimer(pop.wheel.Stats())
	r.out.phases = append(r.out.phases, ph)
}

func bytesPerTimer(st timingwheel.Stats) float64 {
	return float64(st.Bytes) / float64(max(st.Pending, 1))
}

// handle beats and stops what is to be beaten and stopped.
func (r *runner) handle() {
	pop := r.pop
	beats, stops := pop.handles()
	shuffle := r.newPhase("shuffle", idle, pop.workers)
	ones := slices.Repeat([]int{1}, pop.workers)
	r.watched(shuffle, func() { shuffle.each(r.ctx, ones, func(w, _, _ int) { pop.shuffle(w) }) })

	beat := r.newPhase("beat", busy, beats)
	r.watched(beat, func() { beat.each(r.ctx, lengths(pop.beats), pop.beatRange) })
	stop := r.newPhase("stop", busy, stops)
	r.watched(stop, func() { stop.each(r.ctx, lengths(pop.stops), pop.stopRange) })
	r.out.phases = append(r.out.phases, beat, stop)
	pop.forget()
	r.out.overran = max(0, time.Since(pop.start)-pop.plan.opens)
	r.out.refused = pop.late.Load()
}

// rest measures a full collection with everything pending, and waits for the first deadline. With a
// long wait the wheel has work to do: the timers of the window have to move to finer levels.
func (r *runner) rest() {
	if r.ctx.Err() != nil {
		return
	}
	runtime.GC() // takes the handles away
	r.out.collection, r.out.heap = collect()
	opens, moved := r.pop.start.Add(r.pop.plan.opens), r.pop.wheel.Stats().Moved
	ph := r.newPhase("wait", idle, max(0, int(time.Until(opens)/time.Millisecond)))
	ph.detail = func() string { return fmt.Sprintf("the first is due in %.1fs", max(0, time.Until(opens).Seconds())) }
	r.watched(ph, func() {
		for r.ctx.Err() == nil && time.Now().Before(opens) {
			r.sleep(min(50*time.Millisecond, time.Until(opens)))
			ph.done.Store(min(time.Since(ph.started).Milliseconds(), int64(ph.total)))
		}
	})
	moves := &phase{name: "move, before any is due", pace: clocked, ended: ph.ended, took: ph.took, cpu: ph.cpu, pauses: ph.pauses}
	moves.done.Store(int64(r.pop.wheel.Stats().Moved - moved))
	r.out.phases = append(r.out.phases, moves)
}

// expire waits until the window is over and everything that was to expire has done so, or is
// overdue by too much. It waits a moment longer, for what is not to expire and does.
func (r *runner) expire() {
	pop := r.pop
	ph := r.newPhase("expire", clocked, int(pop.toExpire.Load()))
	ph.detail = func() string { return lateLine(pop.tally.late(50, 99)) }
	closes := pop.start.Add(pop.plan.opens + pop.plan.window)
	overdue := closes.Add(r.cfg.patience)
	r.watched(ph, func() {
		for r.ctx.Err() == nil && time.Now().Before(overdue) && (time.Now().Before(closes) || pop.owes() > 0) {
			r.sleep(10 * time.Millisecond)
			ph.done.Store(pop.tally.fired.Load())
		}
	})
	r.sleep(100 * time.Millisecond)
	ph.done.Store(pop.tally.fired.Load())
	r.out.phases = append(r.out.phases, ph)
}

func lateLine(late []time.Duration) string {
	if late == nil {
		return "none is late"
	}
	return fmt.Sprintf("late p50 %s p99 %s most %s", figures.Millis(late[0]), figures.Millis(late[1]), figures.Millis(late[2]))
}

// end stops the wheel and judges.
func (r *runner) end() {
	pop, out := r.pop, r.out
	out.stats, out.length = pop.wheel.Stats(), pop.wheel.Len()
	out.late = pop.tally.late(50, 99, 99.9)
	start := time.Now()
	err := r.shutdown(pop.wheel)
	out.stopTook = time.Since(start)
	_, out.left = collect()
	out.collectorTime = collectorTime()
	out.interrupted = r.ctx.Err() != nil

	ev := evidence{
		n: pop.n, complete: !out.interrupted, overran: out.overran > 0, got: pop.tally.result(), refusedEarly: pop.refusedEarly.Load(),
		beat: pop.beat.Load(), stopped: pop.stopped.Load(), stats: out.stats, length: out.length,
	}
	if !out.interrupted {
		ev.comparison = r.verify()
		ev.complete = r.ctx.Err() == nil
		out.interrupted = !ev.complete
	}
	out.expired = ev.got.checksum
	out.faults = ev.faults()
	if err != nil {
		out.faults = append(out.faults, fmt.Sprintf("the wheel did not shut down: %v", err))
	}
	if peak, err := peakMemory(); err == nil {
		out.peak, out.peakSampled = peak, false
	}
}

// verify goes through all numbers once more, without the wheel.
func (r *runner) verify() comparison {
	pop := r.pop
	ph := r.newPhase("verify", busy, pop.n)
	parts := make([]comparison, pop.workers)
	r.watched(ph, func() {
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
	ctx, cancel := context.WithTimeout(context.Background(), r.cfg.patience)
	defer cancel()
	return w.Shutdown(ctx)
}

// sleep sleeps, but not beyond the end of the run's context.
func (r *runner) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-r.ctx.Done():
	}
}
