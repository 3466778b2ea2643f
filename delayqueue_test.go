package timingwheel

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
)

// requireDelayQueue checks the heap (H1 to H3).
func requireDelayQueue[T any](t *testing.T, q *DelayQueue[T]) {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	require.NoError(t, verifyHeap(&q.heap, func(e *element[T]) int { return e.index }))
}

// After a step of the wall clock by an hour, wall times and monotonic times are due correctly.
func TestDelayQueueWallClockStepped(t *testing.T) {
	t.Parallel()
	var q DelayQueue[int]
	q.Push(0, time.Hour)
	q.timeline.Base = stepped(t, q.timeline.Base, -time.Hour)
	in1min := time.Now().Add(time.Minute)
	for _, e := range []*Delayed[int]{q.PushAt(1, in1min), q.PushAt(2, in1min.Round(0)), q.Push(3, time.Minute)} {
		due, ok := e.Due()
		require.True(t, ok)
		require.InDelta(t, time.Minute, time.Until(due), float64(30*time.Second))
		require.False(t, due == due.Round(0), "no monotonic reading")
	}
}

// Handles of elements that are not in the queue, and foreign ones, change nothing. A taker waits
// without a timer for an element that is never due, and still wakes for an earlier one.
func TestDelayQueueOddHandles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var q, other DelayQueue[string]
		never, removed := q.Push("never", ms), q.Push("removed", 0)
		require.True(t, q.Remove(removed))
		clone := *never
		for name, e := range map[string]*Delayed[string]{
			"removed": removed, "nil": nil, "zero": {}, "a copy": &clone, "another queue's": other.Push("x", 0),
		} {
			require.False(t, q.Remove(e), name)
			require.False(t, q.Reset(e, 0), name)
		}
		_, ok := (*Delayed[string])(nil).Due()
		require.False(t, ok)
		require.Equal(t, 1, q.Len())
		require.Equal(t, 1, other.Len())
		time.Sleep(time.Hour) // so that now+MaxInt64 overflows
		require.True(t, q.Reset(never, math.MaxInt64))
		out := takeAsync(context.Background(), &q, 1)
		q.Push("soon", ms)
		require.Equal(t, taken{"soon", ms, nil}, <-out)
		requireDelayQueue(t, &q)
		require.PanicsWithValue(t, "timingwheel: DelayQueue.Channel: size is -3; it must not be negative", func() { q.Channel(t.Context(), -3) })
	})
}

// Abandoned iterators and queues have no goroutine. synctest.Test fails if a goroutine of its
// bubble is left.
func TestDelayQueueLeavesNoGoroutine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), ms)
		defer cancel()
		var q DelayQueue[string]
		q.Push("later", time.Hour)
		for range 10 {
			q.Channel(ctx, 1)
		}
		out := takeAsync(ctx, &q, 10)
		for range 10 {
			require.ErrorIs(t, (<-out).err, context.DeadlineExceeded)
		}
		synctest.Wait()
		require.Zero(t, q.takers.Len())
	})
}

// A value that has left the queue is collected, although the queue, its other elements and the
// handle are still in use.
func TestDelayQueueReleasesValues(t *testing.T) {
	t.Parallel()
	type payload struct {
		_ [64]byte
		_ *int
	}
	type queue = DelayQueue[*payload]
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ways := map[string]func(q *queue, e *Delayed[*payload]){
		"removed": func(q *queue, e *Delayed[*payload]) { q.Remove(e) },
		"polled":  func(q *queue, _ *Delayed[*payload]) { q.Poll() },
		"drained": func(q *queue, _ *Delayed[*payload]) { q.Drain(1) },
		"taken":   func(q *queue, _ *Delayed[*payload]) { _, _ = q.Take(ctx) },
		"received": func(q *queue, _ *Delayed[*payload]) {
			<-q.Channel(ctx, 0)
		},
	}
	for name, leave := range ways {
		t.Run(name, func(t *testing.T) {
			var q queue
			var rest []*Delayed[*payload]
			push := func(delay time.Duration) (*Delayed[*payload], weak.Pointer[payload]) {
				v := new(payload)
				return q.Push(v, delay), weak.Make(v)
			}
			for range 4 {
				e, _ := push(time.Hour)
				rest = append(rest, e)
			}
			e, value := push(0)
			runtime.GC()
			require.NotNil(t, value.Value())
			leave(&q, e)
			awaitCollected(t, value, "the value") // the stack frame of the feeder may still refer to it
			require.Equal(t, len(rest), q.Len())
			runtime.KeepAlive(e)
			runtime.KeepAlive(rest)
		})
	}
}

