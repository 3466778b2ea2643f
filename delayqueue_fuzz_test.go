package timingwheel

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// dqElement is an element as the reference sees it.
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

// dqDelays are the delays and timeouts of a script; the boundaries first.
var dqDelays = []time.Duration{
	0, 1, -1, msec, -msec, math.MaxInt64, math.MinInt64, math.MaxInt64 - 1, 2, msec - 1, msec + 1, 2 * msec, 3 * msec, 5 * msec,
	time.Second, time.Hour, 200 * 365 * 24 * time.Hour,
}

// byte returns the next byte of the script, zero behind its end.
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

// after adds without overflow, in another way than the code does.
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

// due returns the ids of the first n elements that are due, of all for n < 0, and forgets them.
func (m *dqModel) due(n int) (ids []int) {
	for len(m.pending) > 0 && m.pending[0].due <= m.now() && n != 0 {
		ids = append(ids, m.pending[0].id)
		m.pending = m.pending[1:]
		n--
	}
	return ids
}

// any returns an element that was pushed at some time, or nil.
func (m *dqModel) any() *dqElement {
	if i := m.byte(); len(m.all) > 0 {
		return m.all[i%len(m.all)]
	}
	return nil
}

func (m *dqModel) push() {
	e := &dqElement{id: len(m.all)}
	m.all = append(m.all, e)
	switch m.byte() % 3 {
	case 0:
		at := time.Now().Add(time.Duration(m.byte()-128) * msec)
		m.arm(e, int64(at.Sub(m.base)))
		e.handle = m.queue.PushAt(e.id, at)
	case 1:
		at := time.Now().Add(time.Duration(m.byte()-128) * msec).Round(0)
		m.arm(e, int64(at.Sub(m.base.Round(0))))
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

// take waits until the head is due or time is up, whichever is first; on a tie the head wins.
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
	require.Equal(m.t, m.due(1), []int{v}, "nil wanted: early")
}

// channel lets a feeder fill a buffer that nobody receives from.
func (m *dqModel) channel() {
	size := m.byte() % 5
	ctx, cancel := context.WithCancel(context.Background())
	ch := m.queue.Channel(ctx, size)
	time.Sleep(min(m.delay(), time.Hour))
	synctest.Wait()
	requireDelayQueue(m.t, &m.queue)
	cancel()
	var got []int
	for v := range ch {
		got = append(got, v)
	}
	require.Equal(m.t, m.due(size), got)
}

// iterate breaks off after the last element that is due, or ends the context if none is.
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
			break
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

// verify compares what can be seen and checks the invariants.
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
	require.Equal(m.t, len(m.pending), in, "handles that believe that they are in")
}

// dqEnd is when scripts end: a bubble's clock ends in 2262, and a sleep there crashes the runtime
// (Go 1.26).
const dqEnd = 200 * 365 * 24 * time.Hour

// runDelayQueueScript interprets bytes as calls. verify() follows every step.
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
	f.Add([]byte{0, 0, 128, 0, 1, 128, 10, 0, 3, 11, 2}) // ties, a channel that puts back, an iterator
	f.Add([]byte{0, 2, 3, 9, 3, 0, 2, 12, 9, 11, 8, 13}) // takes that end on a tie and before it
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 2000 {
			t.Skip("too long")
		}
		runDelayQueueScript(t, script)
	})
}

// Trap 10: the head was published after the taker had looked and before it slept.
func TestDelayQueueHeadPublishedAfterTakerLooked(t *testing.T) {
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

// Several producers, takers of every kind and removers: each element leaves exactly once, none
// early.
func TestDelayQueueStress(t *testing.T) {
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
					time.Sleep(msec)
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
			short, cancel := context.WithTimeout(ctx, msec)
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
