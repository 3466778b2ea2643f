package main

import (
	"math/rand/v2"
	"time"

	"go.uber.org/atomic"

	"github.com/timingwheel-go/timingwheel"
)

const (
	lifetime  = 5 * time.Minute // of an entry, on average
	hitsEvery = 50              // a hit for so many entries in a second makes one live longer
)

// cache has a time to live for each of its entries, which are numbers here: a wheel of theirs holds
// no pointer.
type cache struct {
	armed   atomic.Uint64 // first, where 32-bit systems align it
	wheel   *timingwheel.Timeouts[uint32]
	steady  float64 // entries to which the cache tends
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

// insert adds an entry. Lifetimes are exponential, so that those of a full cache look like those of
// new entries; one in a hundred lives for hours.
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
