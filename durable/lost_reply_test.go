package durable_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

// An Ack takes effect, and its reply is lost for half of the lease. The lease is not reported as
// lost, whether the handler has returned or has called Ack and waits.
func TestLostReplyOfAnAckIsNoLostLease(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]bool{"by returning": false, "by Ack": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &faulty{Store: memstore.New(memstore.Options{})}
				var lost atomic.Int64
				q := open(t, f, durable.Options{Partitions: 1, OnError: func(err error) {
					if errors.Is(err, durable.ErrLeaseLost) {
						lost.Add(1)
					}
				}})
				stop := consume(t, q, func(ctx context.Context, d *durable.Delivery) error {
					if !own {
						return nil
					}
					assert.NoError(t, d.Ack(ctx))
					assert.NoError(t, ctx.Err(), "the handler's context has not ended")
					return nil
				}, durable.ConsumerOptions{Visibility: 8 * time.Second})
				start := time.Now()
				f.set(func(name string) (error, error) {
					if name == "Ack" && time.Since(start) < 4*time.Second {
						return nil, errDown
					}
					return nil, nil
				})
				enqueue(t, q, "m", 0)
				time.Sleep(30 * time.Second)
				assert.Zero(t, lost.Load(), "reports of ErrLeaseLost")
				stop()
				q.Close()
				_ = f.Close()
				synctest.Wait()
			})
		})
	}
}

// A Reschedule whose reply was lost returns ResultRescheduled, even if the message was delivered at
// the new time in the meantime.
func TestRescheduleIsExactIfItsReplyWasLost(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue, f *faulty) {
		var n atomic.Int64
		stop := consume(t, q, func(context.Context, *durable.Delivery) error { n.Add(1); return nil }, durable.ConsumerOptions{})
		enqueue(t, q, "m", time.Hour)
		start := time.Now()
		f.set(func(name string) (error, error) {
			if name == "Reschedule" && time.Since(start) < time.Second {
				return nil, errDown
			}
			return nil, nil
		})
		r, err := q.Reschedule(t.Context(), "m", 0)
		require.NoError(t, err)
		assert.Equal(t, durable.ResultRescheduled, r)
		assert.EqualValues(t, 1, n.Load(), "the message was rescheduled")
		r, err = q.Reschedule(t.Context(), "m", 0)
		require.NoError(t, err)
		assert.Equal(t, durable.ResultNotFound, r)
		stop()
	})
}

// Two of three calls fail, half of them after they have taken effect. No run is skipped, repeated
// or moved, whether the runs succeed, fail or take long, and Cancel interrupts the last one.
func TestLostRepliesNeitherSkipNorRepeatRuns(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"Put", "Claim", "Begin", "Retry", "Extend", "Repeat", "Cancel"} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			faultyBubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue, f *faulty) {
				f.set(twoOfThree(call))
				var got deliveries
				start, ids := time.Now(), []string{"short", "failing", "long"}
				stop := consume(t, q, func(ctx context.Context, d *durable.Delivery) error {
					got.add(start, d)
					switch d.ID {
					case "failing":
						return durable.Reject(assert.AnError)
					case "long":
						time.Sleep(5 * time.Second)
					}
					return context.Cause(ctx)
				}, durable.ConsumerOptions{Visibility: 3 * time.Second})
				runs := func(id string, after time.Duration) (dues []time.Duration) {
					for _, d := range got.list() {
						if d.id == id && d.due > after {
							dues = append(dues, d.due)
						}
					}
					return dues
				}
				series := func(set func(id, repeat string), every time.Duration) {
					before := time.Since(start)
					for _, id := range ids {
						set(id, "@every "+every.String())
					}
					from := time.Since(start)
					time.Sleep(5*every + every/2)
					for _, id := range ids {
						dues := runs(id, before)
						require.Len(t, dues, 5, "%s: %v", id, dues)
						assert.InDelta(t, from+every, dues[0], float64(time.Second), id)
						for i, due := range dues {
							assert.Equal(t, dues[0]+time.Duration(i)*every, due, "%s, run %d", id, i)
						}
					}
				}
				series(func(id, repeat string) {
					_, err := q.Enqueue(t.Context(), durable.Message{ID: id, Repeat: repeat})
					require.NoError(t, err)
				}, 20*time.Second)
				series(func(id, repeat string) {
					r, err := q.SetRepeat(t.Context(), id, repeat)
					require.NoError(t, err)
					assert.Equal(t, durable.ResultRescheduled, r)
				}, 30*time.Second)
				time.Sleep(17 * time.Second) // the last runs are due
				results := map[durable.Result]int{}
				for _, id := range ids {
					r, err := q.Cancel(t.Context(), id, durable.Interrupt)
					require.NoError(t, err)
					results[r]++
				}
				assert.Equal(t, map[durable.Result]int{durable.ResultCancelled: 2, durable.ResultInterrupted: 1}, results)
				time.Sleep(5 * time.Minute)
				stop()
				for _, id := range ids {
					assert.Len(t, runs(id, 0), 11, id)
				}
				f.set(func(string) (error, error) { return nil, nil })
				c := counters(t, q)
				assert.Zero(t, c.Scheduled+c.InFlight+c.Dead)
				assert.Zero(t, c.Crashed)
				assert.Equal(t, c.Enqueued, c.Acked+c.Cancelled)
			})
		})
	}
}

