package durable_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
	"github.com/timingwheel-go/timingwheel/internal/testscale"
)

// tagged enqueues a message with headers, given as keys and values.
func tagged(t *testing.T, q *durable.Queue, id string, delay time.Duration, pairs ...string) {
	t.Helper()
	headers := make(map[string]string)
	for i := 0; i < len(pairs); i += 2 {
		headers[pairs[i]] = pairs[i+1]
	}
	_, err := q.Enqueue(t.Context(), durable.Message{ID: id, Headers: headers, Delay: delay})
	require.NoError(t, err)
}

// CancelMatching cancels the scheduled and prefetched messages that have all the headers. It
// reports firing messages, and does not affect other messages and dead letters.
func TestCancelMatchingCancelsMessagesWithAllHeaders(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{Partitions: 3}, func(t *testing.T, q *durable.Queue) {
		tagged(t, q, "dead", 0, "customer", "7", "kind", "mail")
		require.NoError(t, take(t, q).Bury(t.Context(), "enough"))
		begun, end := make(chan struct{}), make(chan struct{})
		var ran sync.Map
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error {
			ran.Store(d.ID, true)
			if d.ID == "firing" {
				close(begun)
				<-end
			}
			return nil
		}, durable.ConsumerOptions{Concurrency: 2})
		tagged(t, q, "firing", 0, "customer", "7", "kind", "mail")
		<-begun
		for i := range 700 {
			tagged(t, q, fmt.Sprint("scheduled", i), 5*time.Minute, "customer", "7", "kind", "mail", "n", fmt.Sprint(i))
		}
		tagged(t, q, "claimed", 400*time.Millisecond, "customer", "7", "kind", "mail")
		others := map[string][]string{
			"other value": {"customer", "77", "kind", "mail"}, "other case": {"customer", "7", "kind", "Mail"},
			"one": {"customer", "7"}, "none": nil, "empty": {"customer", "7", "kind", ""},
		}
		for id, pairs := range others {
			tagged(t, q, id, time.Minute, pairs...)
		}
		time.Sleep(200 * time.Millisecond)
		r, err := q.Get(t.Context(), "claimed")
		require.NoError(t, err)
		require.Equal(t, durable.StateLeased, r.State)

		match := map[string]string{"customer": "7", "kind": "mail"}
		report, err := q.CancelMatching(t.Context(), match)
		require.NoError(t, err)
		assert.Equal(t, durable.CancelReport{Cancelled: 701, Firing: 1}, report)
		report, err = q.CancelMatching(t.Context(), match)
		require.NoError(t, err)
		assert.Equal(t, durable.CancelReport{Firing: 1}, report, "again")
		report, err = q.CancelMatching(t.Context(), map[string]string{"kind": ""})
		require.NoError(t, err)
		assert.Equal(t, durable.CancelReport{Cancelled: 1}, report, "an empty header matches, a missing one does not")
		close(end)
		time.Sleep(10 * time.Minute)
		stop()
		for id := range others {
			_, ok := ran.Load(id)
			assert.Equal(t, id != "empty", ok, id)
			ran.Delete(id)
		}
		ran.Delete("firing")
		ran.Range(func(id, _ any) bool { return assert.Fail(t, "a cancelled message was delivered", id) })
		assert.EqualValues(t, 1, deadLetters(t, q))
	})
}

