package main

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestPlansDealTheShares(t *testing.T) {
	t.Parallel()
	cfg := defaults()
	cfg.seed = 1
	plans := newPlans(cfg)
	assert.Equal(t, [fates]int{stays: 4000, closes: 500, crashes: 250, silent: 250}, countFates(plans))
	assert.Equal(t, plans, newPlans(cfg), "the seed decides")
	other := cfg
	other.seed = 2
	assert.NotEqual(t, plans, newPlans(other))

	for _, p := range plans {
		last := cfg.duration
		if p.fate == silent { // late by an interval, it can still be cut before the end
			last -= longestInterval(cfg.timeout) + cfg.timeout + cfg.bound
		}
		assert.GreaterOrEqual(t, p.at, time.Duration(0))
		assert.LessOrEqual(t, p.at, last)
	}
}

func TestPlansNeverExceedTheConnections(t *testing.T) {
	t.Parallel()
	cfg := defaults()
	cfg.conns = 1
	cfg.silent, cfg.closing, cfg.crash = 50, 50, 0 // each rounds up to the one connection
	assert.Equal(t, [fates]int{silent: 1}, countFates(newPlans(cfg)))
	cfg.silent, cfg.closing, cfg.crash = 0, 0, 0
	assert.Equal(t, [fates]int{stays: 1}, countFates(newPlans(cfg)))
}

func TestShortestDurationLeavesTimeToGoSilent(t *testing.T) {
	t.Parallel()
	cfg := defaults()
	cfg.timeout, cfg.bound = 100*time.Millisecond, time.Minute
	cfg.duration = 2*cfg.timeout + cfg.bound
	assert.NoError(t, cfg.validate())
	assert.NotPanics(t, func() { newPlans(cfg) })
}

func TestIntervalIsAtMostAQuarter(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	const timeout = 400 * time.Millisecond
	longest := time.Duration(0)
	for range 10_000 {
		d := interval(rng, timeout)
		assert.GreaterOrEqual(t, d, timeout/16)
		longest = max(longest, d)
	}
	assert.LessOrEqual(t, longest, timeout/4)
	assert.Greater(t, longest, timeout/5)
}