// taken is the result of a call to Take and its time since the start of the test.
type taken struct {
	v   string
	at  time.Duration
	err error
}

// takeAsync starts takers. Each takes once and sends the result.
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

// takerCase is a number of takers that wait while the queue changes.
var takerCases = map[string]struct {
	takers int
	events func(q *DelayQueue[string]) // begins when all wait, at time zero
	want   []taken
}{
	"take on an empty queue blocks until push": {1, func(q *DelayQueue[string]) {
		time.Sleep(7 * ms)
		q.Push("a", 0)
	}, []taken{{"a", 7 * ms, nil}}},
	"earlier push wakes the taker": {1, func(q *DelayQueue[string]) {
		q.Push("a", 50*ms)
		time.Sleep(ms)
		q.Push("b", ms)
	}, []taken{{"b", 2 * ms, nil}}},
	"reset to earlier wakes the taker": {1, func(q *DelayQueue[string]) {
		q.Push("a", 50*ms)
		e := q.Push("b", 60*ms)
		time.Sleep(ms)
		q.Reset(e, ms)
	}, []taken{{"b", 2 * ms, nil}}},
	"reset from never wakes the taker": {1, func(q *DelayQueue[string]) {
		e := q.Push("a", math.MaxInt64)
		time.Sleep(ms)
		q.Reset(e, ms)
	}, []taken{{"a", 2 * ms, nil}}},
	"reset of the head to later is not early": {1, func(q *DelayQueue[string]) {
		e := q.Push("a", 5*ms)
		time.Sleep(ms)
		q.Reset(e, 9*ms)
	}, []taken{{"a", 10 * ms, nil}}},
	"removed head makes the next one due in time": {1, func(q *DelayQueue[string]) {
		e := q.Push("a", 5*ms)
		q.Push("b", 8*ms)
		time.Sleep(ms)
		q.Remove(e)
	}, []taken{{"b", 8 * ms, nil}}},
	"three takers, three elements": {3, func(q *DelayQueue[string]) {
		q.Push("c", 30*ms)
		q.Push("a", 10*ms)
		q.Push("b", 20*ms)
	}, []taken{{"a", 10 * ms, nil}, {"b", 20 * ms, nil}, {"c", 30 * ms, nil}}},
	// Trap 10: the second of two elements was taken only when the old timer of the first taker
	// fired.
	"item due at 250ms is not taken at 2s": {2, func(q *DelayQueue[string]) {
		q.Push("far", 2*time.Second)
		time.Sleep(100 * ms)
		q.Push("near", 150*ms)
		q.Push("near", 150*ms)
	}, []taken{{"near", 250 * ms, nil}, {"near", 250 * ms, nil}}},
	"two pushes, one wake-up token": {3, func(q *DelayQueue[string]) {
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
				ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
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

// A Poll and a taker that has been woken compete for the head. One of them gets it.
func TestDelayQueueHeadGoesToPollOrTaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var q DelayQueue[string]
		out := takeAsync(context.Background(), &q, 1)
		q.Push("a", 0)
		if v, ok := q.Poll(); ok {
			require.Equal(t, "a", v)
			q.Push("b", 3*ms)
			require.Equal(t, taken{"b", 3 * ms, nil}, <-out)
		} else {
			require.Equal(t, taken{"a", 0, nil}, <-out)
		}
		require.Zero(t, q.Len())
	})
}

// Trap 10: the front taker receives a token for a new head while its context ends. It may act on
// the token or on the context. In both cases the other taker must be woken for the head.
func TestDelayQueueCancelledTakerPassesItsTokenOn(t *testing.T) {
	t.Parallel()
	for range 100 { // select picks at random
		synctest.Test(t, func(t *testing.T) {
			var q DelayQueue[string]
			q.Push("far", 2*time.Second)
			ctx, cancel := context.WithCancelCause(context.Background())
			front := takeAsync(ctx, &q, 1)
			second := takeAsync(context.Background(), &q, 1)
			q.Push("near", 250*ms)
			cancel(errCause)
			require.Equal(t, context.Canceled, (<-front).err)
			requireDelayQueue(t, &q)
			require.Equal(t, taken{"near", 250 * ms, nil}, <-second)
		})
	}
}

// lookCounter is a context that counts how often takers look at the queue. It also calls the queue,
// because user code runs unlocked.
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