// CancelAll cancels the scheduled and prefetched messages, also one whose headers cannot be read.
// It reports the firing ones, and does not affect dead letters.
func TestCancelAllCancelsAllPendingMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		q := open(t, store, durable.Options{Partitions: 3})
		tagged(t, q, "dead", 0, "customer", "7")
		require.NoError(t, take(t, q).Bury(t.Context(), "enough"))
		begun, end := make(chan struct{}), make(chan struct{})
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error {
			assert.Equal(t, "firing", d.ID)
			close(begun)
			<-end
			return nil
		}, durable.ConsumerOptions{})
		tagged(t, q, "firing", 0)
		<-begun
		for i := range 700 {
			tagged(t, q, fmt.Sprint("scheduled", i), 5*time.Minute, "n", fmt.Sprint(i))
		}
		tagged(t, q, "claimed", 400*time.Millisecond)
		raw, err := store.Open(t.Context(), driver.Config{Queue: "default"})
		require.NoError(t, err)
		_, err = raw.Put(t.Context(), driver.Put{Partition: contract.PartitionOf("unreadable", 3), Items: []driver.PutItem{
			{ID: "unreadable", Body: []byte{99}, Delay: time.Hour, MaxAttempts: 1},
		}})
		require.NoError(t, err)
		time.Sleep(200 * time.Millisecond)

		report, err := q.CancelAll(t.Context())
		require.NoError(t, err)
		assert.Equal(t, durable.CancelReport{Cancelled: 702, Firing: 1}, report)
		report, err = q.CancelAll(t.Context())
		require.NoError(t, err)
		assert.Equal(t, durable.CancelReport{Firing: 1}, report, "again")
		close(end)
		time.Sleep(10 * time.Minute)
		stop()
		assert.EqualValues(t, 1, deadLetters(t, q))
		q.Close()
		_, err = q.CancelAll(t.Context())
		require.ErrorIs(t, err, durable.ErrClosed)
	})
}

func TestCancelMatchingWithoutHeadersIsRefused(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
		tagged(t, q, "m", time.Hour)
		for _, headers := range []map[string]string{nil, {}} {
			_, err := q.CancelMatching(t.Context(), headers)
			require.ErrorIs(t, err, durable.ErrInvalid)
		}
		_, err := q.Get(t.Context(), "m")
		require.NoError(t, err)
	})
}

