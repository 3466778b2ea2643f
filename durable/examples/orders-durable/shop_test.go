package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
)

// answering is a queue that says always the same.
type answering struct {
	timeouts
	result durable.Result
	err    error
}

func (a answering) cancel(context.Context, string) (durable.Result, error) { return a.result, a.err }

func TestPay(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		answer   durable.Result
		before   kind
		inTime   bool
		decision kind
	}{
		{"in time", durable.Cancelled, placed, true, paid},
		{"cancelled by a consumer that was killed before it acknowledged", durable.Cancelled, cancelled, false, cancelled},
		{"begun by a consumer that was killed before the effect", durable.Cancelled, delivered, true, paid},
		{"being cancelled", durable.Firing, delivered, false, ""},
		{"delivered and acknowledged", durable.NotFound, cancelled, false, cancelled},
		{"asked again, as a consumer was killed before it answered", durable.NotFound, placed, true, paid},
	} {
		_, j, _ := openBoth(t)
		write(t, j, tt.before, 1)
		s := &shop{journal: j, timeouts: answering{result: tt.answer}}
		inTime, err := s.pay(t.Context(), "o")
		require.NoError(t, err, tt.name)
		assert.Equal(t, tt.inTime, inTime, tt.name)
		assert.Equal(t, tt.decision, j.book.orders["o"].decision, tt.name)
	}
}

func TestPayFails(t *testing.T) {
	t.Parallel()
	_, j, _ := openBoth(t)
	broken := errors.New("broken")
	_, err := (&shop{journal: j, timeouts: answering{err: broken}}).pay(t.Context(), "o")
	require.ErrorIs(t, err, broken)
	_, err = (&shop{journal: j, timeouts: answering{result: 99}}).pay(t.Context(), "o")
	require.ErrorContains(t, err, "unknown result 99")
	assert.Empty(t, j.book.orders, "nothing was noted")
}

// broken breaks the queue below it.
type broken struct {
	timeouts
	loses  bool
	hasty  time.Duration
	revive bool // delivers what was taken back
}

func (b broken) enqueue(ctx context.Context, order string, due time.Time) error {
	if b.loses {
		return nil
	}
	return b.timeouts.enqueue(ctx, order, due.Add(-b.hasty))
}

func (b broken) cancel(ctx context.Context, order string) (durable.Result, error) {
	result, err := b.timeouts.cancel(ctx, order)
	if err == nil && b.revive {
		err = b.timeouts.enqueue(ctx, order, time.Now().Add(3*time.Second)) // when the payment is in the journal
	}
	return result, err
}

// An example that cannot fail shows nothing: a queue that is broken must be found. It is found however slow the machine is: a time to
// pay of an hour is not over when a consumer has started at last.
func TestBrokenQueueIsFound(t *testing.T) {
	t.Parallel()
	const never, atOnce = 0, 1
	for name, tt := range map[string]struct {
		broken  broken
		timeout time.Duration
		paysAt  time.Duration
		found   func(verdict) int
	}{
		"loses orders":     {broken{loses: true}, 500 * time.Millisecond, never, func(v verdict) int { return v.lost }},
		"delivers early":   {broken{hasty: time.Hour}, time.Hour, never, func(v verdict) int { return v.early }},
		"cancels for show": {broken{revive: true}, time.Hour, atOnce, func(v verdict) int { return v.wrongly }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config{orders: 40, over: 300 * time.Millisecond, timeout: tt.timeout} // no patience: what is lost is waited for in vain
			customers := draw(rand.New(rand.NewPCG(3, 0)), cfg)
			for i := range customers {
				customers[i].paysAt = tt.paysAt
			}
			v := playBroken(t, cfg, tt.broken, customers)
			assert.Positive(t, tt.found(v), "%v", v.faults)
		})
	}
	t.Run("is not broken", func(t *testing.T) {
		t.Parallel()
		cfg := config{orders: 40, over: 300 * time.Millisecond, timeout: 500 * time.Millisecond, patience: defaults().patience}
		assert.Empty(t, playBroken(t, cfg, broken{}, draw(rand.New(rand.NewPCG(3, 0)), cfg)).faults)
	})
}

// playBroken is play with a file and a kill, and with a queue that is broken on its way from the shop.
func playBroken(t *testing.T, cfg config, b broken, customers []customer) verdict {
	path, j, _ := openBoth(t)
	consumers := newSupervisor(job{newFile(t), defaults().queue, path}, t.Output())
	b.timeouts = remote{consumers}
	s := &shop{cfg: cfg, journal: j, timeouts: b, answers: make(map[string]bool)}
	require.NoError(t, s.open(t.Context(), consumers, customers, []time.Duration{200 * time.Millisecond}))
	book, err := readBook(path)
	require.NoError(t, err)
	return judge(cfg, book, s.answers)
}

func TestDraw(t *testing.T) {
	t.Parallel()
	for _, timeout := range []time.Duration{100 * time.Millisecond, time.Minute} {
		cfg := config{orders: 2000, over: time.Second, timeout: timeout}
		all := draw(rand.New(rand.NewPCG(1, 0)), cfg)
		assert.Equal(t, all, draw(rand.New(rand.NewPCG(1, 0)), cfg))
		require.Len(t, all, cfg.orders)
		never, names := 0, make(map[string]bool)
		for i, c := range all {
			names[c.order] = true
			assert.GreaterOrEqual(t, c.comes, all[max(0, i-1)].comes)
			assert.Less(t, c.comes, cfg.over)
			if c.paysAt == 0 {
				never++
			}
			assert.GreaterOrEqual(t, c.paysAt, time.Duration(0))
		}
		assert.Len(t, names, cfg.orders)
		assert.InDelta(t, 800, never, 200)
	}
}

func TestMoments(t *testing.T) {
	t.Parallel()
	ms := moments(rand.New(rand.NewPCG(1, 0)), 50, time.Second)
	require.Len(t, ms, 50)
	assert.IsIncreasing(t, ms)
	assert.GreaterOrEqual(t, ms[0], time.Duration(0))
	assert.Less(t, ms[49], time.Second)
	assert.Empty(t, moments(rand.New(rand.NewPCG(1, 0)), 0, time.Second))
}
