package durable

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/internal/testscale"
)

// counted returns a batcher whose calls take one second and are recorded in calls.
func counted(calls *[][]int) *batcher[int, string] {
	return &batcher[int, string]{
		key: strconv.Itoa,
		flush: func(_ context.Context, requests []int) ([]string, error) {
			time.Sleep(time.Second)
			*calls = append(*calls, append([]int(nil), requests...))
			results := make([]string, len(requests))
			for i, r := range requests {
				results[i] = strconv.Itoa(r)
			}
			return results, nil
		},
	}
}

func TestBatcherCombinesRequestsDuringACall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls [][]int
		b := counted(&calls)
		var all sync.WaitGroup
		ask := func(request int) {
			all.Go(func() {
				result, err := b.do(t.Context(), nil, request)
				assert.NoError(t, err)
				assert.Equal(t, strconv.Itoa(request), result)
			})
			synctest.Wait()
		}
		for i := range 600 {
			ask(i)
		}
		all.Wait()
		require.Len(t, calls, 4)
		assert.Len(t, calls[0], 1, "a single call does not wait")
		assert.Len(t, calls[1], driver.MaxBatch)
		assert.Len(t, calls[2], driver.MaxBatch)
		assert.Len(t, calls[3], 600-1-2*driver.MaxBatch)
		next := 0
		for _, c := range calls {
			for _, request := range c {
				assert.Equal(t, next, request, "in order of arrival")
				next++
			}
		}
	})
}

func TestBatcherPutsTheSameKeyIntoDifferentBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls [][]int
		b := counted(&calls)
		var got []string
		for _, request := range []int{9, 1, 2, 1, 3, 3} {
			b.send(request, func(result string, err error) {
				assert.NoError(t, err)
				got = append(got, result)
			})
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, [][]int{{9}, {1, 2}, {1, 3}, {3}}, calls)
		assert.Equal(t, []string{"9", "1", "2", "1", "3", "3"}, got)
	})
}

func TestBatcherBoundsBytesAndSeparatesKinds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls [][]int
		b := counted(&calls)
		b.size = func(r int) int { return r }
		b.alike = func(x, y int) bool { return x%2 == y%2 }
		for _, request := range []int{2, maxBatchBytes / 2, maxBatchBytes/2 - 2, 4, 5, 7, 10 * maxBatchBytes} {
			b.send(request, func(string, error) {})
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, [][]int{{2}, {maxBatchBytes / 2, maxBatchBytes/2 - 2}, {4}, {5, 7}, {10 * maxBatchBytes}}, calls)
	})
}

func TestBatcherFailsAllCallsOfABatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		b := &batcher[int, string]{key: strconv.Itoa, flush: func(context.Context, []int) ([]string, error) { return nil, broken }}
		for i := range 10 {
			_, err := b.do(t.Context(), nil, i)
			require.ErrorIs(t, err, broken)
		}
		slow := &batcher[int, string]{key: strconv.Itoa, flush: func(_ context.Context, r []int) ([]string, error) {
			time.Sleep(time.Hour)
			return make([]string, len(r)), nil
		}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := slow.do(ctx, nil, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(2 * time.Hour)
	})
}

// While the store does not answer, a call whose caller gave up keeps neither its request nor its
// place in the limiter.
func TestBatcherDropsCallsThatGaveUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls [][]int
		b := counted(&calls)
		l := &callLimiter{calls: 20_000, bytes: 1 << 30, maxWait: time.Hour}
		var all sync.WaitGroup
		for i := range testscale.Size(10_000) {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				_, err := b.do(ctx, l, i)
				assert.ErrorIs(t, err, context.DeadlineExceeded)
			})
		}
		all.Wait()
		b.mu.Lock()
		assert.Less(t, b.waiting.items.len(), 100, "retained calls")
		b.mu.Unlock()
		assert.LessOrEqual(t, l.usedCalls, driver.MaxBatch, "the calls that were sent")
		result, err := b.do(t.Context(), l, 42)
		require.NoError(t, err)
		assert.Equal(t, "42", result)
		require.Len(t, calls, 2)
		assert.Equal(t, []int{42}, calls[1])
		assert.Zero(t, l.usedCalls)
		assert.Zero(t, l.usedBytes)
	})
}
