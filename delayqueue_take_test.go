package timingwheel

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// taken is what a call of Take returned, and how long after the start of the test.
type taken struct {
	v   string
	at  time.Duration
	err error
}

// takeAsync starts takers that send what they get; each takes once.
func takeAsync(ctx context.Context, q *DelayQueue[string], takers int) <-chan taken {
	start, out := time.Now(), make(chan taken, takers)
	for range takers {
		go func() {
			v, err := q.Take(ctx)
			out <- taken{v, time.Since(start), err}
		}()
		synctest.Wait() // they get in line one after another
	}
	return out
}

// takerCase is one taker or several that wait while the queue changes.
var takerCases = map[string]struct {
	takers  int
	timeout time.Duration
	events  func(q *DelayQueue[string]) // begins when all wait, at time zero
	want    []taken
}{
	"take blocks until due": {1, time.Hour, func(q *DelayQueue[string]) {
		q.Push("a", 5*msec)
	}, []taken{{"a", 5 * msec, nil}}},
	"take on an empty queue blocks until push": {1, time.Hour, func(q *DelayQueue[string]) {
		time.Sleep(7 * msec)
		q.Push("a", 0)
	}, []taken{{"a", 7 * msec, nil}}},
	"timed take gives up": {1, 5 * msec, func(q *DelayQueue[string]) {
		q.Push("a", 5*msec+1)
	}, []taken{{"", 5 * msec, context.DeadlineExceeded}}},
	"timed take on an empty queue gives up": {2, 5 * msec, func(*DelayQueue[string]) {}, []taken{
		{"", 5 * msec, context.DeadlineExceeded}, {"", 5 * msec, context.DeadlineExceeded},
	}},
	"expired element preferred over ended context": {1, 5 * msec, func(q *DelayQueue[string]) {
		q.Push("a", 5*msec)
	}, []taken{{"a", 5 * msec, nil}}},
	"earlier push wakes the taker": {1, time.Hour, func(q *DelayQueue[string]) {
		q.Push("a", 50*msec)
		time.Sleep(msec)
		q.Push("b", msec)
	}, []taken{{"b", 2 * msec, nil}}},
	"later push does not": {1, time.Hour, func(q *DelayQueue[string]) {
		q.Push("a", 5*msec)
		q.Push("b", 6*msec)
	}, []taken{{"a", 5 * msec, nil}}},
	"reset to earlier wakes the taker": {1, time.Hour, func(q *DelayQueue[string]) {
		q.Push("a", 50*msec)
		e := q.Push("b", 60*msec)
		time.Sleep(msec)
		q.Reset(e, msec)
	}, []taken{{"b", 2 * msec, nil}}},
	"reset from never wakes the taker": {1, time.Hour, func(q *DelayQueue[string]) {
		e := q.Push("a", math.MaxInt64)
		time.Sleep(msec)
		q.Reset(e, msec)
	}, []taken{{"a", 2 * msec, nil}}},
	"reset of the head to later is not early": {1, time.Hour, func(q *DelayQueue[string]) {
		e := q.Push("a", 5*msec)
		time.Sleep(msec)
		q.Reset(e, 9*msec)
	}, []taken{{"a", 10 * msec, nil}}},
	"removed head makes the next one due in time": {1, time.Hour, func(q *DelayQueue[string]) {
		e := q.Push("a", 5*msec)
		q.Push("b", 8*msec)
		time.Sleep(msec)
		q.Remove(e)
	}, []taken{{"b", 8 * msec, nil}}},
	"three takers, three elements": {3, time.Hour, func(q *DelayQueue[string]) {
		q.Push("c", 30*msec)
		q.Push("a", 10*msec)
		q.Push("b", 20*msec)
	}, []taken{{"a", 10 * msec, nil}, {"b", 20 * msec, nil}, {"c", 30 * msec, nil}}},
	"a head taken by a poll is another taker's no more": {1, time.Hour, func(q *DelayQueue[string]) {
		q.Push("a", 0)
		q.Poll()
		q.Push("b", 3*msec)
	}, []taken{{"b", 3 * msec, nil}}},
	// Trap 10: the second of two elements came when the first taker's old timer rang.
	"item due at 250ms came at 2s": {2, time.Hour, func(q *DelayQueue[string]) {
		q.Push("far", 2*time.Second)
		time.Sleep(100 * msec)
		q.Push("near", 150*msec)
		q.Push("near", 150*msec)
	}, []taken{{"near", 250 * msec, nil}, {"near", 250 * msec, nil}}},
	"two pushes, one wake-up token": {3, time.Hour, func(q *DelayQueue[string]) {
		q.Push("now", 0)
		q.Push("now", 0)
		q.Push("now", 0)
	}, []taken{{"now", 0, nil}, {"now", 0, nil}, {"now", 0, nil}}},
}

