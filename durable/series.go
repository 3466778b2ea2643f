package durable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/netresearch/go-cron"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/internal/wallclock"
)

// series has the times of a recurring message.
type series struct {
	every time.Duration // the interval; 0: the times of spec
	spec  *cron.SpecSchedule
	loc   *time.Location
}

// maxStepBack is the largest step back of a clock after which no run is planned again.
const maxStepBack = 3 * time.Hour

// maxRepeat is the maximum length of Message.Repeat in bytes.
const maxRepeat = 255

// The years limit the search for a day such as February 29, which may be eight years away.
var repeatParser = cron.MustNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.DowOrDom | cron.Descriptor).
	WithMinEveryInterval(time.Millisecond).WithMaxSearchYears(10)

// parseSeries parses Message.Repeat. It returns [ErrInvalid] if it has no times.
func parseSeries(repeat string) (*series, error) {
	plan, err := repeatParser.Parse(repeat)
	var s *series
	switch plan := plan.(type) {
	case cron.ConstantDelaySchedule:
		s = &series{every: plan.Delay}
	case *cron.SpecSchedule:
		if s = (&series{spec: plan, loc: plan.Location}); !strings.Contains(repeat, "TZ=") {
			s.loc = time.UTC
		}
		plan.Location = time.UTC // of readings
	}
	switch {
	case err != nil:
	case len(repeat) > maxRepeat:
		err = fmt.Errorf("it has %d bytes", len(repeat))
	case s != nil && s.loc == time.Local:
		err = errors.New("the zone Local differs between processes")
	case s == nil || s.every == 0 && s.After(time.Unix(0, 0).UTC()).IsZero():
		err = errors.New("it has no times")
	}
	if err != nil {
		return nil, fmt.Errorf("%w Repeat %.60q; it must be \"@every\" and a duration, or a cron expression with five fields, such as \"CRON_TZ=Europe/Berlin 0 8 * * *\", of at most %d bytes: %w",
			ErrInvalid, repeat, maxRepeat, err)
	}
	return s, nil
}

// after returns the first time of the series after t. An interval counts from the time from.
func (s *series) after(from, t time.Time) time.Time {
	if s.every == 0 {
		return wallclock.Next(t, s.loc, s)
	}
	past := t.Sub(from) % s.every
	if past < 0 {
		past += s.every
	}
	return t.Add(s.every - past)
}

// After implements [wallclock.Plan].
func (s *series) After(reading time.Time) time.Time { return s.spec.Next(reading) }

// Pause implements [wallclock.Plan].
func (s *series) Pause(start, end time.Time) time.Duration {
	last := start.Add(-1)
	for next := s.After(last); ; last, next = next, s.After(next) {
		if !next.Before(end) {
			return next.Sub(last)
		}
	}
}

// next returns the time of the run after a planned one.
func (s *series) next(planned, now time.Time) time.Time {
	if ahead := planned.Sub(now); ahead > 0 && !s.stranded(ahead, planned) {
		return s.after(planned, planned) // the clock was set back, which repeats no run
	}
	return s.after(planned, now)
}

// stranded reports whether a run is so far ahead that it was planned before the clock was set back:
// by more than maxStepBack and ten periods.
func (s *series) stranded(ahead time.Duration, planned time.Time) bool {
	return ahead > maxStepBack && ahead/10 > s.period(planned)
}

// period returns the time between two runs after t.
func (s *series) period(t time.Time) time.Duration {
	next := s.after(t, t)
	return s.after(t, next).Sub(next)
}

// observe records a reading of the store's clock, and plans runs again if it was set back far.
func (p *part) observe(reading, sent time.Time) {
	if back := p.clock.observe(reading, sent); back > maxStepBack {
		go p.replan(p.q.ctx, back)
	}
}

// replan moves the runs that were planned before the store's clock was set back. If the store is
// unreachable, it begins again.
func (p *part) replan(ctx context.Context, back time.Duration) {
	moved := 0
	defer func() {
		if moved > 0 {
			p.q.report("the store's clock was set back by %v: %d recurring messages were planned again", back, moved)
		}
	}()
	for _, state := range []State{StateScheduled, StateLeased} {
		for records, err := range p.pages(ctx, state) {
			if err != nil && ctx.Err() == nil {
				p.q.report("plan recurring messages again: %w", err)
				if sleep(ctx, failurePause); errors.Is(err, ErrUnavailable) {
					p.replan(ctx, back)
				}
			}
			if err != nil {
				return
			}
			for i := range records {
				r := &records[i]
				if s, err := parseSeries(r.Repeat); err == nil && s.replans(r, p.clock.now(), back) {
					c := driver.Change{ID: r.ID, Repeat: r.Repeat, At: driver.InstantOf(s.after(r.Planned.Time(), p.clock.now()))}
					if _, err := p.q.change(ctx, driver.OpRepeat, c); err != nil {
						p.q.report("plan message %q again: %w", r.ID, err)
						continue
					}
					moved++
				}
			}
		}
	}
}

// replans reports whether a run was planned before the clock was set back. If another time of the
// series was earlier then, or the message is due a day after its planned time, a user has chosen
// its time.
func (s *series) replans(r *driver.Record, now time.Time, back time.Duration) bool {
	planned := r.Planned.Time()
	return s.stranded(planned.Sub(now), planned) && !s.after(planned, now.Add(back)).Before(planned) &&
		r.Due.Time().Sub(planned) < 24*time.Hour
}

// endRun returns the transition that ends a run of a recurring message, in place of one that
// removes or buries the message.
func (d *Delivery) endRun(op driver.Op, change driver.Change) (driver.Op, driver.Change) {
	r := &d.h.record
	if r.Planned == 0 || op != driver.OpBury && (op != driver.OpAck || r.Repeat == "") {
		return op, change
	}
	if op == driver.OpBury {
		change.Reason = cmp.Or(change.Reason, "rejected")
	}
	change.Again, change.Incarnation = true, r.Planned
	if d.h.series == nil { // the series was cancelled during the run, so the store removes the message
		return driver.OpRetry, change
	}
	now := d.h.part.clock.now()
	next := d.h.series.next(r.Planned.Time(), now)
	if end := d.ExpireAt.Add(time.Millisecond); !d.ExpireAt.IsZero() && next.After(end) {
		next = end // when a consumer removes the message, unless it was replaced during the run
	}
	change.At, change.Delay = driver.InstantOf(next), next.Sub(now) // Delay is for the log and the event
	return driver.OpRetry, change
}

// firstRun returns the due time of the first run of a series, or the delay of an interval. It reads
// the store's clock unless a recent reading is known.
func (p *part) firstRun(ctx context.Context, s *series) (at driver.Instant, delay time.Duration, err error) {
	if s.every > 0 {
		return 0, s.every, nil
	}
	if !p.clock.fresh() {
		err = p.q.retry(func(context.Context) error {
			sent := time.Now()
			c, err := p.q.backend.Count(ctx, p.index)
			if err == nil {
				p.observe(c.Now.Time(), sent)
			}
			return err
		})
	}
	now := p.clock.now()
	return driver.InstantOf(s.after(now, now)), 0, err
}
