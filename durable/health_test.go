package durable_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// checkedBackend is a backend whose Check returns state.
type checkedBackend struct {
	driver.Backend
	mu    *sync.Mutex
	state *error
}

func (c checkedBackend) Check(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return *c.state
}

// A store that has become unsafe is reported once, and again if it was safe in between or if the
// reason changes.
func TestUnsafeStoreIsReportedOnce(t *testing.T) {
	t.Parallel()
	var (
		mu       sync.Mutex
		state    error
		reported []string
	)
	options := durable.Options{Partitions: 1, OnError: func(err error) {
		mu.Lock()
		defer mu.Unlock()
		assert.ErrorIs(t, err, durable.ErrUnsafe)
		reported = append(reported, err.Error())
	}}
	bubbleOf(t, func(b driver.Backend) driver.Backend { return checkedBackend{b, &mu, &state} }, options, func(t *testing.T, _ *durable.Queue) {
		for _, step := range []struct {
			err  error
			want int
		}{
			{nil, 0},
			{fmt.Errorf("%w: evicts", durable.ErrUnsafe), 1},
			{fmt.Errorf("%w: evicts", durable.ErrUnsafe), 1},
			{fmt.Errorf("%w: no longer there", durable.ErrUnavailable), 1},
			{fmt.Errorf("%w: evicts", durable.ErrUnsafe), 1},
			{fmt.Errorf("%w: keeps nothing", durable.ErrUnsafe), 2},
			{nil, 2},
			{fmt.Errorf("%w: keeps nothing", durable.ErrUnsafe), 3},
		} {
			mu.Lock()
			state = step.err
			mu.Unlock()
			time.Sleep(time.Minute + time.Second)
			mu.Lock()
			require.Len(t, reported, step.want, "%v", step.err)
			mu.Unlock()
		}
	})
}

// A store rejects only hints: the queue reports it once and is healthy. The first check follows
// Open, and the checks of an unsafe store are more frequent.
func TestStoreWithoutHintsIsReportedAndHealthy(t *testing.T) {
	t.Parallel()
	var (
		mu       sync.Mutex
		state    = fmt.Errorf("hints: %w", errors.ErrUnsupported)
		reported []string
	)
	options := durable.Options{Partitions: 1, OnError: func(err error) {
		mu.Lock()
		defer mu.Unlock()
		reported = append(reported, err.Error())
	}}
	bubbleOf(t, func(b driver.Backend) driver.Backend { return checkedBackend{b, &mu, &state} }, options, func(t *testing.T, q *durable.Queue) {
		for _, step := range []struct {
			err     error
			after   time.Duration
			want    int
			healthy bool
		}{
			{state, time.Second, 1, true},
			{state, time.Hour, 1, true},
			{fmt.Errorf("%w: no replicas", durable.ErrUnsafe), 61 * time.Second, 2, false},
			{nil, 6 * time.Second, 2, true},
			{fmt.Errorf("%w: no replicas", durable.ErrUnsafe), 61 * time.Second, 3, false},
			{state, 6 * time.Second, 4, true},
		} {
			mu.Lock()
			state = step.err
			mu.Unlock()
			time.Sleep(step.after)
			mu.Lock()
			require.Len(t, reported, step.want, "%+v", step)
			mu.Unlock()
			require.Equal(t, step.healthy, q.Healthy(t.Context()) == nil, "%+v", step)
		}
	})
}

// A store rejects hints: the consumer reports each reason once and asks less and less often, works
// without hints, and uses them when the store accepts them again.
func TestRejectedHintsAreReportedOnce(t *testing.T) {
	t.Parallel()
	var (
		mu       sync.Mutex
		reported []string
	)
	options := durable.Options{Partitions: 1, OnError: func(err error) {
		mu.Lock()
		defer mu.Unlock()
		reported = append(reported, err.Error())
	}}
	faultyBubble(t, options, func(t *testing.T, q *durable.Queue, f *faulty) {
		f.set(failing("Watch", errors.New("no permission")))
		got := make(chan time.Time, 1)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- q.Consume(ctx, func(context.Context, *durable.Delivery) error { got <- time.Now(); return nil }, durable.ConsumerOptions{})
		}()
		time.Sleep(time.Hour)
		assert.Less(t, f.count("Watch"), int64(75))
		sent := time.Now()
		_, err := q.Enqueue(t.Context(), durable.Message{ID: "a"})
		require.NoError(t, err)
		assert.LessOrEqual(t, (<-got).Sub(sent), 2*time.Second)
		f.set(failing("Watch", errors.New("unknown command")))
		time.Sleep(time.Hour)
		f.set(failing("none", nil))
		time.Sleep(61 * time.Second)
		sent = time.Now()
		_, err = q.Enqueue(t.Context(), durable.Message{ID: "b"})
		require.NoError(t, err)
		assert.Less(t, (<-got).Sub(sent), 100*time.Millisecond, "by a hint")
		cancel()
		require.NoError(t, <-ended)
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, reported, 2, "%q", reported)
		assert.Contains(t, reported[0], "watch: no permission")
		assert.Contains(t, reported[1], "watch: unknown command")
	})
}

