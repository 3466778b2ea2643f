package bench

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// standard implements Timers with package time.
type standard struct{}

func (standard) After(d time.Duration, _ uint64, f func()) *time.Timer { return time.AfterFunc(d, f) }
func (standard) Stop(t *time.Timer) bool                               { return t.Stop() }
func (standard) Reset(t *time.Timer, d time.Duration) bool             { return t.Reset(d) }
func (standard) Close()                                                {}

func openStandard(time.Duration, func(uint64)) (Timers[*time.Timer], error) { return standard{}, nil }

// faulty is an implementation whose After calls the function after, which may run the callback any
// number of times.
type faulty struct{ after func(id uint64, f func()) }

func (t faulty) After(_ time.Duration, id uint64, f func()) struct{} {
	t.after(id, f)
	return struct{}{}
}
func (faulty) Stop(struct{}) bool                 { return false }
func (faulty) Reset(struct{}, time.Duration) bool { return false }
func (faulty) Close()                             {}

func openFaulty(after func(id uint64, f func())) Open[struct{}] {
	return func(time.Duration, func(uint64)) (Timers[struct{}], error) { return faulty{after}, nil }
}

// longGrace is longer than any test.
const longGrace = time.Hour

// value returns the figure with the given unit.
func value(t *testing.T, figures []Figure, unit string) float64 {
	t.Helper()
	for _, f := range figures {
		if f.Unit == unit {
			return f.Value
		}
	}
	require.Fail(t, "no figure", "%s in %v", unit, figures)
	return 0
}

func TestWorkloadsReturnTheirFigures(t *testing.T) {
	for name, c := range map[string]struct {
		run  func(Config) ([]Figure, error)
		want []string
	}{
		"blocked": {func(c Config) ([]Figure, error) { return BusyBlocked(openStandard, c) },
			[]string{"late-ms", "late-max-ms", "early"}},
		"blocked waking": {func(c Config) ([]Figure, error) { return BusyBlockedWaking(openStandard, c) },
			[]string{"late-ms", "late-max-ms", "early"}},
		"stream": {func(c Config) ([]Figure, error) { return BusyStream(openStandard, c) },
			[]string{"late-p50-ms", "late-p99-ms", "late-max-ms", "early", "not-run", "twice"}},
		"spread": {func(c Config) ([]Figure, error) { return BusySpread(openStandard, c) },
			[]string{"late-p50-ms", "late-p99-ms", "late-max-ms", "early", "not-run", "twice"}},
		"reschedule": {func(c Config) ([]Figure, error) { return BusyCalls(openStandard, c, Calls{Reschedule, 2, 10_000}) },
			[]string{"over-1ms-%", "p99.9-ms", "worst-ms", "calls", "expiries/s", "early", "not-run", "twice"}},
		"rearm": {func(c Config) ([]Figure, error) { return BusyCalls(openStandard, c, Calls{Rearm, 2, 10_000}) },
			[]string{"over-1ms-%", "p99.9-ms", "worst-ms", "calls", "expiries/s", "early", "not-run", "twice"}},
		"nothing": {func(c Config) ([]Figure, error) { return BusyCalls(openStandard, c, Calls{Nothing, 2, 10_000}) },
			[]string{"over-1ms-%", "p99.9-ms", "worst-ms", "calls", "expiries/s", "early", "not-run", "twice"}},
	} {
		t.Run(name, func(t *testing.T) {
			phases := 0
			figures, err := c.run(Config{N: 64, Rounds: 2, Busy: 2, Grace: longGrace, Phase: func(string, ...any) { phases++ }})
			require.NoError(t, err)
			var units []string
			for _, f := range figures {
				units = append(units, f.Unit)
			}
			assert.Equal(t, c.want, units)
			for _, unit := range MistakeUnits {
				if len(figures) > 3 || unit == "early" {
					assert.Zero(t, value(t, figures, unit), unit)
				}
			}
			assert.Positive(t, phases)
		})
	}
}

func TestTimersThatDoNotRunAreCountedAndHaveNoLateness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := openFaulty(func(id uint64, f func()) {
			if id%4 > 0 {
				f()
			}
		})
		figures, err := BusySpread(open, Config{N: 64, Grace: time.Second})
		require.NoError(t, err)
		assert.Equal(t, []Figure{{48, "early"}, {16, "not-run"}, {0, "twice"}}, figures)
	})
}

func TestTimersThatRunTwiceAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := openFaulty(func(id uint64, f func()) {
			f()
			if id == 0 {
				f()
			}
		})
		figures, err := BusySpread(open, Config{N: 64, Grace: time.Second})
		require.NoError(t, err)
		assert.InDelta(t, 1, value(t, figures, "twice"), 0)
	})
}

func TestCallbackBehindBlockedOnesThatNeverRunsIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := make(chan func(), 64)
		go func() {
			for f := range queue {
				f()
			}
		}()
		defer close(queue)
		_, err := BusyBlocked(openFaulty(func(_ uint64, f func()) { queue <- f }), Config{N: 8, Rounds: 1, Grace: time.Second})
		require.ErrorIs(t, err, errBlocked)
	})
}
