package main

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func testPlan(seed uint64) plan {
	cfg := defaults()
	cfg.seed, cfg.beat, cfg.stop, cfg.expire = seed, 20, 5, 10
	return newPlan(cfg, 3*time.Second, 2*time.Second)
}

func TestPlanHasTheRequestedShares(t *testing.T) {
	t.Parallel()
	const n = 200_000
	for _, seed := range []uint64{0, 1, math.MaxUint64} {
		p := testPlan(seed)
		var count [expires + 1]int
		var halves [expires + 1][2]int // deadlines in the halves of their range
		for id := range uint64(n) {
			f, due := p.of(id)
			again, dueAgain := p.of(id)
			if f != again || due != dueAgain {
				require.Fail(t, "different result of a second call", "seed %d timer %d", seed, id)
			}
			from, length := p.opens, p.window
			if f == stays {
				from, length = p.opens+p.window+farAhead, farAhead
			}
			if due < from || due >= from+length {
				require.Fail(t, "deadline out of range", "seed %d timer %d kind %d: %v", seed, id, f, due)
			}
			count[f]++
			halves[f][(due-from)/(length/2)]++
		}
		for f, percent := range map[kind]float64{stays: 65, beaten: 20, stopped: 5, expires: 10} {
			want := n * percent / 100
			assert.InDelta(t, want, count[f], 6*math.Sqrt(want), "seed %d kind %d", seed, f)
			assert.InDelta(t, want/2, halves[f][0], 6*math.Sqrt(want), "seed %d kind %d", seed, f)
		}
	}
}

func TestPlanWithASingleKind(t *testing.T) {
	t.Parallel()
	for want, set := range map[kind]func(*config){
		stays:   func(*config) {},
		beaten:  func(c *config) { c.beat = 100 },
		stopped: func(c *config) { c.stop = 100 },
		expires: func(c *config) { c.expire = 100 },
	} {
		cfg := config{}
		set(&cfg)
		p := newPlan(cfg, 0, time.Second)
		for id := range uint64(10_000) {
			if f, _ := p.of(id); f != want {
				require.Equal(t, want, f)
			}
		}
	}
}

func TestSeedsGiveDifferentPlans(t *testing.T) {
	t.Parallel()
	a, b := testPlan(1), testPlan(2)
	same := 0
	for id := range uint64(1000) {
		_, da := a.of(id)
		_, db := b.of(id)
		if da == db {
			same++
		}
	}
	assert.Less(t, same, 10)
}

func TestMixHasNoCollisions(t *testing.T) {
	t.Parallel()
	seen := map[uint64]bool{}
	for x := range uint64(100_000) {
		seen[mix(x)] = true
		seen[mix(^x)] = true
	}
	assert.Len(t, seen, 200_000)
}