// Only the front taker of many has a timer, and changes behind the head wake no taker.
func TestDelayQueueWakesOnlyTheFrontTaker(t *testing.T) {
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
		head := q.Push("head", 9*ms)
		out := takeAsync(ctx, &q, 100)
		require.EqualValues(t, 100, looks(), "each taker looks once")
		for range 50 {
			q.Remove(q.Push("behind the head", time.Hour))
		}
		require.Zero(t, looks())
		q.Reset(head, 5*ms)
		require.EqualValues(t, 1, looks(), "the front taker resets its timer")
		require.Equal(t, taken{"head", 5 * ms, nil}, <-out)
		time.Sleep(time.Hour)
		require.EqualValues(t, 1, looks(), "the front taker takes the head, and no taker waits for another token")
		cancel()
	})
}

// The index of another queue's element must not be read, because the other queue's lock guards it.
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

// The feeder puts a head back that is earlier than the head for which a taker waits.
func TestDelayQueueChannelPutBackWakesTaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var q DelayQueue[string]
		ctx, cancel := context.WithCancel(context.Background())
		q.Channel(ctx, 0)
		q.Push("a", 0)
		synctest.Wait()
		out := takeAsync(context.Background(), &q, 1)
		cancel()
		require.Equal(t, taken{"a", 0, nil}, <-out)
	})
}

// dqElement is an element of the reference.
type dqElement struct {
	id, seq int
	due     int64 // ns since the queue's base
	handle  *Delayed[int]
}

// dqModel runs a DelayQueue against a sorted slice, in a bubble.
type dqModel struct {
	t       *testing.T
	queue   DelayQueue[int]
	base    time.Time
	seq     int
	pending []*dqElement // sorted
	all     []*dqElement // by id
	script  []byte
}

// dqDelays are the delays and timeouts of a script, boundaries first.
var dqDelays = []time.Duration{
	0, 1, -1, ms, -ms, math.MaxInt64, math.MinInt64, math.MaxInt64 - 1, 2, ms - 1, ms + 1, 2 * ms, 3 * ms, 5 * ms,
	time.Second, time.Hour, 200 * 365 * 24 * time.Hour,
}

// byte returns the next byte of the script, and 0 after its end.
func (m *dqModel) byte() int {
	if len(m.script) == 0 {
		return 0
	}
	b := m.script[0]
	m.script = m.script[1:]
	return int(b)
}

func (m *dqModel) delay() time.Duration { return dqDelays[m.byte()%len(dqDelays)] }
func (m *dqModel) now() int64           { return int64(time.Since(m.base)) }

// after adds without overflow, by another method than the code.
func (m *dqModel) after(d time.Duration) int64 {
	now := m.now()
	if d > 0 && now > math.MaxInt64-int64(d) {
		return math.MaxInt64
	}
	return now + int64(d) // now is not negative
}

func (m *dqModel) arm(e *dqElement, due int64) {
	m.seq++
	e.due, e.seq = due, m.seq
	m.forget(e)
	m.pending = append(m.pending, e)
	slices.SortFunc(m.pending, func(a, b *dqElement) int {
		return cmp.Or(cmp.Compare(a.due, b.due), a.seq-b.seq)
	})
}

func (m *dqModel) forget(e *dqElement) {
	m.pending = slices.DeleteFunc(m.pending, func(p *dqElement) bool { return p == e })
}

// due removes the first n due elements, or all for n < 0, and returns their ids.
func (m *dqModel) due(n int) (ids []int) {
	for len(m.pending) > 0 && m.pending[0].due <= m.now() && n != 0 {
		ids = append(ids, m.pending[0].id)
		m.pending = m.pending[1:]
		n--
	}
	return ids
}

// any returns an element that was pushed before, or nil.
func (m *dqModel) any() *dqElement {
	if i := m.byte(); len(m.all) > 0 {
		return m.all[i%len(m.all)]
	}
	return nil
}

func (m *dqModel) push() {
	e := &dqElement{id: len(m.all)}
	m.all = append(m.all, e)
	switch m.byte() % 4 {
	case 0:
		at := time.Now().Add(time.Duration(m.byte()-128) * ms)
		m.arm(e, int64(at.Sub(m.base)))
		e.handle = m.queue.PushAt(e.id, at)
	case 1:
		at := time.Now().Add(time.Duration(m.byte()-128) * ms).Round(0)
		m.arm(e, int64(at.Sub(m.base.Round(0))))
		e.handle = m.queue.PushAt(e.id, at)
	case 3:
		at := []time.Time{{}, time.Date(5000, 1, 1, 0, 0, 0, 0, time.UTC)}[m.byte()%2]
		m.arm(e, m.after(time.Until(at)))
		e.handle = m.queue.PushAt(e.id, at)
	default:
		d := m.delay()
		m.arm(e, m.after(d))
		e.handle = m.queue.Push(e.id, d)
	}
}

