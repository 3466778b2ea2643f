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
)

// counted is a batcher whose calls take a second, and what was called.
func counted(calls *[][]int) *batcher[int, string] {
	return &batcher[int, string]{
		key: strconv.Itoa,
		flush: func(requests []int) ([]string, error) {
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

func TestBatcherGathersWhatComesDuringACall(t *testing.T) {
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
		assert.Len(t, calls[0], 1, "whoever comes alone does not wait")
		assert.Len(t, calls[1], driver.MaxBatch)
		assert.Len(t, calls[2], driver.MaxBatch)
		assert.Len(t, calls[3], 600-1-2*driver.MaxBatch)
		next := 0
		for _, c := range calls {
			for _, request := range c {
				assert.Equal(t, next, request, "in the order in which they came")
				next++
			}
		}
	})
}

func TestBatcherKeepsTheSameKeyApart(t *testing.T) {
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

func TestBatcherTellsAllOfAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		b := &batcher[int, string]{key: strconv.Itoa, flush: func([]int) ([]string, error) { return nil, broken }}
		for i := range 10 {
			_, err := b.do(t.Context(), nil, i)
			require.ErrorIs(t, err, broken)
		}
		slow := &batcher[int, string]{key: strconv.Itoa, flush: func(r []int) ([]string, error) {
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

// Calls whose callers have given up while the store does not answer are not kept, nor what they
// asked for, nor their place in the room.
func TestBatcherForgetsCallsThatHaveLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls [][]int
		b := counted(&calls)
		r := &room{calls: 20_000, bytes: 1 << 30, patience: time.Hour}
		var all sync.WaitGroup
		for i := range 10_000 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				_, err := b.do(ctx, r, i)
				assert.ErrorIs(t, err, context.DeadlineExceeded)
			})
		}
		all.Wait()
		b.mu.Lock()
		assert.Less(t, b.waiting.size(), 100, "calls that are kept")
		b.mu.Unlock()
		assert.LessOrEqual(t, r.usedCalls, driver.MaxBatch, "those that were sent")
		result, err := b.do(t.Context(), r, 42)
		require.NoError(t, err)
		assert.Equal(t, "42", result)
		require.Len(t, calls, 2)
		assert.Equal(t, []int{42}, calls[1])
		assert.Zero(t, r.usedCalls)
		assert.Zero(t, r.usedBytes)
	})
}

// What waits for room and gives up does not hold up those behind it.
func TestRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &room{calls: 3, bytes: 100, patience: time.Minute}
		require.NoError(t, r.enter(t.Context(), 60))
		assert.False(t, r.tryEnter(60))
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { assert.ErrorIs(t, r.enter(ctx, 60), context.Canceled) })
		synctest.Wait()
		all.Go(func() { assert.NoError(t, r.enter(t.Context(), 10)) })
		synctest.Wait()
		assert.False(t, r.tryEnter(1), "those that wait come first")
		assert.Equal(t, 1, r.usedCalls)
		cancel()
		all.Wait()
		assert.Equal(t, [2]int{2, 70}, [2]int{r.usedCalls, r.usedBytes})
		require.True(t, r.tryEnter(30))
		assert.False(t, r.tryEnter(0), "there are three")
		for _, bytes := range []int{60, 10, 30} {
			r.leave(bytes)
		}
		require.True(t, r.tryEnter(1000), "one that is too large is alone")
		assert.False(t, r.tryEnter(0))
		start := time.Now()
		require.ErrorIs(t, r.enter(t.Context(), 1), ErrBusy)
		assert.Equal(t, time.Minute, time.Since(start))
		all.Go(func() { assert.ErrorIs(t, r.enter(t.Context(), 1), ErrBusy) })
		synctest.Wait()
		start = time.Now()
		r.outage(1)
		all.Wait()
		require.ErrorIs(t, r.enter(t.Context(), 1), ErrBusy)
		assert.Zero(t, time.Since(start), "nobody waits while the store is away")
		r.outage(-1)
		r.leave(1000)
		require.NoError(t, r.enter(t.Context(), 1))
	})
}

func TestFIFO(t *testing.T) {
	t.Parallel()
	var f fifo[int]
	in, out := 0, 0
	for round := range 1000 {
		for range round % 7 {
			f.push(in)
			in++
		}
		for range min(f.len(), round%5) {
			require.Equal(t, out, f.first())
			require.Equal(t, out, f.pop())
			out++
		}
		require.Equal(t, in-out, f.len())
		require.LessOrEqual(t, len(f.items), max(64, 2*f.len()+1))
	}
	f.keep(func(i int) bool { return i%2 == 0 })
	for f.len() > 0 {
		require.Zero(t, f.pop()%2)
	}
}

// The clock never promises more than the server's clock shows, and comes as near as the quickest
// reply of the last seconds lets it.
func TestServerClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c serverClock
		assert.LessOrEqual(t, c.until(driver.Never), 292*365*24*time.Hour)
		server := func() time.Time { return time.Now().Add(5 * time.Minute) } // which is ahead of ours
		for i := range 100 {
			sent, reading := time.Now(), server()
			time.Sleep(time.Duration(1+i%7) * 10 * time.Millisecond) // until the reply is here
			c.observe(reading, sent)
			assert.False(t, c.now().After(server()))
			if i > 7 {
				assert.Equal(t, 10*time.Millisecond, server().Sub(c.now()), "the quickest reply took 10 ms")
			}
			time.Sleep(300 * time.Millisecond)
		}
		due := driver.InstantOf(server().Add(time.Second))
		assert.InDelta(t, 1.010, c.until(due).Seconds(), 0.002)
		assert.Negative(t, c.until(driver.InstantOf(server().Add(-time.Second))))

		for _, back := range []time.Duration{-5 * time.Minute, -5*time.Minute - 20*time.Millisecond} { // it is set back, by much and by little
			sent, reading := time.Now(), time.Now().Add(back)
			time.Sleep(10 * time.Millisecond)
			c.observe(reading, sent)
			assert.Equal(t, 10*time.Millisecond, time.Now().Add(back).Sub(c.now()), "what older readings promised is forgotten")
		}
	})
}
