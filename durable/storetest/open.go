package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/internal/testscale"
)

var openTests = []test{
	{"Open/Partitions", openPartitions},
	{"Open/DefaultPartitions", openDefaultPartitions},
	{"Open/OtherPartitions", openOtherPartitions},
	{"Open/Existing", openExisting},
	{"Open/Invalid", openInvalid},
	{"Close", closed},
}

func openPartitions(t *testing.T, newStore Factory) {
	f := newStore(t)
	for _, c := range []struct {
		queue string
		n     int
	}{{"one", 1}, {"seven-7", 7}, {"MOST_.-9", driver.MaxPartitions}} {
		config := config()
		config.Queue, config.Partitions = c.queue, c.n
		assert.Equal(t, c.n, openAs(t, f, config).Partitions(), c.queue)
		if c.n == driver.MaxPartitions && !testscale.Full() {
			continue // each opening makes a call for each partition of a Redis store
		}
		config.Partitions = 0
		assert.Equal(t, c.n, openAs(t, f, config).Partitions(), "%s: 0 accepts the existing number",
			c.queue)
	}
}

func openDefaultPartitions(t *testing.T, newStore Factory) {
	c := config()
	c.Partitions = 0
	assert.Equal(t, driver.DefaultPartitions, openAs(t, newStore(t), c).Partitions())
}

func openOtherPartitions(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	q.put(item("a", 0))
	c := config()
	c.Partitions = 5
	_, err := q.fixture.Store.Open(t.Context(), c)
	require.ErrorIs(t, err, driver.ErrPartitions)
	require.NotErrorIs(t, err, driver.ErrUnavailable)
	assert.Contains(t, err.Error(), "2", "the error names the existing number")
	assert.Contains(t, err.Error(), "5", "the error names the requested number")
	assert.Equal(t, int64(1), openAs(t, q.fixture, config()).count().Scheduled)
}

func openExisting(t *testing.T, newStore Factory) {
	f := newStore(t)
	c := config()
	c.Queue, c.Existing = "misspelt", true
	for range 2 {
		_, err := f.Store.Open(t.Context(), c)
		require.ErrorIs(t, err, driver.ErrNoQueue, "the call must not create a queue")
		assert.NotErrorIs(t, err, driver.ErrUnavailable)
		assert.Contains(t, err.Error(), c.Queue)
	}
	c.Existing, c.Partitions = false, 3
	openAs(t, f, c)
	c.Existing, c.Partitions = true, 0
	assert.Equal(t, 3, openAs(t, f, c).Partitions())
}

func openInvalid(t *testing.T, newStore Factory) {
	f := newStore(t)
	for name, spoil := range map[string]func(*driver.Config){
		"no queue":             func(c *driver.Config) { c.Queue = "" },
		"negative partitions":  func(c *driver.Config) { c.Partitions = -1 },
		"too many partitions":  func(c *driver.Config) { c.Partitions = driver.MaxPartitions + 1 },
		"no DeadLimit":         func(c *driver.Config) { c.DeadLimit = 0 },
		"negative DeadLimit":   func(c *driver.Config) { c.DeadLimit = -3 },
		"no DeadBytes":         func(c *driver.Config) { c.DeadBytes = 0 },
		"negative DeadBytes":   func(c *driver.Config) { c.DeadBytes = -3 },
		"no DeadAge":           func(c *driver.Config) { c.DeadAge = 0 },
		"negative age of dead": func(c *driver.Config) { c.DeadAge = -time.Second },
	} {
		c := config()
		spoil(&c)
		_, err := f.Store.Open(t.Context(), c)
		assert.ErrorIs(t, err, driver.ErrInvalid, name)
	}
}

func closed(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	q.put(item("a", 0))
	require.NoError(t, q.fixture.Store.Close())
	ctx := t.Context()
	calls := map[string]func() error{
		"Open":      func() error { _, err := q.fixture.Store.Open(ctx, config()); return err },
		"Put":       func() error { _, err := q.Put(ctx, driver.Put{Items: items("b", 1)}); return err },
		"Claim":     func() error { _, err := q.Claim(ctx, driver.Claim{Max: 1, MaxBytes: 1, Visibility: far}); return err },
		"Pause":     func() error { return q.Pause(ctx, driver.Pause{Paused: true}) },
		"Get":       func() error { _, err := q.Get(ctx, 0, "a"); return err },
		"List":      func() error { _, _, err := q.List(ctx, 0, driver.StateScheduled, "", 1); return err },
		"Count":     func() error { _, err := q.Count(ctx, 0); return err },
		"Heartbeat": func() error { _, err := q.Heartbeat(ctx, driver.Member{Name: "m"}, time.Second); return err },
		"Members":   func() error { _, err := q.Members(ctx); return err },
		"Watch":     func() error { _, err := q.Watch(ctx); return err },
		"Apply": func() error {
			_, err := q.Apply(ctx, driver.Batch{Op: driver.OpCancel, Changes: []driver.Change{{ID: "a"}}})
			return err
		},
	}
	if auditor, ok := q.Backend.(driver.Auditor); ok {
		calls["Audit"] = func() error { _, err := auditor.Audit(ctx, 0, false); return err }
		calls["Lost"] = func() error { _, err := auditor.Lost(ctx, 0); return err }
	}
	for name, call := range calls {
		assert.ErrorIs(t, call(), driver.ErrClosed, name)
	}
}
