package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/examples/internal/processor"
)

func TestServerIsRight(t *testing.T) {
	cases := map[string]string{none: none}
	for _, impl := range implementations {
		cases[impl] = impl
	}
	runAtOnce(t, cases, func(t *testing.T, impl string) {
		cfg := small()
		cfg.impl = impl
		want := [roles][endKinds]int{stays: {closed: 60}, closes: {closed: 10}, crashes: {reset: 10}, silent: {cut: 20}}
		wantCut, wantNotDue := 20, 0
		if impl == none {
			want[silent] = [endKinds]int{closed: 20}
			wantCut, wantNotDue = 0, 20
		}
		res, out := runReport(t, context.Background(), cfg)
		assert.Empty(t, res.verdict.faults, out)
		if res.verdict.starved == 0 {
			assert.Equal(t, want, res.verdict.ends, out)
			assert.Len(t, res.verdict.cutDelays, wantCut)
		}
		assert.Equal(t, wantNotDue, res.verdict.notDue, out)
		assert.Equal(t, impl != none, res.fired > 0)
		assert.Contains(t, out, "PASS")
	})
}

// broken is a timer library with bugs.
type broken struct {
	timers
	noTouch bool // Touch does not move the timer
	noFire  bool // timers do not fire
	scale   float64
	shift   time.Duration
}

type brokenTimer struct {
	timer
	of broken
}

func (b broken) delay(d time.Duration) time.Duration {
	if b.noFire {
		return time.Hour
	}
	return time.Duration(float64(d)*b.scale) + b.shift
}

func (b broken) afterFunc(d time.Duration, f func()) timer {
	return brokenTimer{b.timers.afterFunc(b.delay(d), f), b}
}

func (t brokenTimer) Touch() bool { return t.of.noTouch || t.timer.Touch() }

