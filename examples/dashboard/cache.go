package main

import (
	"math/rand/v2"
	"time"

	"go.uber.org/atomic"

	"github.com/timingwheel-go/timingwheel"
)

const (
	lifetime  = 5 * time.Minute // mean lifetime of an entry
	hitsEvery = 50              // each second one entry in hitsEvery is used and lives longer
)

// cache has a time to live for each entry. The entries are numbers, so the wheel holds no pointers.
type cache struct {
	armed   atomic.Uint64 // first field: aligned on 32-bit systems
	wheel   *timingwheel.Timeouts[uint32]
	steady  float64 // number of entries in the steady state
	inserts quota
	hits    quota
	recent  []timingwheel.Timer // some of the entries
	key     uint32
}

func newCache(cfg config) (*cache, error) {
	w, err := timingwheel.NewTimeouts(timingwheel.Options{Tick: 10 * time.Millisecond, ProfileRate: 512}, func([]uint32) {})
	if err != nil {
		return nil, err
	}
	c := &cache{wheel: w, steady: float64(cfg.entries), recent: make([]timingwheel.Timer, 4096)}
	for range cfg.entries {
		c.insert()
	}
	return c, nil
}

// insert adds an entry. Lifetimes are exponential, so the remaining lifetimes in a full cache have
// the distribution of new ones. One entry in a hundred lives for hours.
func (c *cache) insert() {
	ttl := time.Duration(rand.ExpFloat64() * float64(lifetime))
	if rand.IntN(100) == 0 {
		ttl += rand.N(12 * time.Hour)
	}
	c.key++
	c.recent[int(c.key)%len(c.recent)] = c.wheel.Add(ttl+time.Second, c.key)
	c.armed.Inc()
}

func (c *cache) step(seconds float64) {
	for range c.inserts.take(c.steady/lifetime.Seconds(), seconds) {
		c.insert()
	}
	for range c.hits.take(c.steady/hitsEvery, seconds) {
		c.recent[rand.IntN(len(c.recent))].Reschedule(lifetime)
	}
}

func (c *cache) stop() { c.wheel.Stop() }