// A scan that fails reports the cancelled messages, names a message, and can be repeated.
func TestCancelMatchingThatFailsCanBeRepeated(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{Partitions: 1, MaxWaiting: 10}, func(t *testing.T, q *durable.Queue, f *faulty) {
		for i := range 95 {
			tagged(t, q, fmt.Sprintf("m%02d", i), time.Hour, "tag", "x")
		}
		broken, n := errors.New("no answer"), 0
		f.set(func(name string) (error, error) {
			if name == "Cancel" {
				n++
			}
			if name == "Cancel" && n > 4 {
				return broken, nil
			}
			return nil, nil
		})
		match := map[string]string{"tag": "x"}
		report, err := q.CancelMatching(t.Context(), match)
		require.ErrorIs(t, err, broken)
		assert.ErrorContains(t, err, `"m40"`)
		assert.Equal(t, durable.CancelReport{Cancelled: 40}, report)

		n = 4
		f.set(func(name string) (error, error) {
			if name == "Cancel" {
				time.Sleep(time.Second)
			}
			return nil, nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		first, err := q.CancelMatching(ctx, match)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		// Ten calls at most, fewer if earlier calls have not made room yet.
		assert.Greater(t, first.Cancelled, 0)
		assert.LessOrEqual(t, first.Cancelled, 10)
		assert.ErrorContains(t, err, fmt.Sprintf("\"m%d\"", 40+first.Cancelled))
		time.Sleep(time.Second)
		again, err := q.CancelMatching(t.Context(), match)
		require.NoError(t, err)
		inProgress := 55 - first.Cancelled - again.Cancelled
		assert.Greater(t, inProgress, 0, "the calls in progress took effect")
		assert.LessOrEqual(t, inProgress, 10)
		for i := range 95 {
			_, err := q.Get(t.Context(), fmt.Sprintf("m%02d", i))
			assert.ErrorIs(t, err, durable.ErrNotFound)
		}
	})
}

// betweenBackend calls a function after each non-empty list.
type betweenBackend struct {
	driver.Backend
	between func()
}

func (b *betweenBackend) List(ctx context.Context, partition int, state driver.State, cursor string, limit int) ([]driver.Record, string, error) {
	records, next, err := b.Backend.List(ctx, partition, state, cursor, limit)
	if len(records) > 0 && b.between != nil {
		b.between()
	}
	return records, next, err
}

// Matching messages are cancelled and enqueued again, or replaced, between the list and their turn.
// The new messages with the same ids are not cancelled.
func TestCancelMatchingLeavesNewMessagesWithTheSameIDs(t *testing.T) {
	t.Parallel()
	b := &betweenBackend{}
	wrap := func(d driver.Backend) driver.Backend { b.Backend = d; return b }
	bubbleOf(t, wrap, durable.Options{Partitions: 1}, func(t *testing.T, q *durable.Queue) {
		for _, id := range []string{"cancelled", "replaced", "moved"} {
			tagged(t, q, id, time.Hour, "tag", "x")
		}
		time.Sleep(time.Second)
		b.between = func() {
			b.between = nil
			_, err := q.Cancel(t.Context(), "cancelled")
			require.NoError(t, err)
			tagged(t, q, "cancelled", time.Hour, "tag", "y")
			_, err = q.Enqueue(t.Context(), durable.Message{ID: "replaced", Delay: time.Hour, Replace: true})
			require.NoError(t, err)
			_, err = q.Reschedule(t.Context(), "moved", 2*time.Hour)
			require.NoError(t, err)
		}
		report, err := q.CancelMatching(t.Context(), map[string]string{"tag": "x"})
		require.NoError(t, err)
		assert.Equal(t, durable.CancelReport{Cancelled: 1}, report)
		for id, want := range map[string]error{"cancelled": nil, "replaced": nil, "moved": durable.ErrNotFound} {
			_, err := q.Get(t.Context(), id)
			require.ErrorIs(t, err, want, id)
		}
	})
}

// A message that begins between the list and its turn is counted once, although the scan finds it
// in both states.
func TestCancelMatchingCountsFiringOnce(t *testing.T) {
	t.Parallel()
	b := &betweenBackend{}
	wrap := func(d driver.Backend) driver.Backend { b.Backend = d; return b }
	bubbleOf(t, wrap, durable.Options{Partitions: 1}, func(t *testing.T, q *durable.Queue) {
		tagged(t, q, "m", 0, "tag", "x")
		var d *durable.Delivery
		b.between = func() {
			b.between = nil
			d = take(t, q)
		}
		report, err := q.CancelMatching(t.Context(), map[string]string{"tag": "x"})
		require.NoError(t, err)
		assert.Equal(t, durable.CancelReport{Firing: 1}, report)

		b.between = func() { // its delivery fails between the list and its turn
			if d != nil {
				require.NoError(t, d.NackAfter(t.Context(), time.Hour, nil))
				d = nil
			}
		}
		report, err = q.CancelMatching(t.Context(), map[string]string{"tag": "x"})
		require.NoError(t, err)
		assert.Equal(t, durable.CancelReport{Cancelled: 1}, report)
	})
}

// Messages with unreadable headers are kept and named, and do not end the scan.
func TestCancelMatchingNamesUnreadableMessages(t *testing.T) {
	t.Parallel()
	var backend driver.Backend
	wrap := func(b driver.Backend) driver.Backend { backend = b; return b }
	bubbleOf(t, wrap, durable.Options{Partitions: 1}, func(t *testing.T, q *durable.Queue) {
		for i := range 12 {
			items := []driver.PutItem{{ID: fmt.Sprintf("newer%02d", i), Body: []byte("\x20newer"), Delay: time.Minute, MaxAttempts: 1}}
			_, err := backend.Put(t.Context(), driver.Put{Items: items})
			require.NoError(t, err)
		}
		tagged(t, q, "m", time.Hour, "tag", "x")
		report, err := q.CancelMatching(t.Context(), map[string]string{"tag": "x"})
		require.ErrorIs(t, err, durable.ErrVersion)
		assert.ErrorContains(t, err, `12 messages`)
		assert.ErrorContains(t, err, `"newer00", `)
		assert.ErrorContains(t, err, `"newer09" and others`)
		assert.Equal(t, durable.CancelReport{Cancelled: 1, Unreadable: 12}, report)
		s, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 12, s.Scheduled)
	})
}

