package main

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Policy is the number of attempts of a job and the time between them.
type Policy struct {
	Base     time.Duration // longest wait before attempt 2, doubles for each further one; positive
	Cap      time.Duration // longest wait; at least Base
	Attempts int           // largest number of attempts, including the first; at least 1
}

func (p Policy) validate() error {
	switch {
	case p.Base <= 0:
		return fmt.Errorf("retries: Policy.Base is %v; it must be a positive duration", p.Base)
	case p.Cap < p.Base:
		return fmt.Errorf("retries: Policy.Cap is %v; it must be at least Base, %v", p.Cap, p.Base)
	case p.Attempts < 1:
		return fmt.Errorf("retries: Policy.Attempts is %d; it must be at least 1", p.Attempts)
	}
	return nil
}

// wait returns a random time from zero to the bound ("full jitter") for the wait after this number
// of failed attempts. Without jitter, clients that fail together when a server goes down would also
// retry together.
func (p Policy) wait(attempts int, rng *rand.Rand) time.Duration {
	return time.Duration(rng.Int64N(int64(p.bound(attempts)) + 1))
}

// bound returns Base, doubled for each attempt after the first, but at most Cap.
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

// Budget limits the share of retries in the load of a server. Backoff only spreads retries over
// time: with five attempts for each job, a server that is down gets five times the load. A Budget
// is a token bucket, which is full at first. A failure removes a token, a success adds a part of a
// token, and there are no retries while the bucket is at most half full. All jobs for a server
// share a Budget. All methods are safe for concurrent use.
type Budget struct {
	mu     sync.Mutex
	tokens float64
	size   float64
	refill float64
}

// NewBudget returns a full bucket of size tokens. Each success adds refill tokens: 0.1 allows one
// retry for ten successes in the long run. NewBudget panics if size is not positive or refill is
// negative.
func NewBudget(size int, refill float64) *Budget {
	switch {
	case size <= 0:
		panic(fmt.Sprintf("retries: NewBudget: size is %d; it must be positive", size))
	case !(refill >= 0):
		panic(fmt.Sprintf("retries: NewBudget: refill is %v; it must be at least 0", refill))
	}
	return &Budget{tokens: float64(size), size: float64(size), refill: refill}
}

func (b *Budget) success() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens = min(b.tokens+b.refill, b.size)
}

// failure reports whether a retry is allowed.
func (b *Budget) failure() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens = max(b.tokens-1, 0)
	return b.tokens > b.size/2
}