func TestDelayQueueTakers(t *testing.T) {
	t.Parallel()
	for name, tt := range takerCases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(context.Background(), tt.timeout)
				defer cancel()
				var q DelayQueue[string]
				out := takeAsync(ctx, &q, tt.takers)
				tt.events(&q)
				requireDelayQueue(t, &q)
				for _, want := range tt.want {
					require.Equal(t, want, <-out)
				}
			})
		})
	}
}

// Trap 10: the front taker is told of a new head and gives up at the same moment. Whether it sees
// the token or the end of its context, the other one must learn of the head.
func TestDelayQueueCancelledTakerSwallowsToken(t *testing.T) {
	t.Parallel()
	for range 100 { // select picks at random
		synctest.Test(t, func(t *testing.T) {
			var q DelayQueue[string]
			q.Push("far", 2*time.Second)
			ctx, cancel := context.WithCancel(context.Background())
			front := takeAsync(ctx, &q, 1)
			second := takeAsync(context.Background(), &q, 1)
			q.Push("near", 250*msec)
			cancel()
			require.ErrorIs(t, (<-front).err, context.Canceled)
			requireDelayQueue(t, &q)
			require.Equal(t, taken{"near", 250 * msec, nil}, <-second)
		})
	}
}

// lookCounter is a context that counts how often takers look at the queue, and looks at it itself:
// user code runs unlocked.
type lookCounter struct {
	context.Context
	queue *DelayQueue[string]
	looks atomic.Int32
}

func (c *lookCounter) Err() error {
	c.queue.Len()
	c.looks.Add(1)
	return c.Context.Err()
}

// Only the front one of many takers watches the clock, and what does not concern the head wakes
// nobody.
func TestDelayQueueOneTakerWatchesTheClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithCancel(context.Background())
		var q DelayQueue[string]
		ctx := &lookCounter{Context: parent, queue: &q}
		looks := func() int32 {
			synctest.Wait()
			return ctx.looks.Swap(0)
		}
		q.Push("never", math.MaxInt64)
		head := q.Push("head", 9*msec)
		out := takeAsync(ctx, &q, 100)
		require.EqualValues(t, 100, looks(), "each looks once")
		for range 50 {
			q.Remove(q.Push("behind the head", time.Hour))
		}
		require.Zero(t, looks())
		q.Reset(head, 5*msec)
		require.EqualValues(t, 1, looks(), "the front one sets its timer anew")
		require.Equal(t, taken{"head", 5 * msec, nil}, <-out)
		time.Sleep(time.Hour)
		require.EqualValues(t, 1, looks(), "the front one takes, nobody waits for what never comes")
		cancel()
	})
}

// The index of another queue's element must not even be read: it is guarded by the other queue's
// lock.
func TestDelayQueueForeignElementRace(t *testing.T) {
	t.Parallel()
	var q, other DelayQueue[int]
	e := other.Push(0, time.Hour)
	q.Push(0, time.Hour)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 100 {
			other.Reset(e, time.Duration(i))
		}
	}()
	for range 100 {
		require.False(t, q.Remove(e))
		require.False(t, q.Reset(e, 0))
	}
	<-done
}

func TestDelayQueueDoneContext(t *testing.T) {
	t.Parallel()
	var q DelayQueue[string]
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("cause"))
	q.Push("later", time.Hour)
	_, err := q.Take(ctx)
	require.Equal(t, context.Canceled, err)
	q.Push("due", 0)
	v, err := q.Take(ctx)
	require.NoError(t, err)
	require.Equal(t, "due", v)
	require.Equal(t, 1, q.Len())
}