// Scans race with deliveries. Messages that were reported as cancelled are not delivered, and all
// others are.
func TestCancelMatchingRacesDeliveries(t *testing.T) {
	t.Parallel()
	messages := max(1000, testscale.Size(3000))
	q := open(t, memstore.New(memstore.Options{}), durable.Options{Partitions: 2})
	defer q.Close()
	var ran atomic.Int64
	stop := consume(t, q, func(context.Context, *durable.Delivery) error { ran.Add(1); return nil }, durable.ConsumerOptions{})
	for i := range messages {
		tagged(t, q, fmt.Sprint(i), time.Duration(i%300)*time.Millisecond, "tag", fmt.Sprint(i%2))
	}
	cancelled := 0
	for range 20 {
		report, err := q.CancelMatching(t.Context(), map[string]string{"tag": "1"})
		require.NoError(t, err)
		cancelled += report.Cancelled
	}
	require.Eventually(t, func() bool { return ran.Load()+int64(cancelled) >= int64(messages) }, time.Minute, 10*time.Millisecond)
	stop()
	assert.EqualValues(t, messages, ran.Load()+int64(cancelled), "each message was cancelled or delivered")
	s, err := q.Stats(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, cancelled, s.Cancelled)
}

// buried creates dead letters that die one second apart, each with a reason.
func buried(t *testing.T, q *durable.Queue, reasons ...string) (died []time.Time) {
	t.Helper()
	for i, reason := range reasons {
		id := fmt.Sprintf("%02d", i)
		enqueue(t, q, id, 0)
		require.NoError(t, take(t, q).Bury(t.Context(), reason))
		r, err := q.Get(t.Context(), id)
		require.NoError(t, err)
		died = append(died, r.Died)
		time.Sleep(time.Second)
	}
	return died
}

func TestDeadFilterSelectsByReasonAndTime(t *testing.T) {
	t.Parallel()
	reasons := []string{"timeout", "dial: timeout", "Timeout", "no such user", "timeout", "timeout of 3 s"}
	for name, tt := range map[string]struct {
		filter func(died []time.Time) durable.DeadFilter
		want   []string
	}{
		"all":    {func([]time.Time) durable.DeadFilter { return durable.DeadFilter{All: true} }, []string{"00", "01", "02", "03", "04", "05"}},
		"reason": {func([]time.Time) durable.DeadFilter { return durable.DeadFilter{Reason: "timeout"} }, []string{"00", "01", "04", "05"}},
		"from":   {func(died []time.Time) durable.DeadFilter { return durable.DeadFilter{Since: died[4]} }, []string{"04", "05"}},
		"after":  {func(died []time.Time) durable.DeadFilter { return durable.DeadFilter{Since: died[4].Add(1)} }, []string{"05"}},
		"before": {func(died []time.Time) durable.DeadFilter { return durable.DeadFilter{Until: died[1]} }, []string{"00"}},
		"up to":  {func(died []time.Time) durable.DeadFilter { return durable.DeadFilter{Until: died[1].Add(1)} }, []string{"00", "01"}},
		"between, reason": {func(died []time.Time) durable.DeadFilter {
			return durable.DeadFilter{Reason: "timeout", Since: died[1], Until: died[5]}
		}, []string{"01", "04"}},
		"none": {func([]time.Time) durable.DeadFilter { return durable.DeadFilter{Reason: "%"} }, nil},
	} {
		for _, op := range []string{"replay", "purge"} {
			t.Run(op+" "+name, func(t *testing.T) {
				t.Parallel()
				bubble(t, durable.Options{Partitions: 2}, func(t *testing.T, q *durable.Queue) {
					filter := tt.filter(buried(t, q, reasons...))
					var n int
					var err error
					if op == "purge" {
						n, err = q.DeleteAllDead(t.Context(), filter)
					} else {
						n, err = q.ReplayAll(t.Context(), filter, durable.ReplayOptions{Delay: time.Hour})
					}
					require.NoError(t, err)
					assert.Len(t, tt.want, n)
					left := map[string]bool{}
					for r, err := range q.List(t.Context(), durable.StateDead) {
						require.NoError(t, err)
						left[r.ID] = true
					}
					assert.Len(t, left, len(reasons)-n)
					for _, id := range tt.want {
						assert.False(t, left[id], id)
						r, err := q.Get(t.Context(), id)
						if op == "purge" {
							require.ErrorIs(t, err, durable.ErrNotFound)
							continue
						}
						require.NoError(t, err)
						assert.Equal(t, durable.StateScheduled, r.State)
						assert.WithinDuration(t, time.Now().Add(time.Hour), r.Due, time.Second)
					}
				})
			})
		}
	}
}

