package main

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Policy says how often a job is tried, and how long it waits in between.
type Policy struct {
	Base     time.Duration // the longest wait before the second attempt; it doubles from there. Must be positive
	Cap      time.Duration // the longest wait at all. At least Base
	Attempts int           // how many there are at most, the first included. At least 1
}

func (p Policy) validate() error {
	switch {
	case p.Base <= 0:
		return fmt.Errorf("retries: Policy.Base is %v; accepted is a positive duration", p.Base)
	case p.Cap < p.Base:
		return fmt.Errorf("retries: Policy.Cap is %v; accepted is at least Base, %v", p.Cap, p.Base)
	case p.Attempts < 1:
		return fmt.Errorf("retries: Policy.Attempts is %d; accepted is at least 1", p.Attempts)
	}
	return nil
}

// wait draws how long to wait after so many attempts, of which all have failed: anything from zero
// to the bound, "full jitter". Clients that failed together, as they do when a server goes down,
// would otherwise come back together, time after time.
func (p Policy) wait(attempts int, rng *rand.Rand) time.Duration {
	return time.Duration(rng.Int64N(int64(p.bound(attempts)) + 1))
}

// bound is Base doubled for each attempt after the first, and at most Cap.
func (p Policy) bound(attempts int) time.Duration {
	d := p.Base
	for ; attempts > 1 && d < p.Cap; attempts-- {
		if d > p.Cap/2 { // doubling might overflow
			return p.Cap
		}
		d *= 2
	}
	return min(d, p.Cap)
}

// Budget bounds the share of retries in what a server has to bear. Backoff only spreads them: with
// five attempts each, a server that is down gets five times the load at the moment when it can bear
// least. A token bucket begins full; a failure takes a token out, a success puts a part of one in,
// and while it is half empty or worse nothing is tried again. Share one among all jobs for a
// server. All methods may be called from any goroutine.
type Budget struct {
	mu     sync.Mutex
	tokens float64
	size   float64
	refill float64
}

// NewBudget returns a full bucket of so many tokens, where each success gives refill of one back:
// 0.1 allows one retry for ten successes in the long run. It panics where size is not positive or
// refill is negative.
func NewBudget(size int, refill float64) *Budget {
	if size <= 0 || !(refill >= 0) {
		panic(fmt.Sprintf("retries: NewBudget(%d, %v): accepted are a positive size and a refill of at least 0", size, refill))
	}
	return &Budget{tokens: float64(size), size: float64(size), refill: refill}
}

func (b *Budget) success() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens = min(b.tokens+b.refill, b.size)
}

// failure reports whether there may be a retry.
func (b *Budget) failure() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens = max(b.tokens-1, 0)
	return b.tokens > b.size/2
}
