package durable_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// down fails all calls to the store. working fails none.
func down(string) (before, after error)    { return errDown, nil }
func working(string) (before, after error) { return nil, nil }

// unanswered returns a behavior in which the answers of a call are lost. The call takes effect.
func unanswered(name string) func(string) (before, after error) {
	return func(call string) (before, after error) {
		if call == name {
			return nil, errDown
		}
		return nil, nil
	}
}

// failing makes the calls with a name fail before they take effect.
func failing(name string, err error) func(string) (before, after error) {
	return func(call string) (before, after error) {
		if call == name {
			return err, nil
		}
		return nil, nil
	}
}

// While the store is unreachable, no more calls wait for it than are accepted. Further calls fail
// immediately and are not sent.
func TestCallsOfAnOutageAreBounded(t *testing.T) {
	t.Parallel()
	const accepted = 100
	faultyBubble(t, durable.Options{Partitions: 4, MaxWaiting: accepted}, func(t *testing.T, q *durable.Queue, f *faulty) {
		f.set(down)
		start := time.Now()
		var all sync.WaitGroup
		var busy, unavailable atomic.Int64
		for i := range 1000 {
			all.Go(func() {
				_, err := q.Enqueue(t.Context(), durable.Message{ID: strconv.Itoa(i)})
				switch {
				case errors.Is(err, durable.ErrBusy):
					assert.NotErrorIs(t, err, durable.ErrOutcomeUnknown, "nothing was stored")
					assert.Less(t, time.Since(start), 10*time.Second)
					busy.Add(1)
				case errors.Is(err, durable.ErrUnavailable):
					unavailable.Add(1)
				default:
					assert.NoError(t, err)
				}
			})
		}
		time.Sleep(10 * time.Second)
		assert.EqualValues(t, 1000-accepted, busy.Load())
		_, err := q.Cancel(t.Context(), "x")
		require.ErrorIs(t, err, durable.ErrBusy)
		assert.ErrorContains(t, err, "100 calls")
		all.Wait()
		assert.EqualValues(t, accepted, unavailable.Load())
		f.set(working)
		enqueue(t, q, "after", 0)
		s, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 1, s.Scheduled)
	})
}

// While the store works, calls wait for room in order of arrival.
func TestCallsWaitForRoom(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{Partitions: 1, MaxWaiting: 10}, func(t *testing.T, q *durable.Queue, f *faulty) {
		f.set(func(string) (error, error) { time.Sleep(time.Second); return nil, nil })
		start := time.Now()
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				_, err := q.Enqueue(t.Context(), durable.Message{ID: strconv.Itoa(i)})
				assert.NoError(t, err)
			})
		}
		all.Wait()
		assert.GreaterOrEqual(t, time.Since(start), 10*time.Second, "no store call has more than ten")
		assert.LessOrEqual(t, time.Since(start), 25*time.Second)
	})
}

// A call that waits for room or for its turn ends with its context and is not sent. A call that
// waits for room too long returns ErrBusy.
func TestWaitingCallsEndWithTheirContexts(t *testing.T) {
	t.Parallel()
	for _, room := range []int{1, 1000} {
		faultyBubble(t, durable.Options{Partitions: 1, MaxWaiting: room, RetryFor: 10 * time.Second}, func(t *testing.T, q *durable.Queue, f *faulty) {
			f.set(func(string) (error, error) { time.Sleep(time.Minute); return nil, nil })
			var all sync.WaitGroup
			all.Go(func() { enqueue(t, q, "first", 0) })
			time.Sleep(time.Second)
			for i := range 100 {
				all.Go(func() {
					ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, assert.AnError)
					defer cancel()
					start := time.Now()
					_, err := q.Enqueue(ctx, durable.Message{ID: strconv.Itoa(i)})
					assert.ErrorIs(t, err, assert.AnError)
					assert.NotErrorIs(t, err, durable.ErrOutcomeUnknown)
					assert.Equal(t, time.Second, time.Since(start))
				})
			}
			if room == 1 {
				all.Go(func() {
					start := time.Now()
					_, err := q.Enqueue(t.Context(), durable.Message{ID: "patient"})
					assert.ErrorIs(t, err, durable.ErrBusy)
					assert.Equal(t, 10*time.Second, time.Since(start), "RetryFor")
				})
			}
			all.Wait()
			time.Sleep(time.Hour)
			assert.EqualValues(t, 1, f.count("Put"), "the call that gave up is not sent")
			f.set(working)
			s, err := q.Stats(t.Context())
			require.NoError(t, err)
			assert.EqualValues(t, 1, s.Scheduled)
			enqueue(t, q, "last", 0)
		})
	}
}

// The total size of waiting bodies is limited. A larger body is accepted if no other call waits.
func TestWaitingBytesAreBounded(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{Partitions: 1, MaxWaitingBytes: 1000}, func(t *testing.T, q *durable.Queue, f *faulty) {
		f.set(down)
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				_, err := q.Enqueue(t.Context(), durable.Message{Body: make([]byte, 300)})
				assert.ErrorIs(t, err, durable.ErrUnavailable)
			})
		}
		time.Sleep(5 * time.Second)
		_, err := q.Enqueue(t.Context(), durable.Message{Body: make([]byte, 200)})
		require.ErrorIs(t, err, durable.ErrBusy)
		all.Go(func() {
			_, err := q.Enqueue(t.Context(), durable.Message{Body: make([]byte, 100)})
			assert.ErrorIs(t, err, durable.ErrUnavailable, "the body fits")
		})
		all.Wait()
		f.set(working)
		_, err = q.Enqueue(t.Context(), durable.Message{Body: make([]byte, 5000)})
		require.NoError(t, err)
	})
}

