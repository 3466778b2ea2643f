package main

import (
	"testing"

	"github.com/timingwheel-go/timingwheel/examples/internal/option"
	"github.com/timingwheel-go/timingwheel/examples/internal/programtest"
)

func TestBadOptionsAreRefused(t *testing.T) {
	t.Parallel()
	programtest.Refuses(t, dashboard, option.ExitUsage, []programtest.Refusal{
		{Args: []string{"-addr", "nowhere"}, Want: []string{"-addr", "nowhere", "a host and a port"}},
		{Args: []string{"-for", "-1s"}, Want: []string{"for", "-1s", "from 0s to 24h"}},
		{Args: []string{"-conns", "0"}, Want: []string{"conns", "0", "from 1 to 1000000"}},
		{Args: []string{"-requests", "many"}, Want: []string{"requests", "many", "a whole number"}},
		{Args: []string{"-entries", "1e9"}, Want: []string{"entries", "1e9"}},
		{Args: []string{"now"}, Want: []string{"unexpected argument", "now"}},
	})
}

func TestHelpNamesEveryOption(t *testing.T) {
	t.Parallel()
	cfg := defaults()
	var names []string
	for _, flag := range options(&cfg) {
		names = append(names, flag.Names()[0])
	}
	programtest.Helps(t, dashboard, names)
}
