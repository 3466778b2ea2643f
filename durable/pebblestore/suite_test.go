package pebblestore

import (
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/storetest"
)

// movableClock stands still until it is moved.
type movableClock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *movableClock {
	return &movableClock{now: time.Date(2030, 1, 2, 3, 4, 5, 678_900_000, time.UTC)}
}

func (c *movableClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *movableClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func TestDirectoryPassesStoreSuite(t *testing.T) {
	t.Parallel()
	storetest.Run(t, newFixture)
}

func newFixture(t testing.TB) storetest.Fixture {
	t.Helper()
	clock := newClock()
	dir := t.TempDir()
	options := Options{now: clock.Now, NoSync: true, Memory: minMemory, Logger: slog.New(slog.DiscardHandler)}
	current, err := Open(dir, options)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, current.Close()) })
	fixture := storetest.Fixture{Store: current, Embedded: true, Advance: clock.Advance}
	fixture.Reopen = func(t testing.TB) driver.Store {
		t.Helper()
		require.NoError(t, current.Close())
		current, err = Open(dir, options)
		require.NoError(t, err)
		return current
	}
	return fixture
}