// A call fails, before or after it has taken effect, and is repeated by its caller. The run ends
// once.
func TestRunEndsOnceIfItsAckIsRepeated(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(string) (error, error){
		"no call arrives": failing("Retry", errDown), "the replies are lost": unanswered("Retry"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faultyBubble(t, durable.Options{RetryFor: time.Second}, func(t *testing.T, q *durable.Queue, f *faulty) {
				_, err := q.Enqueue(t.Context(), durable.Message{ID: "m", Repeat: "@every 1m"})
				require.NoError(t, err)
				d := take(t, q)
				f.set(fault)
				require.ErrorIs(t, d.Ack(t.Context()), durable.ErrUnavailable)
				f.set(func(string) (error, error) { return nil, nil })
				require.NoError(t, d.Ack(t.Context()))
				require.ErrorIs(t, d.Ack(t.Context()), durable.ErrLeaseLost)
				next := take(t, q)
				assert.Equal(t, d.Due.Add(time.Minute), next.Due)
				require.ErrorIs(t, d.Ack(t.Context()), durable.ErrLeaseLost)
				require.NoError(t, next.Ack(t.Context()))
				assert.Equal(t, next.Due.Add(time.Minute), take(t, q).Due)
				assert.EqualValues(t, 2, counters(t, q).Acked)
			})
		})
	}
}

// A SetRepeat or a Cancel whose reply was lost returns the result of the copy that took effect,
// although the message has run or was removed in the meantime.
func TestChangesOfRunsAreExactIfTheirRepliesWereLost(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue, f *faulty) {
		var got deliveries
		began := time.Now()
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error { got.add(began, d); return nil }, durable.ConsumerOptions{})
		lose := func(call string) {
			start := time.Now()
			f.set(func(name string) (error, error) {
				if name == call && time.Since(start) < time.Second {
					return nil, errDown
				}
				return nil, nil
			})
		}
		_, err := q.Enqueue(t.Context(), durable.Message{ID: "m", Repeat: "@hourly"})
		require.NoError(t, err)
		lose("Repeat")
		r, err := q.SetRepeat(t.Context(), "m", "@every 70ms")
		require.NoError(t, err)
		assert.Equal(t, durable.ResultRescheduled, r)
		time.Sleep(time.Second)
		stop()
		runs := got.list()
		require.Greater(t, len(runs), 20)
		for i, run := range runs {
			assert.Equal(t, runs[0].due+time.Duration(i)*70*time.Millisecond, run.due)
		}
		d := take(t, q)
		lose("Cancel")
		time.AfterFunc(500*time.Millisecond, func() { assert.NoError(t, d.Ack(t.Context())) })
		for _, want := range []durable.Result{durable.ResultInterrupted, durable.ResultNotFound} {
			r, err = q.Cancel(t.Context(), "m", durable.Interrupt)
			require.NoError(t, err)
			assert.Equal(t, want, r)
		}
	})
}

func TestDeleteAllDeadCountsOnceIfAReplyWasLost(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue, f *faulty) {
		enqueue(t, q, "m", 0)
		require.NoError(t, take(t, q).Bury(t.Context(), "enough"))
		var n atomic.Int64
		f.set(func(name string) (error, error) {
			if name == "Purge" && n.Add(1) == 1 {
				return nil, errDown
			}
			return nil, nil
		})
		removed, err := q.DeleteAllDead(t.Context(), durable.DeadFilter{All: true})
		require.NoError(t, err)
		assert.Equal(t, 1, removed)
	})
}

