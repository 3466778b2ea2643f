package main

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/timingwheel-go/timingwheel"
)

// small is a short run. In a synctest bubble its window takes no time, and no timer waits for a
// processor.
func small() config {
	cfg := defaults()
	cfg.n, cfg.trialTimers, cfg.workers, cfg.seed = 20_000, 1_000, 3, 1
	return cfg
}

func play(t *testing.T, ctx context.Context, cfg config) (*outcome, string) {
	t.Helper()
	require.NoError(t, cfg.validate())
	var out bytes.Buffer
	o, err := run(ctx, cfg, newDisplay(&out))
	require.NoError(t, err)
	o.print(&out)
	return o, out.String()
}

func TestExactlyTheDueTimersExpire(t *testing.T) {
	for name, change := range map[string]func(*config){
		"defaults":        func(*config) {},
		"another seed":    func(c *config) { c.seed = 2 },
		"random seed":     func(c *config) { c.seed = 0 },
		"one timer":       func(c *config) { c.n = 1 },
		"more workers":    func(c *config) { c.n, c.workers = 5, 16 },
		"all expire":      func(c *config) { c.beat, c.stop, c.expire = 0, 0, 100 },
		"all are beaten":  func(c *config) { c.beat, c.stop, c.expire = 100, 0, 0 },
		"all are stopped": func(c *config) { c.beat, c.stop, c.expire = 0, 100, 0 },
		"all stay":        func(c *config) { c.beat, c.stop, c.expire = 0, 0, 0 },
		"a long window":   func(c *config) { c.window, c.lead = 10*time.Minute, time.Minute },
		"at one instant":  func(c *config) { c.window = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := small()
				change(&cfg)
				o, out := play(t, context.Background(), cfg)
				assert.Empty(t, o.faults, out)
				assert.False(t, o.interrupted)
				assert.Contains(t, out, " expired, exactly the due ones, once each and none early; ")
				assert.EqualValues(t, cfg.n, o.stats.Armed)
				assert.Zero(t, o.refused)
				want := float64(cfg.n) * cfg.expire / 100
				assert.InDelta(t, want, o.expired.count, want/10+1)
				if o.late != nil {
					assert.LessOrEqual(t, o.late[3], time.Millisecond, "maximum lateness")
				}
			})
		})
	}
}

// In real time the test asserts nothing about lateness.
func TestExactlyTheDueTimersExpireInRealTime(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.lead, cfg.window = 300*time.Millisecond, 700*time.Millisecond
	cfg.maxWait = time.Minute
	o, out := play(t, context.Background(), cfg)
	assert.Empty(t, o.faults, out)
	assert.Contains(t, out, " expired, exactly the due ones, once each and none early; ")
	assert.Contains(t, out, "20,000 timers, seed 1: 20% are beaten, 5% stopped, 10% expire")
	assert.Contains(t, out, "bytes for each timer")
	assert.NotContains(t, out, "\x1b", "control characters in a file")
}

// broken is a wheel with faults.
type broken struct {
	wheel
	plan   func(id uint64) kind
	arm    func(b *broken, at time.Time, id uint64) timingwheel.Timer
	len    int // added to Len
	armed  int
	decoys wheel
}

func (b *broken) AddAt(at time.Time, id uint64) timingwheel.Timer {
	if b.arm == nil {
		return b.wheel.AddAt(at, id)
	}
	return b.arm(b, at, id)
}

func (b *broken) Len() int { return b.wheel.Len() + b.len }

func (b *broken) Stats() timingwheel.Stats {
	st := b.wheel.Stats()
	st.Armed += uint64(b.armed)
	return st
}

func (b *broken) Shutdown(ctx context.Context) error {
	_ = b.decoys.Shutdown(ctx)
	return b.wheel.Shutdown(ctx)
}

// only returns a fault that affects only the first timer of kind k.
func only(k kind, arm func(b *broken, at time.Time, id uint64) timingwheel.Timer) func(*broken) {
	done := false
	return func(b *broken) {
		b.arm = func(b *broken, at time.Time, id uint64) timingwheel.Timer {
			if done || b.plan(id) != k {
				return b.wheel.AddAt(at, id)
			}
			done = true
			return arm(b, at, id)
		}
	}
}

// decoy arms the timer and returns the handle of another timer.
func decoy(b *broken, at time.Time, id uint64) timingwheel.Timer {
	b.wheel.AddAt(at, id)
	return b.decoys.AddAt(at, id)
}

func lose(*broken, time.Time, uint64) timingwheel.Timer { return timingwheel.Timer{} }

