package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/examples/internal/programtest"
)

func TestParse(t *testing.T) {
	t.Parallel()
	cfg, ok, err := parse([]string{"hundredmillion"}, nil)
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, 100_000_000, cfg.n)
	assert.Positive(t, cfg.workers)

	cfg, ok, err = parse([]string{"hundredmillion", "-n", "1000", "--beat=1.5", "-stop", "2", "-expire", "96.5",
		"-window", "7s", "-lead=3s", "-workers", "9", "-seed", "18446744073709551615"}, nil)
	require.NoError(t, err)
	assert.True(t, ok)
	got := []any{cfg.n, cfg.beat, cfg.stop, cfg.expire, cfg.window, cfg.lead, cfg.workers, cfg.seed}
	assert.Equal(t, []any{1000, 1.5, 2.0, 96.5, 7 * time.Second, 3 * time.Second, 9, uint64(1<<64 - 1)}, got)
	assert.Equal(t, 7*time.Second, cfg.expireWindow())
	assert.Equal(t, 3*time.Second, cfg.leadTime(time.Second))
}

func TestBadOptionsAreRefused(t *testing.T) {
	t.Parallel()
	programtest.Refuses(t, hundredmillion, exitUsage, []programtest.Refusal{
		{[]string{"-n", "0"}, []string{`"0"`, "-n", "a whole number from 1 to 536870912"}},
		{[]string{"-n", "-1"}, []string{`"-1"`, "-n", "from 1 to 536870912"}},
		{[]string{"-n", "536870913"}, []string{`"536870913"`, "-n", "from 1 to 536870912"}},
		{[]string{"-n", "1e8"}, []string{`"1e8"`, "-n", "a whole number"}},
		{[]string{"-n", "99999999999999999999"}, []string{`"99999999999999999999"`, "-n", "from 1 to 536870912"}},
		{[]string{"-n"}, []string{"-n", "needs an argument"}},
		{[]string{"-beat", "101"}, []string{`"101"`, "-beat", "a number from 0 to 100"}},
		{[]string{"-stop", "-1"}, []string{`"-1"`, "-stop", "a number from 0 to 100"}},
		{[]string{"-expire", "NaN"}, []string{`"NaN"`, "-expire", "a number from 0 to 100"}},
		{[]string{"-beat", "60", "-stop", "30", "-expire", "20"}, []string{"-beat 60", "-stop 30", "-expire 20", "110 percent", "at most 100"}},
		{[]string{"-window", "5"}, []string{`"5"`, "-window", "a time from 0s to 10m0s"}},
		{[]string{"-window", "11m"}, []string{`"11m"`, "-window", "a time from 0s to 10m0s"}},
		{[]string{"-lead", "-1s"}, []string{`"-1s"`, "-lead", "a time from 0s to 30m0s"}},
		{[]string{"-workers", "0"}, []string{`"0"`, "-workers", "from 1 to 1024"}},
		{[]string{"-seed", "-1"}, []string{`"-1"`, "-seed", "a whole number from 0 to 18446744073709551615"}},
		{[]string{"-fast"}, []string{"-fast", "not defined"}},
		{[]string{"1000"}, []string{`"1000"`, "the program takes only options"}},
	})
}

func TestHelpNamesEveryOption(t *testing.T) {
	t.Parallel()
	cfg := defaults()
	var names []string
	for _, f := range options(&cfg) {
		names = append(names, f.Names()[0])
	}
	programtest.Helps(t, hundredmillion, names)
}

func TestDefaultTimes(t *testing.T) {
	t.Parallel()
	cfg := defaults()
	assert.Equal(t, 20*time.Second, cfg.expireWindow())
	cfg.n = 1000
	assert.Equal(t, 2*time.Second, cfg.expireWindow())
	assert.GreaterOrEqual(t, cfg.leadTime(0), 2*time.Second)
	assert.Less(t, cfg.leadTime(0), 3*time.Second)
	cfg.n, cfg.expire = maxTimers, 100
	assert.Equal(t, maxLead, cfg.leadTime(time.Second), "maximum")
}