// The answers to a consumer's claims are lost for a while, after the claims have taken effect. The
// messages are delivered as soon as an answer arrives. None counts a crash, although handlers wait
// and the messages begin with the claims.
func TestLostAnswersOfClaimsCountNoCrash(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{Partitions: 2}, func(t *testing.T, q *durable.Queue, f *faulty) {
		var n, crashes atomic.Int64
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error {
			n.Add(1)
			crashes.Add(int64(d.Crashes))
			return nil
		}, durable.ConsumerOptions{})
		start := time.Now()
		f.set(func(name string) (error, error) {
			if name == "Claim" && time.Since(start) < 12*time.Second {
				return nil, errDown
			}
			return nil, nil
		})
		for i := range 100 {
			enqueue(t, q, fmt.Sprint(i), time.Duration(i)*50*time.Millisecond)
		}
		time.Sleep(13 * time.Second)
		assert.EqualValues(t, 100, n.Load(), "delivered soon after the fault")
		time.Sleep(time.Minute)
		assert.EqualValues(t, 100, n.Load(), "not delivered again")
		s, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.Zero(t, s.Crashed)
		assert.Zero(t, crashes.Load())
		assert.Zero(t, s.Scheduled+s.InFlight)
		stop()
	})
}

// A consumer ends after the answer to its last claim was lost. It releases the messages of that
// claim, or still handles them. No lease is left that could expire later and count a crash.
func TestMessagesOfALostLastClaimAreReleased(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{Partitions: 1}, func(t *testing.T, q *durable.Queue, f *faulty) {
		handled := false
		stop := consume(t, q, func(context.Context, *durable.Delivery) error { handled = true; return nil }, durable.ConsumerOptions{})
		time.Sleep(5300 * time.Millisecond) // between two claims of Fallback
		f.set(unanswered("Claim"))
		enqueue(t, q, "m", 0)
		synctest.Wait()
		f.set(func(string) (error, error) { return nil, nil })
		r, err := q.Get(t.Context(), "m")
		require.NoError(t, err)
		require.NotEqual(t, durable.StateScheduled, r.State)
		stop()
		r, err = q.Get(t.Context(), "m")
		if handled {
			require.ErrorIs(t, err, durable.ErrNotFound)
			return
		}
		require.NoError(t, err)
		assert.Equal(t, durable.StateScheduled, r.State)
		assert.Zero(t, r.Crashes)
	})
}

// A consumer ends while its claims are unanswered for longer than it takes to end. The queue
// releases the messages of the last claim when the store answers again, so that no message counts a
// crash.
func TestLastClaimIsReleasedWhenTheStoreAnswersAgain(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{Partitions: 1}, func(t *testing.T, q *durable.Queue, f *faulty) {
		var got deliveries
		options := durable.ConsumerOptions{Concurrency: 1, Visibility: 30 * time.Second}
		handler := func(_ context.Context, d *durable.Delivery) error { got.add(time.Now(), d); return nil }
		stop := consume(t, q, handler, options)
		time.Sleep(5300 * time.Millisecond) // between two claims of Fallback
		f.set(unanswered("Claim"))
		enqueue(t, q, "m", 0)
		synctest.Wait()
		r, err := q.Get(t.Context(), "m")
		require.NoError(t, err)
		require.Equal(t, durable.StateFiring, r.State, "the message begins with the claim")
		start := time.Now()
		stop()
		assert.LessOrEqual(t, time.Since(start), 3*leaveTime, "duration of the end of Consume")
		time.Sleep(15*time.Second - time.Since(start))
		f.set(func(string) (error, error) { return nil, nil })
		time.Sleep(3 * time.Second)
		r, err = q.Get(t.Context(), "m")
		require.NoError(t, err)
		assert.Equal(t, durable.StateScheduled, r.State, "the message was released")
		time.Sleep(time.Minute) // leases and members without a consumer have expired
		stop = consume(t, q, handler, options)
		time.Sleep(time.Minute)
		stop()
		require.Equal(t, []string{"m"}, got.ids())
		assert.Zero(t, got.list()[0].crashes)
		s, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.Zero(t, s.Crashed)
	})
}

// leaveTime is how long an ending consumer waits for each kind of answer.
const leaveTime = time.Second

