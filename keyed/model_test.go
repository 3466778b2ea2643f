package keyed

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// model compares a Keys with a reference: a plain map with the deadline of each key and whether its
// timer has been claimed.
type model struct {
	t     assert.TestingT
	h     *heldKeys
	begin time.Time
	keys  map[string]*reference
}

type reference struct {
	deadline  time.Time
	dueAtOnce bool // due when it was set
	claimed   bool
}

// withoutHelper hides the method Helper of a test, which takes a third of a model's time. A failure
// prints its stack anyway.
type withoutHelper struct{ assert.TestingT }

func newModel(t *testing.T) *model {
	h := newHeldKeys(t)
	t.Cleanup(h.Stop)
	return &model{t: withoutHelper{t}, h: h, begin: h.Now(), keys: map[string]*reference{}}
}

func (m *model) set(key string, d time.Duration) {
	_, present := m.keys[key]
	assert.Equal(m.t, !present, m.h.Set(key, d), "Set(%s, %v)", key, d)
	m.rearm(key, d)
}

func (m *model) touch(key string, d time.Duration) {
	_, present := m.keys[key]
	assert.Equal(m.t, present, m.h.Touch(key, d), "Touch(%s, %v)", key, d)
	if present {
		m.rearm(key, d)
	}
}

func (m *model) rearm(key string, d time.Duration) {
	m.keys[key] = &reference{deadline: m.h.Now().Add(max(d, 0)), dueAtOnce: d <= 0}
	m.check()
}

func (m *model) remove(key string) {
	_, present := m.keys[key]
	assert.Equal(m.t, present, m.h.Delete(key), "Delete(%s)", key)
	delete(m.keys, key)
	m.check()
}

// pass advances the clock and checks which keys are claimed. Between the deadline of a key and the
// end of its tick the wheel may claim the key or not.
func (m *model) pass(d time.Duration) {
	before := len(m.h.batches)
	m.h.pass(d)
	claimed := map[string]bool{}
	for _, batch := range m.h.batches[before:] {
		for _, key := range batch {
			assert.False(m.t, claimed[key], "%s is claimed twice", key)
			claimed[key] = true
		}
	}
	now := m.h.Now()
	for key, r := range m.keys {
		tick := m.begin.Add((r.deadline.Sub(m.begin) + ms - 1) / ms * ms)
		switch {
		case r.claimed:
			assert.False(m.t, claimed[key], "%s is claimed again", key)
		case r.dueAtOnce || !tick.After(now):
			assert.True(m.t, claimed[key], "%s is due and not claimed", key)
		case r.deadline.After(now):
			assert.False(m.t, claimed[key], "%s is early by %v", key, r.deadline.Sub(now))
		}
		r.claimed = r.claimed || claimed[key]
		delete(claimed, key)
	}
	assert.Empty(m.t, claimed, "absent keys are claimed")
	m.check()
}

func (m *model) sweepOldest() {
	if len(m.h.batches) > 0 {
		m.sweepAt(0)
	}
}

func (m *model) sweepNewest() {
	if n := len(m.h.batches); n > 0 {
		m.sweepAt(n - 1)
	}
}

// sweepAt sweeps a batch and checks that keys in it are reported if their current timer has been
// claimed, even if the batch holds an older timer of the key.
func (m *model) sweepAt(i int) {
	var want []string
	for _, key := range m.h.batches[i] {
		if r := m.keys[key]; r != nil && r.claimed {
			want = append(want, key)
			delete(m.keys, key)
		}
	}
	assert.Equal(m.t, want, m.h.sweepOne(i))
	m.check()
}

// check compares all results with the reference.
func (m *model) check() {
	assert.Equal(m.t, len(m.keys), m.h.Len())
	pending := map[string]time.Time{}
	for key, r := range m.keys {
		assert.True(m.t, m.h.Has(key))
		deadline, ok := m.h.Deadline(key)
		assert.Equal(m.t, !r.claimed, ok)
		if ok {
			// The deadline is rounded up to a tick. A deadline in the past becomes the tick at
			// which the timer was armed.
			assert.Less(m.t, deadline.Sub(r.deadline).Abs(), time.Millisecond, "%s: %v instead of %v", key, deadline, r.deadline)
			pending[key] = deadline
			continue
		}
		// The key is not lost if a batch that contains it has yet to be swept.
		assert.True(m.t, slices.ContainsFunc(m.h.batches, func(batch []string) bool { return slices.Contains(batch, key) }), "%s is lost", key)
	}
	assert.Equal(m.t, pending, maps.Collect(m.h.All()))
	assert.Equal(m.t, len(pending), m.h.Stats().Pending)
}

// finish advances the clock and sweeps until all keys have expired.
func (m *model) finish() {
	for len(m.h.batches) > 0 {
		m.sweepNewest()
	}
	m.pass(3 * time.Hour)
	for len(m.h.batches) > 0 {
		m.sweepOldest()
	}
	assert.Empty(m.t, m.keys)
	assert.Zero(m.t, m.h.Len())
}