func TestBadDeadFiltersAreRefused(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
		buried(t, q, "a")
		now := time.Now()
		for _, rate := range []float64{-1, math.Inf(1), math.Inf(-1), math.NaN()} {
			_, err := q.ReplayAll(t.Context(), durable.DeadFilter{All: true}, durable.ReplayOptions{Rate: rate})
			require.ErrorIs(t, err, durable.ErrInvalid, rate)
			assert.ErrorContains(t, err, fmt.Sprint(rate))
		}
		for _, filter := range []durable.DeadFilter{{Since: now, Until: now}, {}, {All: true, Reason: "a"}, {All: true, Since: now}, {All: true, Until: now}} {
			_, err := q.DeleteAllDead(t.Context(), filter)
			require.ErrorIs(t, err, durable.ErrInvalid)
			_, err = q.ReplayAll(t.Context(), filter, durable.ReplayOptions{})
			require.ErrorIs(t, err, durable.ErrInvalid)
		}
		assert.EqualValues(t, 1, deadLetters(t, q))
	})
}

// Replays are spread evenly over time, at any rate, and over all partitions together.
func TestReplaysAreSpreadEvenly(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{0.1, 1, 3, 100, 1000} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &faulty{Store: memstore.New(memstore.Options{})}
				q := open(t, f, durable.Options{Partitions: 2, OnError: func(error) {}})
				defer q.Close()
				const letters = 60
				buryAll(t, q, letters)
				start := time.Now()
				n, err := q.ReplayAll(t.Context(), durable.DeadFilter{All: true}, durable.ReplayOptions{Delay: time.Hour, Rate: rate})
				took := time.Since(start).Seconds()
				require.NoError(t, err)
				require.Equal(t, letters, n)
				together := math.Max(1, rate/100)
				assert.InDelta(t, (letters-together)/rate, took, together/rate+1e-3)
				var due []time.Time
				for r, err := range q.List(t.Context(), durable.StateScheduled) {
					require.NoError(t, err)
					due = append(due, r.Due)
				}
				for i, at := range due { // no window has more than the rate permits
					within := 0
					for _, other := range due[i:] {
						if d := other.Sub(at); d >= 0 && d.Seconds() < 5/rate {
							within++
						}
					}
					assert.LessOrEqual(t, float64(within), math.Ceil(5+2*together))
				}
				synctest.Wait()
			})
		})
	}
}