func TestBrokenWheelIsFound(t *testing.T) {
	for name, tt := range map[string]struct {
		breakIt func(*broken)
		want    string
	}{
		"loses one that is due":    {only(expires, lose), "1 timer did not expire although due"},
		"loses one that stays":     {only(stays, lose), "Len is "},
		"loses one that is beaten": {only(beaten, lose), "1 beat or stops refused before the deadline"},
		"expires one twice": {only(expires, func(b *broken, at time.Time, id uint64) timingwheel.Timer {
			b.wheel.AddAt(at.Add(time.Millisecond), id)
			return b.wheel.AddAt(at, id)
		}), "1 timer expired more than once"},
		"expires one early": {only(expires, func(b *broken, at time.Time, id uint64) timingwheel.Timer {
			return b.wheel.AddAt(at.Add(-2*time.Millisecond), id)
		}), "1 timer expired early, by up to "},
		"arms another number": {only(expires, func(b *broken, at time.Time, id uint64) timingwheel.Timer {
			return b.wheel.AddAt(at, id^1)
		}), "1 timer did not expire although due"},
		"arms an unknown number": {only(expires, func(b *broken, at time.Time, id uint64) timingwheel.Timer {
			return b.wheel.AddAt(at, id+1<<32)
		}), "1 timer expired that had not been armed"},
		"expires one too late": {only(expires, func(b *broken, at time.Time, id uint64) timingwheel.Timer {
			return b.wheel.AddAt(at.Add(time.Minute), id)
		}), "1 timer did not expire although due"},
		"expires one that stays": {only(stays, func(b *broken, at time.Time, id uint64) timingwheel.Timer {
			return b.wheel.AddAt(at.Add(-2*farAhead), id)
		}), "1 timer expired early"},
		"beats another one": {only(beaten, decoy), "1 timer expired although not due"},
		"stops another one": {only(stopped, decoy), "1 timer expired although not due"},
		"wrong Len":         {func(b *broken) { b.len = 1 }, "Len is "},
		"wrong Stats":       {func(b *broken) { b.armed = -1 }, "Stats.Armed is 19999; it must be 20000"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := small()
				cfg.workers = 1 // only has no lock
				cfg.newWheel = breakAll(t, cfg, tt.breakIt)
				o, out := play(t, context.Background(), cfg)
				assert.NotEmpty(t, o.faults)
				assert.Contains(t, out, tt.want)
				assert.Contains(t, out, "FAIL: ")
			})
		})
	}
}

// breakAll breaks the large wheel, but not the small ones of the trials.
func breakAll(t *testing.T, cfg config, breakIt func(*broken)) makeWheel {
	p := newPlan(cfg, 0, 0)
	made := 0
	return func(expire func([]uint64)) (wheel, error) {
		good, err := timingwheel.NewTimeouts(timingwheel.Options{}, expire)
		require.NoError(t, err)
		decoys, err := timingwheel.NewTimeouts(timingwheel.Options{}, func([]uint64) {})
		require.NoError(t, err)
		b := &broken{wheel: good, decoys: decoys, plan: func(id uint64) kind {
			f, _ := p.of(id)
			return f
		}}
		if made++; made > cfg.trials {
			breakIt(b)
		}
		return b, nil
	}
}

// On a slow machine deadlines pass before the beats. The timers that expire then are correct.
func TestDeadlinesBeforeTheBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := small()
		cfg.workers, cfg.lead, cfg.window = 1, 2*time.Second, 2*time.Second
		cfg.newWheel = breakAll(t, cfg, func(b *broken) {
			b.arm = func(b *broken, at time.Time, id uint64) timingwheel.Timer {
				if id == 15_000 {
					time.Sleep(3 * time.Second)
				}
				return b.wheel.AddAt(at, id)
			}
		})
		o, out := play(t, context.Background(), cfg)
		assert.Empty(t, o.faults, out)
		// Half of the timers to be beaten or stopped have expired. A quarter of the timers is
		// overdue when it is armed, and some of these are beaten before a worker claims them.
		assert.InDelta(t, 20_000*0.25/2*7/8, o.refused, 500)
		assert.Contains(t, out, "too slow: the first deadline was 1s before the last beat")
		assert.Contains(t, out, " expired before their beat or stop")
		assert.Contains(t, out, "PASS: ")
	})
}

func TestInterruptEndsTheRun(t *testing.T) {
	for name, after := range map[string]time.Duration{
		"before the run":     -1,
		"while waiting":      time.Second,
		"while expiring":     3 * time.Second,
		"at the end":         5 * time.Second,
		"long after the end": time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := small()
				cfg.lead, cfg.window = 2*time.Second, 2*time.Second
				ctx, cancel := context.WithTimeout(context.Background(), after)
				defer cancel()
				begin := time.Now()
				o, out := play(t, ctx, cfg)
				assert.Empty(t, o.faults, out)
				if o.interrupted {
					assert.Contains(t, out, "interrupted after ")
					assert.NotContains(t, out, "PASS")
					assert.LessOrEqual(t, time.Since(begin), after+time.Second)
				} else {
					assert.Contains(t, out, "PASS")
				}
				assert.Equal(t, after < 4*time.Second, o.interrupted)
			})
		})
	}
}

func TestInterruptWhileArming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := small()
		ctx, cancel := context.WithCancel(context.Background())
		cfg.newWheel = breakAll(t, cfg, func(b *broken) {
			b.arm = func(b *broken, at time.Time, id uint64) timingwheel.Timer {
				if id == 0 {
					cancel()
				}
				return b.wheel.AddAt(at, id)
			}
		})
		o, out := play(t, ctx, cfg)
		assert.Empty(t, o.faults, out)
		assert.True(t, o.interrupted)
		assert.Less(t, o.stats.Armed, uint64(cfg.n))
		assert.Contains(t, out, "interrupted after ")
	})
}

func TestErrorOfNewWheel(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.newWheel = func(expire func([]uint64)) (wheel, error) {
		return timingwheel.NewTimeouts(timingwheel.Options{Shards: -1}, expire)
	}
	_, err := run(context.Background(), cfg, newDisplay(&bytes.Buffer{}))
	assert.ErrorIs(t, err, timingwheel.ErrOption)
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	args := []string{"hundredmillion", "-n", "5000", "-lead", "200ms", "-window", "200ms", "-workers", "2"}
	var stdout, stderr bytes.Buffer
	assert.Equal(t, exitOK, hundredmillion(context.Background(), args, &stdout, &stderr), stdout.String()+stderr.String())
	assert.Contains(t, stdout.String(), "PASS")
	assert.Empty(t, stderr.String())

	stdout.Reset()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	assert.Equal(t, exitInterrupted, hundredmillion(ctx, args, &stdout, &stderr))
	assert.Contains(t, stdout.String(), "interrupted")
	assert.Empty(t, stderr.String())
}