func (m *dqModel) removeOrReset() {
	e := m.any()
	if e == nil {
		require.False(m.t, m.queue.Remove(nil))
		return
	}
	in := slices.Contains(m.pending, e)
	if m.byte()%2 == 0 {
		require.Equal(m.t, in, m.queue.Remove(e.handle))
		m.forget(e)
		return
	}
	d := m.delay()
	require.Equal(m.t, in, m.queue.Reset(e.handle, d))
	if in {
		m.arm(e, m.after(d))
	}
}

func (m *dqModel) poll() {
	v, ok := m.queue.Poll()
	want := m.due(1)
	require.Equal(m.t, len(want) == 1, ok)
	if ok {
		require.Equal(m.t, want[0], v)
	}
}

// take waits until the head is due or the timeout has passed. If both happen together, it takes the
// head.
func (m *dqModel) take() {
	timeout := min(m.delay(), time.Hour)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	end := max(m.after(timeout), m.now())
	v, err := m.queue.Take(ctx)
	if len(m.pending) == 0 || m.pending[0].due > end {
		require.Equal(m.t, context.DeadlineExceeded, err)
		require.Equal(m.t, end, m.now())
		return
	}
	require.NoError(m.t, err)
	require.Equal(m.t, m.due(1), []int{v}, "an element is early")
}

// channel lets a feeder fill a channel from which no goroutine receives.
func (m *dqModel) channel() {
	size := m.byte() % 5
	ctx, cancel := context.WithCancel(context.Background())
	ch := m.queue.Channel(ctx, size)
	time.Sleep(min(m.delay(), time.Hour))
	synctest.Wait()
	requireDelayQueue(m.t, &m.queue)
	if len(m.pending) > size && m.pending[size].due <= m.now() {
		held := m.pending[size].handle
		require.False(m.t, m.queue.Remove(held), "the feeder holds it")
		require.False(m.t, m.queue.Reset(held, 0))
		require.Equal(m.t, len(m.pending)-size-1, m.queue.Len())
	}
	cancel()
	var got []int
	for v := range ch {
		got = append(got, v)
	}
	require.Equal(m.t, m.due(size), got)
	for range m.queue.Channel(ctx, size) {
		require.Fail(m.t, "the context had ended before the call")
	}
}

// iterate breaks after some due elements or ends the context, and ends it first if none is due.
func (m *dqModel) iterate() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	want := m.due(1 + m.byte()%4)
	if want == nil {
		cancel()
	}
	var got []int
	for v := range m.queue.All(ctx) {
		if got = append(got, v); len(got) == len(want) {
			if m.byte()%2 == 0 {
				break
			}
			cancel() // elements that are due stay
		}
	}
	require.Equal(m.t, want, got)
}

func (m *dqModel) step() {
	switch m.byte() % 12 {
	case 0, 1, 2, 3:
		m.push()
	case 4, 5:
		m.removeOrReset()
	case 6:
		m.poll()
	case 7:
		n := m.byte()%6 - 1
		want := m.due(cmp.Or(max(n, 0), -1))
		require.Equal(m.t, want, m.queue.Drain(n))
	case 8:
		time.Sleep(min(m.delay(), 365*24*time.Hour))
	case 9:
		m.take()
	case 10:
		m.channel()
	default:
		m.iterate()
	}
}

// verify compares the visible state and checks the invariants.
func (m *dqModel) verify() {
	requireDelayQueue(m.t, &m.queue)
	require.Equal(m.t, len(m.pending), m.queue.Len())
	v, due, ok := m.queue.Peek()
	require.Equal(m.t, len(m.pending) > 0, ok)
	if ok {
		require.Equal(m.t, m.pending[0].id, v)
		require.True(m.t, due.Equal(m.base.Add(time.Duration(m.pending[0].due))))
	}
	in := 0
	for _, e := range m.all {
		if _, ok := e.handle.Due(); ok {
			in++
		}
	}
	require.Equal(m.t, len(m.pending), in, "handles whose elements are in the queue")
}

// dqEnd is the time at which scripts end. The clock of a bubble ends in 2262, and a sleep there
// crashes the runtime (Go 1.26).
const dqEnd = 200 * 365 * 24 * time.Hour