// A partition moves to another consumer while a claim is unanswered. The consumer still handles the
// messages of the claim when the store answers again, once and without a crash.
func TestUnansweredClaimOfAPartitionThatMovedIsRepeated(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{Partitions: 1}, func(t *testing.T, q *durable.Queue, f *faulty) {
		var got deliveries
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error { got.add(time.Now(), d); return nil },
			durable.ConsumerOptions{Concurrency: 1, Visibility: 30 * time.Second})
		time.Sleep(5300 * time.Millisecond) // between two claims of Fallback
		f.set(unanswered("Claim"))
		enqueue(t, q, "m", 0)
		synctest.Wait()
		r, err := q.Get(t.Context(), "m")
		require.NoError(t, err)
		require.Equal(t, durable.StateFiring, r.State, "the message begins with the claim")
		moveAway(t, q, f, 20*time.Second)
		time.Sleep(10 * time.Second)
		f.set(func(string) (error, error) { return nil, nil })
		time.Sleep(3 * time.Second)
		require.Equal(t, []string{"m"}, got.ids())
		time.Sleep(time.Minute)
		stop()
		require.Equal(t, []string{"m"}, got.ids())
		assert.Zero(t, got.list()[0].crashes)
	})
}

// A partition moves away while a claim is unanswered, and returns before the store answers. The
// consumer handles the messages of the claim once and without a crash.
func TestPartitionReturnsWhileItsLastClaimIsUnanswered(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{Partitions: 1}, func(t *testing.T, q *durable.Queue, f *faulty) {
		var calls, crashes atomic.Int64
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error {
			calls.Add(1)
			crashes.Add(int64(d.Crashes))
			return nil
		}, durable.ConsumerOptions{Visibility: time.Minute})
		time.Sleep(5300 * time.Millisecond)
		f.set(unanswered("Claim"))
		enqueue(t, q, "m", 0)
		moveAway(t, q, f, 8*time.Second)
		time.Sleep(12 * time.Second)
		require.True(t, ownsAny(t, q))
		f.set(func(string) (error, error) { return nil, nil })
		time.Sleep(time.Second)
		assert.EqualValues(t, 1, calls.Load())
		time.Sleep(2 * time.Minute)
		stop()
		assert.EqualValues(t, 1, calls.Load())
		assert.Zero(t, crashes.Load())
	})
}

// moveAway adds members that claim nothing, for a ttl, until they own all partitions of the queue.
func moveAway(t *testing.T, q *durable.Queue, f *faulty, ttl time.Duration) {
	t.Helper()
	other, err := f.Store.Open(t.Context(), driver.Config{Queue: "default"})
	require.NoError(t, err)
	for i := 0; ownsAny(t, q); i++ {
		for k := range 4 {
			_, err := other.Heartbeat(t.Context(), driver.Member{Name: fmt.Sprint("other", i, k), Capacity: 1 << 20}, ttl)
			require.NoError(t, err)
		}
		time.Sleep(4 * time.Second)
	}
}

// ownsAny reports whether a consumer that claims messages owns a partition.
func ownsAny(t *testing.T, q *durable.Queue) bool {
	t.Helper()
	consumers, err := q.Consumers(t.Context())
	require.NoError(t, err)
	return slices.ContainsFunc(consumers, func(c durable.Consumer) bool { return len(c.Partitions) > 0 })
}

// Close waits for the messages of an unanswered claim, but no longer than for other messages.
func TestCloseWaitsForTheLastClaim(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers time.Duration // after the end of Consume
		state   durable.State
	}{
		"the store answers in time": {2 * time.Second, durable.StateScheduled},
		"the store does not answer": {time.Hour, durable.StateFiring},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faultyBubble(t, durable.Options{Partitions: 1}, func(t *testing.T, q *durable.Queue, f *faulty) {
				stop := consume(t, q, func(context.Context, *durable.Delivery) error { return nil }, durable.ConsumerOptions{})
				time.Sleep(5300 * time.Millisecond) // between two claims of Fallback
				var answers atomic.Pointer[time.Time]
				f.set(func(name string) (error, error) {
					if from := answers.Load(); name == "Claim" && (from == nil || time.Now().Before(*from)) {
						return nil, errDown
					}
					return nil, nil
				})
				enqueue(t, q, "m", 0)
				synctest.Wait()
				stop()
				from := time.Now().Add(c.answers)
				answers.Store(&from)
				start := time.Now()
				q.Close()
				assert.LessOrEqual(t, time.Since(start), 5*time.Second)
				synctest.Wait() // no goroutine calls the store after this
				calls := f.count("Claim")
				time.Sleep(5 * time.Second)
				assert.Equal(t, calls, f.count("Claim"))
				b, err := f.Store.Open(t.Context(), driver.Config{Queue: "default"})
				require.NoError(t, err)
				r, err := b.Get(t.Context(), 0, "m")
				require.NoError(t, err)
				assert.Equal(t, c.state, r.State)
			})
		})
	}
}