// Bodies may fill MaxWaitingBytes exactly: the envelope of a message does not count.
func TestWaitingBodiesFillTheBoundExactly(t *testing.T) {
	t.Parallel()
	message := durable.Message{Body: make([]byte, 250)}
	for name, put := range map[string]func(t *testing.T, q *durable.Queue) []error{
		"Enqueue": func(t *testing.T, q *durable.Queue) []error {
			errs := make([]error, 4)
			var all sync.WaitGroup
			for i := range errs {
				all.Go(func() { _, errs[i] = q.Enqueue(t.Context(), message) })
			}
			all.Wait()
			return errs
		},
		"EnqueueBatch": func(t *testing.T, q *durable.Queue) []error {
			_, err := q.EnqueueBatch(t.Context(), slices.Repeat([]durable.Message{message}, 4))
			var batch *durable.BatchError
			require.ErrorAs(t, err, &batch)
			return batch.Errors
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faultyBubble(t, durable.Options{Partitions: 1, MaxWaitingBytes: 1000}, func(t *testing.T, q *durable.Queue, f *faulty) {
				f.set(down)
				for i, err := range put(t, q) {
					assert.ErrorIs(t, err, durable.ErrUnavailable, "message %d is waiting for the store", i)
				}
				f.set(working)
			})
		})
	}
}

// EnqueueBatch returns the error of each message, and accepts more messages than may wait at a
// time.
func TestBatchErrorHasEachMessage(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{Partitions: 3, MaxWaiting: 7, RetryFor: 5 * time.Second}, func(t *testing.T, q *durable.Queue, f *faulty) {
		enqueue(t, q, "m3", time.Hour)
		enqueue(t, q, "m30", time.Hour)
		messages := make([]durable.Message, 50)
		for i := range messages {
			messages[i] = durable.Message{ID: fmt.Sprint("m", i), Delay: time.Hour}
		}
		ids, err := q.EnqueueBatch(t.Context(), messages)
		require.Len(t, ids, 50)
		var batch *durable.BatchError
		require.ErrorAs(t, err, &batch)
		require.Len(t, batch.Errors, 50)
		for i, err := range batch.Errors {
			if i == 3 || i == 30 {
				require.ErrorIs(t, err, durable.ErrDuplicate)
				assert.ErrorContains(t, err, strconv.Quote(ids[i]))
			} else {
				require.NoError(t, err)
			}
		}
		assert.ErrorIs(t, err, durable.ErrDuplicate)
		assert.Len(t, batch.Unwrap(), 2)

		f.set(down)
		for i := range messages {
			messages[i].ID = fmt.Sprint("n", i)
		}
		_, err = q.EnqueueBatch(t.Context(), messages)
		require.ErrorAs(t, err, &batch)
		require.ErrorIs(t, err, durable.ErrBusy)
		for i, err := range batch.Errors {
			if i < 7 {
				require.ErrorIs(t, err, durable.ErrUnavailable, "message %d", i)
			} else {
				require.ErrorIs(t, err, durable.ErrBusy, "message %d", i)
			}
		}
		assert.ErrorContains(t, err, "and 40 more of 50 messages")
		f.set(working)
		ids, err = q.EnqueueBatch(t.Context(), nil)
		require.NoError(t, err)
		assert.Empty(t, ids)
	})
}

// A call that the store rejects as late is repeated with the store's clock. If an earlier copy was
// not answered and the store has forgotten it, the outcome is unknown, and the call reports that
// immediately.
func TestLateCallIsRepeatedByTheStoresClock(t *testing.T) {
	t.Parallel()
	late := func(unknown bool) error {
		return fmt.Errorf("refused: %w", &driver.LateError{Now: driver.InstantOf(time.Now()).Add(time.Hour), Unknown: unknown})
	}
	for name, c := range map[string]struct {
		faults [][2]error // before and after each call to the store
		known  bool
	}{
		"late":                              {[][2]error{{late(false), nil}}, true},
		"late, but nothing was sent before": {[][2]error{{late(true), nil}}, true},
		"late, and the copy before did not arrive":   {[][2]error{{errDown, nil}, {late(false), nil}}, true},
		"late, and the copy before may have arrived": {[][2]error{{nil, errDown}, {late(true), nil}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faultyBubble(t, durable.Options{Partitions: 1}, func(t *testing.T, q *durable.Queue, f *faulty) {
				enqueue(t, q, "m", time.Hour)
				n := 0
				f.set(func(string) (error, error) {
					n++
					if n > len(c.faults) {
						return nil, nil
					}
					return c.faults[n-1][0], c.faults[n-1][1]
				})
				start := time.Now()
				result, err := q.Cancel(t.Context(), "m")
				if c.known {
					require.NoError(t, err)
					assert.Equal(t, durable.ResultCancelled, result)
					assert.Equal(t, len(c.faults)+1, n)
				} else {
					require.ErrorIs(t, err, durable.ErrUnavailable)
					assert.ErrorIs(t, err, durable.ErrOutcomeUnknown)
				}
				assert.Less(t, time.Since(start), 5*time.Second)
			})
		})
	}
	faultyBubble(t, durable.Options{Partitions: 1}, func(t *testing.T, q *durable.Queue, f *faulty) {
		f.set(func(string) (error, error) { return late(false), nil }) // always ahead
		_, err := q.Enqueue(t.Context(), durable.Message{})
		require.ErrorIs(t, err, durable.ErrUnavailable)
	})
}
