package main

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestPlansFollowThePercentages(t *testing.T) {
	t.Parallel()
	cfg := defaults()
	cfg.seed = 1
	plans := newPlans(cfg)
	assert.Equal(t, [roles]int{stays: 4000, closes: 500, crashes: 250, silent: 250}, countRoles(plans))
	assert.Equal(t, plans, newPlans(cfg), "the same seed gives the same plans")
	other := cfg
	other.seed = 2
	assert.NotEqual(t, plans, newPlans(other))

	for _, p := range plans {
		last := cfg.duration
		if p.role == silent { // it may be late by an interval, and has to be cut before the end
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
	cfg.silent, cfg.closing, cfg.crash = 50, 50, 0 // each is rounded up to one connection
	assert.Equal(t, [roles]int{silent: 1}, countRoles(newPlans(cfg)))
	cfg.silent, cfg.closing, cfg.crash = 0, 0, 0
	assert.Equal(t, [roles]int{stays: 1}, countRoles(newPlans(cfg)))
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