// A replay that is late, because the store did not answer for a while, does not catch up in a
// burst.
func TestReplayAfterAStallDoesNotBurst(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{Partitions: 1}, func(t *testing.T, q *durable.Queue, f *faulty) {
		buryAll(t, q, 30)
		var at []time.Duration
		start := time.Now()
		f.set(func(name string) (error, error) {
			if name == "Replay" {
				at = append(at, time.Since(start))
				if len(at) == 10 {
					time.Sleep(time.Minute)
				}
			}
			return nil, nil
		})
		n, err := q.ReplayAll(t.Context(), durable.DeadFilter{All: true}, durable.ReplayOptions{Delay: time.Hour, Rate: 2})
		require.NoError(t, err)
		assert.Equal(t, 30, n)
		require.Len(t, at, 30)
		for i := 12; i < 30; i++ {
			assert.InDelta(t, 0.5, (at[i] - at[i-1]).Seconds(), 0.011, i)
		}
	})
}

// A replay ends between two messages with its context or with the queue, and continues when it is
// called again.
func TestReplayContinuesAfterItsContext(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{Partitions: 1}, func(t *testing.T, q *durable.Queue) {
		buryAll(t, q, 30)
		ctx, cancel := context.WithTimeout(t.Context(), 9500*time.Millisecond)
		defer cancel()
		slow := durable.ReplayOptions{Delay: time.Hour, Rate: 1}
		n, err := q.ReplayAll(ctx, durable.DeadFilter{All: true}, slow)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, `"10"`)
		assert.Equal(t, 10, n)
		n, err = q.ReplayAll(t.Context(), durable.DeadFilter{All: true}, durable.ReplayOptions{Rate: 1e9})
		require.NoError(t, err)
		assert.Equal(t, 20, n)
		assert.Zero(t, deadLetters(t, q))
	})
	bubble(t, durable.Options{Partitions: 1}, func(t *testing.T, q *durable.Queue) {
		buryAll(t, q, 3)
		time.AfterFunc(time.Second, q.Close)
		start := time.Now()
		n, err := q.ReplayAll(t.Context(), durable.DeadFilter{All: true}, durable.ReplayOptions{Rate: 1e-6})
		require.ErrorIs(t, err, durable.ErrClosed)
		assert.Equal(t, 1, n)
		assert.Less(t, time.Since(start), time.Minute)
	})
}

// ReplayAll does not select messages that die while it runs. Otherwise it would never end for a
// message that always fails.
func TestReplayAllSkipsMessagesThatDieLater(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{Partitions: 2, MaxAttempts: 1}, func(t *testing.T, q *durable.Queue) {
		buried(t, q, "a", "b", "c", "d")
		stop := consume(t, q, func(context.Context, *durable.Delivery) error { return errors.New("again") }, durable.ConsumerOptions{})
		n, err := q.ReplayAll(t.Context(), durable.DeadFilter{All: true}, durable.ReplayOptions{Rate: 0.5})
		require.NoError(t, err)
		assert.Equal(t, 4, n)
		time.Sleep(time.Minute)
		stop()
		assert.EqualValues(t, 4, deadLetters(t, q))
	})
}

// A dead letter that another caller replays before its turn, and that dies again for another
// reason, is not purged.
func TestDeleteAllDeadSkipsMessagesThatDiedAgain(t *testing.T) {
	t.Parallel()
	b := &betweenBackend{}
	wrap := func(d driver.Backend) driver.Backend { b.Backend = d; return b }
	bubbleOf(t, wrap, durable.Options{Partitions: 1}, func(t *testing.T, q *durable.Queue) {
		buried(t, q, "timeout", "timeout")
		b.between = func() {
			b.between = nil
			require.NoError(t, q.Replay(t.Context(), "00", 0))
			require.NoError(t, take(t, q).Bury(t.Context(), "lost money"))
		}
		n, err := q.DeleteAllDead(t.Context(), durable.DeadFilter{Reason: "timeout"})
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		r, err := q.Get(t.Context(), "00")
		require.NoError(t, err)
		assert.Equal(t, "lost money", r.Reason)
	})
}