// Healthy queries each partition, and returns the result of the last check of the store.
func TestHealthyNamesTheFaultAndTheRemedy(t *testing.T) {
	t.Parallel()
	var (
		mu    sync.Mutex
		state error
	)
	set := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		state = err
	}
	options := durable.Options{Partitions: 2, OnError: func(error) {}}
	bubbleOf(t, func(b driver.Backend) driver.Backend { return checkedBackend{b, &mu, &state} }, options, func(t *testing.T, q *durable.Queue) {
		require.NoError(t, q.Healthy(t.Context()))
		require.NoError(t, q.Pause(t.Context()))
		require.NoError(t, q.Healthy(t.Context()), "a paused queue is healthy")
		set(fmt.Errorf("%w: set maxmemory-policy to noeviction", durable.ErrUnsafe))
		time.Sleep(61 * time.Second)
		err := q.Healthy(t.Context())
		require.ErrorIs(t, err, durable.ErrUnsafe)
		require.ErrorContains(t, err, `queue "default" is not healthy: `)
		require.ErrorContains(t, err, "noeviction", "the remedy")
		set(durable.ErrUnavailable)
		time.Sleep(time.Minute)
		require.ErrorIs(t, q.Healthy(t.Context()), durable.ErrUnsafe, "the store is not known to be safe again")
		set(nil)
		time.Sleep(time.Minute)
		require.NoError(t, q.Healthy(t.Context()))
		q.Close()
		require.ErrorIs(t, q.Healthy(t.Context()), durable.ErrClosed)
	})
	faultyBubble(t, durable.Options{Partitions: 3}, func(t *testing.T, q *durable.Queue, f *faulty) {
		require.NoError(t, q.Healthy(t.Context()))
		require.EqualValues(t, 3, f.count("Get"), "one call for each partition")
		var n atomic.Int64
		f.set(func(call string) (before, after error) {
			if call == "Get" && n.Add(1) == 2 { // one server of a Cluster is unreachable
				return errDown, nil
			}
			return nil, nil
		})
		err := q.Healthy(t.Context())
		require.ErrorIs(t, err, durable.ErrUnavailable)
		require.ErrorContains(t, err, "check that it is running")
		require.NoError(t, q.Healthy(t.Context()))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, q.Healthy(ctx), context.Canceled)
	})
}

// While a fault is being reported, Healthy already returns it, except during the first check, for
// which Healthy waits.
func TestHealthyReturnsWhatIsReported(t *testing.T) {
	t.Parallel()
	var (
		mu       sync.Mutex
		state    error
		reported chan error // of the bubble
	)
	options := durable.Options{Partitions: 1, OnError: func(err error) {
		reported <- err
		reported <- nil // after the test has called Healthy
	}}
	bubbleOf(t, func(b driver.Backend) driver.Backend { return checkedBackend{b, &mu, &state} }, options, func(t *testing.T, q *durable.Queue) {
		reported = make(chan error)
		require.NoError(t, q.Healthy(t.Context()))
		for _, reason := range []string{"evicts", "keeps nothing"} {
			mu.Lock()
			state = fmt.Errorf("%w: %s", durable.ErrUnsafe, reason)
			mu.Unlock()
			require.ErrorContains(t, <-reported, reason)
			require.ErrorContains(t, q.Healthy(t.Context()), reason)
			<-reported
		}
	})
}

// lossyBackend is a backend that has lost messages of partition 1.
type lossyBackend struct {
	driver.Backend
	lost *atomic.Int64 // negative: the store cannot be reached
}

func (b lossyBackend) Lost(_ context.Context, partition int) (count uint64, damage, err error) {
	if n := b.lost.Load(); n < 0 {
		return 0, nil, durable.ErrUnavailable
	} else if partition == 1 {
		return uint64(n), nil, nil
	}
	return 0, nil, nil
}

func (lossyBackend) Audit(context.Context, int, bool) (driver.AuditReport, error) {
	return driver.AuditReport{Records: 1}, nil
}

