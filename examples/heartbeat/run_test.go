package main

import (
	"bytes"
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// small is a run over real connections that takes about two seconds.
func small() config {
	cfg := defaults()
	cfg.conns, cfg.timeout, cfg.duration = 200, 400*time.Millisecond, 1600*time.Millisecond
	cfg.silent, cfg.closing, cfg.crash = 20, 10, 10
	cfg.patience = 2 * time.Second
	cfg.seed = 1
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

func TestServerIsRight(t *testing.T) {
	for _, impl := range implementations {
		t.Run(impl, func(t *testing.T) {
			t.Parallel()
			cfg := small()
			cfg.impl = impl
			o, out := play(t, context.Background(), cfg)
			assert.Empty(t, o.verdict.faults, out)
			if o.verdict.starved == 0 {
				assert.Equal(t, [fates][cut + 1]int{stays: {closed: 120}, closes: {closed: 20}, crashes: {reset: 20}, silent: {cut: 40}},
					o.verdict.ended, out)
				assert.Len(t, o.verdict.overdue, 40)
			}
			assert.Contains(t, out, "RIGHT")
		})
	}
}

func TestNoneCutsNoConnection(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.impl = none
	o, out := play(t, context.Background(), cfg)
	assert.Empty(t, o.verdict.faults, out)
	assert.Equal(t, 40, o.verdict.ended[silent][closed], out)
	assert.Equal(t, 40, o.verdict.unended, out)
	assert.Zero(t, o.fired)
}

// broken breaks the timers below it.
type broken struct {
	timers
	deaf, dead bool // deaf: Touch moves nothing; dead: nothing is ever armed
	scale      float64
	shift      time.Duration
}

type brokenTimer struct {
	timer
	of broken
}

func (b broken) delay(d time.Duration) time.Duration {
	if b.dead {
		return time.Hour
	}
	return time.Duration(float64(d)*b.scale) + b.shift
}

func (b broken) afterFunc(d time.Duration, f func()) timer {
	return brokenTimer{b.timers.afterFunc(b.delay(d), f), b}
}

func (t brokenTimer) Touch() bool { return t.of.deaf || t.timer.Touch() }

// brokenDeadlines are read deadlines of which some are lost or moved.
type brokenDeadlines struct {
	netDeadlines
	move func(time.Time) time.Time
}

type brokenListener struct {
	net.Listener
	move func(time.Time) time.Time
}

type brokenConn struct {
	*net.TCPConn
	move func(time.Time) time.Time
}

func (b brokenDeadlines) listener(l net.Listener) net.Listener { return brokenListener{l, b.move} }

func (l brokenListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return brokenConn{c.(*net.TCPConn), l.move}, nil
}

func (c brokenConn) SetReadDeadline(t time.Time) error {
	if !t.IsZero() {
		t = c.move(t)
	}
	return c.TCPConn.SetReadDeadline(t)
}

// An example that cannot fail shows nothing: whatever is broken in the cutting must be found. Where
// the machine stood still and a run excused something for that, it may have excused what was to be
// found as well; then there is another one.
func TestBrokenCuttingIsFound(t *testing.T) {
	timersOf := func(b broken) func() implementation {
		return func() implementation {
			b.timers = &std{}
			return timerGuards{b}
		}
	}
	deadlinesOf := func(move func(time.Time) time.Time) func() implementation {
		return func() implementation { return brokenDeadlines{move: move} }
	}
	for name, tt := range map[string]struct {
		newImpl  func() implementation
		cutAfter time.Duration
		found    func(verdict) int
	}{
		"timers that never fire":        {newImpl: timersOf(broken{dead: true}), found: func(v verdict) int { return v.missed }},
		"timers that cannot be moved":   {newImpl: timersOf(broken{deaf: true, scale: 1}), found: func(v verdict) int { return v.missed }},
		"timers that fire early":        {newImpl: timersOf(broken{scale: 0.5}), found: func(v verdict) int { return len(v.faults) }},
		"timers that fire late":         {newImpl: timersOf(broken{scale: 1, shift: 1500 * time.Millisecond}), found: func(v verdict) int { return v.late + v.missed }},
		"a server that is too hasty":    {newImpl: timersOf(broken{scale: 1}), cutAfter: 40 * time.Millisecond, found: func(v verdict) int { return v.live }},
		"a server that is a bit hasty":  {newImpl: timersOf(broken{scale: 1}), cutAfter: 200 * time.Millisecond, found: func(v verdict) int { return v.early + v.live }},
		"a server that cuts the silent": {newImpl: timersOf(broken{scale: 1}), found: func(v verdict) int { return 1 - len(v.faults) }},
		"deadlines that are lost": {newImpl: deadlinesOf(func(time.Time) time.Time { return time.Time{} }),
			found: func(v verdict) int { return v.missed }},
		"deadlines that pass early": {newImpl: deadlinesOf(func(t time.Time) time.Time { return t.Add(-200 * time.Millisecond) }),
			found: func(v verdict) int { return len(v.faults) }},
		"deadlines that pass late": {newImpl: deadlinesOf(func(t time.Time) time.Time { return t.Add(1500 * time.Millisecond) }),
			found: func(v verdict) int { return v.late + v.missed }},
		"deadlines that are kept": {newImpl: deadlinesOf(func(t time.Time) time.Time { return t }),
			found: func(v verdict) int { return 1 - len(v.faults) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := small()
			cfg.cutAfter, cfg.newImpl = tt.cutAfter, tt.newImpl
			for tries := 5; ; tries-- {
				o, out := play(t, context.Background(), cfg)
				excused := o.verdict.starved + o.verdict.widened + int(o.spared)
				if tt.found(o.verdict) > 0 || excused == 0 || tries == 1 {
					assert.Positive(t, tt.found(o.verdict), out)
					return
				}
			}
		})
	}
}

// Ctrl-C ends everything at once, and what was not due yet is no fault.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.timeout, cfg.duration = time.Minute, time.Hour
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	o, out := play(t, ctx, cfg)
	assert.Empty(t, o.verdict.faults, out)
	assert.True(t, o.interrupted)
	assert.Less(t, o.took, time.Minute)
	assert.Contains(t, out, "interrupted")
}

func TestInterruptWhileConnecting(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{0, time.Millisecond, 4 * time.Millisecond, 16 * time.Millisecond} {
		cfg := small()
		cfg.conns = 1000
		ctx, cancel := context.WithTimeout(context.Background(), after)
		o, out := play(t, ctx, cfg)
		cancel()
		assert.Empty(t, o.verdict.faults, out)
		assert.True(t, o.interrupted)
	}
}

// Without anyone to serve it a run must end with an error, not hang.
func TestServerThatFails(t *testing.T) {
	t.Parallel()
	cfg := small()
	srv, err := newServer(netDeadlines{}, cfg.timeout, 0, &stalls{})
	require.NoError(t, err)
	srv.close()
	assert.ErrorContains(t, newField(cfg, srv).play(context.Background()), "connecting a client")
}