// brokenDeadlines is an implementation whose read deadlines are changed by move.
type brokenDeadlines struct {
	netImplementation
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

// If the machine stalled, the stall may excuse a fault that should be found. The test then repeats
// the run.
func TestBrokenImplementationIsFound(t *testing.T) {
	timersOf := func(b broken) func() implementation {
		return func() implementation {
			b.timers = &std{}
			return timerImplementation{b}
		}
	}
	deadlinesOf := func(move func(time.Time) time.Time) func() implementation {
		return func() implementation { return brokenDeadlines{move: move} }
	}
	const late = 400 * time.Millisecond // more than the bound, and less than bound and patience
	type testCase struct {
		newImpl  func() implementation
		cutAfter time.Duration
		found    func(verdict) int
	}
	correct := func(v verdict) int { return 1 - len(v.faults) }
	runAtOnce(t, map[string]testCase{
		"timers that do not fire":      {newImpl: timersOf(broken{noFire: true}), found: func(v verdict) int { return v.missed }},
		"timers that cannot be moved":  {newImpl: timersOf(broken{noTouch: true, scale: 1}), found: func(v verdict) int { return v.missed }},
		"timers that fire early":       {newImpl: timersOf(broken{scale: 0.5}), found: func(v verdict) int { return len(v.faults) }},
		"timers that fire late":        {newImpl: timersOf(broken{scale: 1, shift: late}), found: func(v verdict) int { return v.late + v.missed }},
		"timers that are correct":      {newImpl: timersOf(broken{scale: 1}), found: correct},
		"server with a short timeout":  {newImpl: timersOf(broken{scale: 1}), cutAfter: 40 * time.Millisecond, found: func(v verdict) int { return v.liveCut }},
		"server with half the timeout": {newImpl: timersOf(broken{scale: 1}), cutAfter: 200 * time.Millisecond, found: func(v verdict) int { return v.early + v.liveCut }},
		"deadlines that are lost": {newImpl: deadlinesOf(func(time.Time) time.Time { return time.Time{} }),
			found: func(v verdict) int { return v.missed }},
		"deadlines that pass early": {newImpl: deadlinesOf(func(t time.Time) time.Time { return t.Add(-200 * time.Millisecond) }),
			found: func(v verdict) int { return len(v.faults) }},
		"deadlines that pass late": {newImpl: deadlinesOf(func(t time.Time) time.Time { return t.Add(late) }),
			found: func(v verdict) int { return v.late + v.missed }},
		"deadlines that are correct": {newImpl: deadlinesOf(func(t time.Time) time.Time { return t }), found: correct},
	}, func(t *testing.T, tt testCase) {
		cfg := small()
		cfg.conns, cfg.patience = 40, 300*time.Millisecond
		cfg.cutAfter, cfg.newImpl = tt.cutAfter, tt.newImpl
		for end := time.Now().Add(time.Minute); ; {
			res, out := runReport(t, context.Background(), cfg)
			excused := res.verdict.starved + res.verdict.excused + res.verdict.notDue + int(res.keptByStall)
			if tt.found(res.verdict) > 0 || excused == 0 || time.Now().After(end) {
				assert.Positive(t, tt.found(res.verdict), out)
				return
			}
		}
	})
}

// Clients that are not due to be cut are no fault.
func TestInterruptEndsRunAtOnce(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.timeout, cfg.duration = time.Minute, time.Hour
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	res, out := runReport(t, ctx, cfg)
	assert.Empty(t, res.verdict.faults, out)
	assert.True(t, res.interrupted)
	assert.Less(t, res.took, time.Minute)
	assert.Contains(t, out, "interrupted")
}

func TestInterruptWhileConnectingEndsRun(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{0, time.Millisecond, 4 * time.Millisecond, 16 * time.Millisecond} {
		cfg := small()
		cfg.conns = 1000
		ctx, cancel := context.WithTimeout(context.Background(), after)
		res, out := runReport(t, ctx, cfg)
		cancel()
		assert.Empty(t, res.verdict.faults, out)
		assert.True(t, res.interrupted)
	}
}

func TestRunReturnsErrorIfServerIsClosed(t *testing.T) {
	t.Parallel()
	cfg := small()
	srv, err := newServer(netImplementation{}, cfg.timeout, 0, &stalls{})
	require.NoError(t, err)
	srv.close()
	assert.ErrorContains(t, newSimulation(cfg, srv).run(context.Background()), "connecting a client")
}

func TestComparisonRunsEveryImplementation(t *testing.T) {
	t.Parallel()
	cfg := smallComparison()
	require.NoError(t, cfg.validate())
	var out bytes.Buffer
	right, err := compare(context.Background(), cfg, &out)
	require.NoError(t, err)
	assert.True(t, right, out.String())
	got := rows(out.String())
	assert.Equal(t, []string{"none", "wheel", "wheelnet", "std", "net", "none"}, column(got, 0))
	assert.Equal(t, []string{"-", "right", "right", "right", "right", "-"}, column(got, 8), out.String())
	assert.Equal(t, "0 of 12", got[0][1])
	assert.Equal(t, "0 of 12", got[5][1])
	for i, row := range got {
		assert.NotEqual(t, "0", row[2], "beats")
		assert.Regexp(t, `^[0-9,]+ B$`, row[6])
		if processor.Time() > 0 {
			assert.Regexp(t, `^[0-9.]+µs$`, row[4])
		}
		if i > 0 {
			assert.Regexp(t, `^[+-][0-9]+ B$`, row[7])
		}
	}
	for _, impl := range column(got, 0) {
		assert.Contains(t, out.String(), ", implementation "+impl+", seed 1\n", "all runs have the same seed")
	}
}

func TestComparisonWithFaultsIsWrong(t *testing.T) {
	t.Parallel()
	cfg := smallComparison()
	cfg.timeout, cfg.bound, cfg.duration = 100*time.Millisecond, 50*time.Millisecond, 300*time.Millisecond
	cfg.cutAfter = 10 * time.Millisecond
	require.NoError(t, cfg.validate())
	var out bytes.Buffer
	right, err := compare(context.Background(), cfg, &out)
	require.NoError(t, err)
	assert.False(t, right, out.String())
	assert.Contains(t, column(rows(out.String()), 8), "FAIL")
	assert.Contains(t, out.String(), "was cut although it sent a heartbeat")
}

// brokenAccept is an implementation whose listener accepts no connection.
type brokenAccept struct{ netImplementation }

type brokenAcceptListener struct{ net.Listener }

func (brokenAccept) listener(l net.Listener) net.Listener { return brokenAcceptListener{l} }
func (brokenAcceptListener) Accept() (net.Conn, error)    { return nil, errors.New("out of files") }

func TestFailedRunEndsComparison(t *testing.T) {
	t.Parallel()
	cfg := smallComparison()
	cfg.patience = 100 * time.Millisecond
	runs := 0
	cfg.newImpl = func() implementation {
		if runs++; runs == 2 {
			return brokenAccept{}
		}
		return netImplementation{}
	}
	var out bytes.Buffer
	_, err := compare(context.Background(), cfg, &out)
	assert.ErrorContains(t, err, "out of files")
	assert.Equal(t, []string{"none"}, column(rows(out.String()), 0), "the table has the previous run")
}

// interrupter is a buffer that calls cancel after the text at was written.
type interrupter struct {
	bytes.Buffer
	at     string
	cancel context.CancelFunc
}

func (w *interrupter) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if strings.Contains(w.String(), w.at) {
		w.cancel()
	}
	return n, err
}

func TestInterruptedComparisonPrintsPreviousRuns(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	out := &interrupter{at: "implementation wheelnet,", cancel: cancel}
	var stderr bytes.Buffer
	code := heartbeat(ctx, strings.Fields("heartbeat -compare -conns 60 -timeout 150ms -duration 4400ms -bound 4s -silent 20"), out, &stderr)
	assert.Equal(t, exitRight, code, out.String())
	assert.Empty(t, stderr.String())
	got := rows(out.String())
	assert.Equal(t, []string{"none", "wheel", "wheelnet"}, column(got, 0))
	assert.Equal(t, []string{"-", "right", "interrupted"}, column(got, 8))
	assert.Regexp(t, "^[0-9]+ of 12$", got[1][1])
	assert.Empty(t, got[2][1])
}
