package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCollisionByFormula(t *testing.T) {
	t.Parallel()
	assert.Zero(t, collisionByFormula(1, 8))
	assert.InDelta(t, 0.5, collisionByFormula(2, 2), 1e-9)
	assert.InDelta(t, 1, collisionByFormula(5, 1), 1e-9)
	assert.InDelta(t, 1-0.75*0.75, collisionByFormula(3, 4), 1e-9)
}

func TestStackAddressesCollideAboutAsOftenAsRandomNumbers(t *testing.T) {
	t.Parallel()
	addresses := stacks(1000)
	assert.Zero(t, collisionByStacks(addresses, 1, 8, 10))
	assert.InDelta(t, 1, collisionByStacks(addresses, 8, 1, 10), 1e-9)
	assert.Less(t, collisionByStacks(addresses, 8, 64, 300), 3*collisionByFormula(8, 64))
	assert.Less(t, collisionByStacks(addresses, 64, 256, 300), 3*collisionByFormula(64, 256))
	for _, a := range addresses {
		s := home(a, 7)
		assert.True(t, 0 <= s && s < 7)
	}
}

func TestSimulation(t *testing.T) {
	t.Parallel()
	alone := simulate(scenario{1, 8, 0.5, false, 20_000})
	assert.Zero(t, alone.movedOn)
	assert.Zero(t, alone.addWaits)
	assert.InDelta(t, 1, alone.throughput, 0.05)
	oneLock := simulate(scenario{8, 1, 0.5, false, 20_000})
	assert.InDelta(t, 2, oneLock.throughput, 0.1, "one lock that is always held: twice the throughput of one processor, which holds it half of the time")
	assert.Greater(t, oneLock.addWaits, 0.9)
	many := simulate(scenario{8, 1024, 0.5, true, 20_000})
	assert.InDelta(t, 8, many.throughput, 0.5)
	assert.Less(t, many.addWaits, 0.01)
	few, more := simulate(scenario{8, 8, 0.5, true, 20_000}), simulate(scenario{8, 32, 0.5, true, 20_000})
	assert.Less(t, more.stopWaits, few.stopWaits)
	assert.Less(t, more.movedOn, few.movedOn)
}

func TestTableHasARowForEachCombination(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	args := strings.Fields("-procs 2,4 -shards 8,16,32 -rounds 10 -operations 100 -markdown")
	assert.Equal(t, exitOK, collisions(args, &stdout, &stderr))
	assert.Equal(t, 2+6, strings.Count(stdout.String(), "\n"), "%s", &stdout)
	assert.Contains(t, stdout.String(), "| 4 | 32 | 9.1 |")
	assert.Equal(t, exitOK, collisions([]string{"-help"}, &stdout, &stderr))
}

func TestBadOptionsAreRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args string
		want []string
	}{
		{"-procs 0", []string{`"0"`, "-procs", "whole numbers from 1 to 1024"}},
		{"-procs 2,x", []string{`"2,x"`, "-procs", "from 1 to 1024"}},
		{"-shards 1025", []string{`"1025"`, "-shards", "from 1 to 1024"}},
		{"-held 0", []string{"0", "-held", "from 0.01 to 99"}},
		{"-held NaN", []string{"NaN", "-held", "from 0.01 to 99"}},
		{"-rounds 0", []string{"0", "-rounds", "from 1 to 1000000"}},
		{"-operations -1", []string{"-1", "-operations", "from 1 to 1000000"}},
		{"8", []string{`"8"`, "the program takes only options"}},
	} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, exitUsage, collisions(strings.Fields(tt.args), &stdout, &stderr), tt.args)
		assert.Empty(t, stdout.String())
		for _, w := range tt.want {
			assert.Contains(t, stderr.String(), w, tt.args)
		}
	}
}