// runDelayQueueScript interprets bytes as calls and verifies the queue after every step.
func runDelayQueueScript(t *testing.T, script []byte) {
	synctest.Test(t, func(t *testing.T) {
		m := &dqModel{t: t, base: time.Now(), script: script}
		_, _ = m.queue.Poll() // the first use sets the queue's base
		for len(m.script) > 0 && m.now() < int64(dqEnd) {
			m.step()
			m.verify()
		}
	})
}

func TestDelayQueueModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 10))
		script := make([]byte, 600)
		for i := range script {
			script[i] = byte(rng.Uint32())
		}
		runDelayQueueScript(t, script)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzDelayQueue(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 2, 5, 0, 2, 6, 4, 0, 1, 5, 6, 7, 0}) // saturated both ways, reset, poll, drain
	f.Add([]byte{0, 0, 128, 0, 1, 128, 10, 0, 3, 11, 2}) // equal due times, Channel, All
	f.Add([]byte{0, 2, 3, 9, 3, 0, 2, 12, 9, 11, 8, 13}) // takes that end on a tie and before it
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 2000 {
			t.Skip("too long")
		}
		runDelayQueueScript(t, script)
	})
}

// Trap 10: a head is published after a taker has looked and before it sleeps.
func TestDelayQueueHeadIsNotMissedBetweenLookAndSleep(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var ping, pong DelayQueue[int]
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range 5000 {
				v, err := ping.Take(ctx)
				if err != nil {
					return
				}
				pong.Push(v, 0)
			}
		})
	}
	for i := range 10_000 {
		ping.Push(i, time.Duration(i%3)) // 0 to 2 ns: due about when the taker looks
		v, err := pong.Take(ctx)
		require.NoError(t, err, "round %d: a wake-up was lost", i)
		require.Equal(t, i, v)
	}
	wg.Wait()
}

// dqParcel is an element of the stress test.
type dqParcel struct {
	id     int
	pushed time.Time
	delay  time.Duration
}

// With several producers, takers of every kind and removers, each element leaves exactly once and
// never early.
func TestRaceDelayQueueElementsLeaveExactlyOnce(t *testing.T) {
	t.Parallel()
	const producers, each = 4, 2000
	ctx, done := context.WithTimeout(context.Background(), time.Minute)
	defer done()
	var q DelayQueue[dqParcel]
	var left [producers * each]atomic.Int32
	var early, total atomic.Int32
	count := func(id int) {
		left[id].Add(1)
		if total.Add(1) == producers*each {
			done()
		}
	}
	claim := func(p dqParcel) {
		if time.Since(p.pushed) < p.delay {
			early.Add(1)
		}
		count(p.id)
	}
	var wg sync.WaitGroup
	for i := range producers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 0))
			handles := make([]*Delayed[dqParcel], each)
			for n := range each {
				p := dqParcel{i*each + n, time.Now(), time.Duration(rng.IntN(500)) * time.Microsecond}
				handles[n] = q.Push(p, p.delay)
				switch old := rng.IntN(n + 1); rng.IntN(4) {
				case 0:
					if q.Remove(handles[old]) {
						count(i*each + old)
					}
				case 1:
					q.Reset(handles[n], p.delay) // not before it was due
				}
				if n%100 == 0 {
					time.Sleep(ms)
				}
			}
		})
	}
	takers := []func(){
		func() { // gives up every now and then
			short, cancel := context.WithTimeout(ctx, 300*time.Microsecond)
			defer cancel()
			if p, err := q.Take(short); err == nil {
				claim(p)
			}
		},
		func() {
			short, cancel := context.WithTimeout(ctx, ms)
			defer cancel()
			for p := range q.Channel(short, 2) {
				claim(p)
			}
		},
		func() {
			for p := range q.All(ctx) {
				claim(p)
				if p.id%10 == 0 {
					break
				}
			}
		},
		func() {
			for _, p := range q.Drain(3) {
				claim(p)
			}
			time.Sleep(100 * time.Microsecond)
		},
	}
	for _, take := range append(takers, takers[0], takers[2]) {
		wg.Go(func() {
			for ctx.Err() == nil {
				take()
			}
		})
	}
	wg.Wait()
	require.Zero(t, early.Load(), "elements came early")
	require.Zero(t, q.Len())
	for id := range left {
		require.EqualValues(t, 1, left[id].Load(), "element %d", id)
	}
	requireDelayQueue(t, &q)
	require.Zero(t, q.takers.Len())
}
