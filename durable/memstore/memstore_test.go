package memstore_test

import (
	"sync"
	"testing"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
	"github.com/timingwheel-go/timingwheel/durable/storetest"
)

// clock is a clock that tests can move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

// newClock returns a clock that is between two milliseconds, so that wrong rounding shows.
func newClock() *clock { return &clock{now: time.Date(2030, 1, 2, 3, 4, 5, 678_901_234, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// fixture keeps the store across a restart, like a client of a server.
func fixture(t testing.TB) storetest.Fixture {
	t.Helper()
	c := newClock()
	s := memstore.New(memstore.Options{Now: c.Now})
	t.Cleanup(func() { _ = s.Close() })
	return storetest.Fixture{Store: s, Reopen: func(testing.TB) driver.Store { return s },
		Advance: c.Advance, Bubble: true}
}

func wallFixture(t testing.TB) storetest.Fixture {
	t.Helper()
	s := memstore.New(memstore.Options{})
	t.Cleanup(func() { _ = s.Close() })
	return storetest.Fixture{Store: s, Bubble: true}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, fixture)
}

func TestConformanceOnTheWallClock(t *testing.T) {
	t.Parallel()
	storetest.Run(t, wallFixture)
}

func FuzzModel(f *testing.F) { storetest.FuzzModel(f, fixture) }