// Messages that are lost while the queue is open are reported once, with their number.
func TestLostMessagesAreReportedOnce(t *testing.T) {
	t.Parallel()
	var (
		lost     atomic.Int64
		mu       sync.Mutex
		reported []string
	)
	lost.Store(3) // before the queue was opened
	options := durable.Options{Partitions: 2, OnError: func(error) {}, OnEvent: func(e durable.Event) {
		mu.Lock()
		defer mu.Unlock()
		assert.Equal(t, 1, e.Partition)
		reported = append(reported, e.Err.Error())
	}}
	bubbleOf(t, func(b driver.Backend) driver.Backend { return lossyBackend{b, &lost} }, options, func(t *testing.T, q *durable.Queue) {
		time.Sleep(time.Second)
		var want []string
		for _, step := range []struct {
			lost int64
			want string
		}{{3, ""}, {5, "2 messages are lost"}, {5, ""}, {-1, ""}, {9, "4 messages are lost"}, {9, ""}} {
			lost.Store(step.lost)
			time.Sleep(time.Minute)
			if step.want != "" {
				want = append(want, `durable: queue "default": partition 1: `+step.want)
			}
			mu.Lock()
			require.Len(t, reported, len(want), "%+v", step)
			for i := range want {
				require.Contains(t, reported[i], want[i])
			}
			mu.Unlock()
		}
		s, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 9, s.Lost)
		assert.EqualValues(t, 9, s.Partitions[1].Lost)
		report, err := q.Audit(t.Context(), false)
		require.NoError(t, err)
		assert.Equal(t, driver.AuditReport{Records: 2}, report)
	})
}

// damagedBackend is a backend that has lost keys of partition 1. Its check takes a second.
type damagedBackend struct {
	driver.Backend
	mu     *sync.Mutex
	damage *error
	claims *atomic.Int64 // the claims that break off and say that something was lost
}

func (damagedBackend) Check(context.Context) error {
	time.Sleep(time.Second)
	return nil
}

func (b damagedBackend) Lost(_ context.Context, partition int) (n uint64, damage, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if partition == 1 && *b.damage != nil {
		return 1, *b.damage, nil
	}
	return 0, nil, nil
}

func (b damagedBackend) Audit(context.Context, int, bool) (driver.AuditReport, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*b.damage = nil
	return driver.AuditReport{}, nil
}

func (b damagedBackend) Claim(ctx context.Context, c driver.Claim) (driver.Claimed, error) {
	if b.claims.Add(-1) >= 0 {
		return driver.Claimed{Lost: true}, errDown
	}
	return b.Backend.Claim(ctx, c)
}

// Keys are lost before a queue is opened, and then under a consumer, whose claim says so even if it
// fails. The first call to Healthy waits for the check that follows Open. Each damage is reported
// once, and within a Fallback. Healthy fails until an audit, unless the store accepts the loss.
func TestLostKeysAreReportedOnce(t *testing.T) {
	t.Parallel()
	var (
		mu       sync.Mutex
		damage   = fmt.Errorf("%w: key one", durable.ErrUnsafe)
		claims   atomic.Int64
		reported []string
	)
	options := durable.Options{Partitions: 2, OnError: func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if !errors.Is(err, durable.ErrUnavailable) {
			reported = append(reported, err.Error())
		}
	}}
	expect := func(n int, text string) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, reported, n)
		require.Equal(t, `durable: queue "default": partition 1: `+text, reported[n-1])
	}
	bubbleOf(t, func(b driver.Backend) driver.Backend { return damagedBackend{b, &mu, &damage, &claims} }, options, func(t *testing.T, q *durable.Queue) {
		require.ErrorIs(t, q.Healthy(t.Context()), durable.ErrUnsafe, "as in delayq health")
		expect(1, "messages may be lost: key one")
		s, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 1, s.Lost)
		_, err = q.Audit(t.Context(), true)
		require.NoError(t, err)
		time.Sleep(7 * time.Second)
		require.NoError(t, q.Healthy(t.Context()))

		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- q.Consume(ctx, func(context.Context, *durable.Delivery) error { return nil }, durable.ConsumerOptions{})
		}()
		for n, lost := range []error{fmt.Errorf("%w: key two", durable.ErrUnsafe), errors.New("key three")} {
			mu.Lock()
			damage = lost
			mu.Unlock()
			claims.Store(1)
			time.Sleep(3 * time.Second)
			expect(n+2, lost.Error())
			require.Equal(t, n == 1, q.Healthy(t.Context()) == nil)
			time.Sleep(time.Hour)
			expect(n+2, lost.Error())
		}
		cancel()
		require.NoError(t, <-ended)
		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, q.Healthy(ctx), context.Canceled)
	})
}

// A store need not have an audit.
func TestAuditOfStoreWithoutOneIsUnsupported(t *testing.T) {
	t.Parallel()
	type plain struct{ driver.Backend }
	bubbleOf(t, func(b driver.Backend) driver.Backend { return plain{b} }, durable.Options{}, func(t *testing.T, q *durable.Queue) {
		_, err := q.Audit(t.Context(), true)
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.ErrorContains(t, err, `"default" has no audit`)
		_, err = q.Stats(t.Context())
		require.NoError(t, err)
	})
}
