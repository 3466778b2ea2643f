package pool

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/testscale"
)

// call is an item. Its callback runs once.
type call struct {
	f     func()
	begun atomic.Bool
}

// calls returns items with callbacks.
func calls(fs ...func()) []*call {
	items := make([]*call, len(fs))
	for i, f := range fs {
		items[i] = &call{f: f}
	}
	return items
}

// funcs is a host of calls.
type funcs struct {
	more    func()
	stopped atomic.Bool // no call begins any more
}

func (h *funcs) Run(items []*call) {
	for _, c := range items {
		if !h.stopped.Load() && !c.begun.Swap(true) {
			c.f()
		}
	}
}

func (h *funcs) Live() func(*call) bool { return func(c *call) bool { return !c.begun.Load() } }

func (h *funcs) More() {
	if h.more != nil {
		h.more()
	}
}

// verify returns an error if the counts of a pool cannot be right. Its other invariants show in
// callbacks that are lost, run twice, or run after Close.
func (p *Pool[E]) verify(isZero func(E) bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	batched := 0 // active workers with a batch of several items
	for w := range p.batched {
		if len(w.items) < 2 || !w.spare {
			return fmt.Errorf("P3: %+v", *w)
		}
		if w.epoch == p.epoch {
			batched++
		}
	}
	switch {
	case p.active < batched || p.active > p.running:
		return fmt.Errorf("P4: %d active, %d running", p.active, p.running)
	case p.room() < 0:
		return fmt.Errorf("limit %d, %d running", p.config.Limit, p.running)
	case p.size < 1 || p.size > batchMax:
		return fmt.Errorf("R2: size %d", p.size)
	case p.closed && p.queue.Len() > 0:
		return errors.New("P5: items after Close")
	}
	return p.queue.verify(isZero)
}

// bubble runs a test on a pool with fake time. At the end it closes the pool, and fails if a
// goroutine is left.
func bubble(t *testing.T, h *funcs, c Config, test func(t *testing.T, p *Pool[*call])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := New(h, c)
		test(t, p)
		verify := func() {
			synctest.Wait()
			require.NoError(t, p.verify(func(c *call) bool { return c == nil }))
		}
		verify()
		p.Close()
		<-p.Idle()
		verify()
		require.Zero(t, p.counts())
		require.False(t, p.timerIsSet())
	})
}

// fill makes a pool with an Active of 2 believe that enough workers are active.
func (p *Pool[E]) fill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active += 2
}

// post puts items into the pool.
func post(p *Pool[*call], items ...*call) {
	p.Put(items, false)
	go p.Wake()
}

// repeat returns n items with the same callback.
func repeat(n int, f func()) []*call { return calls(slices.Repeat([]func(){f}, n)...) }

// setSize sets the size of the next batch, as quick or blocked callbacks do.
func (p *Pool[E]) setSize(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.size = n
}

// counts has the numbers of queued items and of workers that run a batch.
type counts struct{ Queued, Running int }

func (p *Pool[E]) counts() counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return counts{p.queue.Len(), p.running}
}

func (p *Pool[E]) timerIsSet() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stalls.set
}

func TestCallbacksThatWaitForEachOtherAllRun(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 4, batchMax} {
		bubble(t, &funcs{}, Config{Active: 2}, func(t *testing.T, p *Pool[*call]) {
			p.setSize(size)
			const n = 1000
			var arrived atomic.Int32
			all := make(chan struct{})
			post(p, repeat(n, func() {
				if arrived.Add(1) == n {
					close(all)
				}
				<-all
			})...)
			<-all
		})
	}
}

func TestBlockedCallbackDelaysNoOtherOfItsBatch(t *testing.T) {
	t.Parallel()
	bubble(t, &funcs{}, Config{Active: 2}, func(t *testing.T, p *Pool[*call]) {
		p.setSize(batchMax)
		release := make(chan struct{})
		var ran atomic.Int32
		post(p, append(calls(func() { <-release }), repeat(3*batchMax, func() { ran.Add(1) })...)...)
		synctest.Wait()
		assert.EqualValues(t, 3*batchMax, ran.Load())
		assert.Equal(t, counts{Running: 1}, p.counts())
		close(release)
	})
}

// Quick callbacks share a goroutine: a spare that begins while they run finds nothing to do.
func TestQuickCallbacksNeedNoGoroutineOfTheirOwn(t *testing.T) {
	t.Parallel()
	bubble(t, &funcs{}, Config{Active: 1}, func(t *testing.T, p *Pool[*call]) {
		var most atomic.Int32
		p.Put(repeat(100_000, func() {
			if n := int32(p.counts().Running); n > most.Load() {
				most.Store(n)
			}
		}), false)
		p.Wake()
		synctest.Wait()
		assert.LessOrEqual(t, most.Load(), int32(100))
	})
}

func TestGoexitEndsOnlyItsCallback(t *testing.T) {
	t.Parallel()
	for _, c := range []Config{{Active: 1}, {Active: 4}, {Active: 2, Limit: 1}, {Active: 2, Limit: 3}} {
		bubble(t, &funcs{}, c, func(t *testing.T, p *Pool[*call]) {
			p.setSize(batchMax)
			var ran atomic.Int32
			post(p, repeat(10*batchMax, func() {
				if ran.Add(1)%3 == 0 {
					runtime.Goexit()
				}
			})...)
			synctest.Wait()
			assert.EqualValues(t, 10*batchMax, ran.Load())
		})
	}
}

func TestPanicOfACallbackCrashesTheProgram(t *testing.T) {
	if os.Getenv("POOL_PANIC") != "" {
		p := New(&funcs{}, Config{Active: 1})
		p.Put(calls(func() { panic("boom") }), false)
		p.Wake()
		return
	}
	t.Parallel()
	command := exec.Command(os.Args[0], "-test.run=^TestPanicOfACallbackCrashesTheProgram$")
	command.Env = append(os.Environ(), "POOL_PANIC=1")
	out, err := command.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "panic: boom")
}

// The limit is reached and never exceeded, and no callback waits while a goroutine is free.
func TestLimitIsReachedAndNotExceeded(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 2, 3, 10, 200} {
		bubble(t, &funcs{}, Config{Active: 2, Limit: limit}, func(t *testing.T, p *Pool[*call]) {
			p.setSize(batchMax)
			const n = 200
			var running, most atomic.Int32
			begin := time.Now()
			for range 4 {
				post(p, repeat(n/4, func() {
					if r := running.Add(1); r > most.Load() {
						most.Store(r)
					}
					time.Sleep(time.Second)
					running.Add(-1)
				})...)
			}
			for p.counts().Running > 0 || time.Since(begin) == 0 {
				time.Sleep(time.Second / 2)
			}
			assert.EqualValues(t, limit, most.Load())
			assert.Equal(t, time.Duration((n+limit-1)/limit)*time.Second, time.Since(begin).Truncate(time.Second))
		})
	}
}

func TestBatchesOfPayloadsAreFullAndConcurrent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n, perCall = 1000, 256
		h := &payloads{}
		p := New(h, Config{Active: 2, PerCall: perCall})
		items := make([]int, n)
		for i := range items {
			items[i] = i
		}
		p.Put(items, false)
		begin := time.Now()
		go p.Wake()
		synctest.Wait()
		assert.Equal(t, counts{Running: 4}, p.counts())
		<-p.Idle()
		assert.Equal(t, time.Second, time.Since(begin), "calls do not wait for each other")
		seen := make([]int, n)
		for _, call := range h.calls {
			assert.LessOrEqual(t, len(call), perCall)
			for _, i := range call {
				seen[i]++
			}
		}
		for i := range seen {
			require.Equal(t, 1, seen[i], i)
		}
		p.Close()
	})
}

// payloads is a host that passes its items to one call, which takes a second.
type payloads struct {
	mu    sync.Mutex
	calls [][]int
}

func (h *payloads) Run(items []int) {
	time.Sleep(time.Second)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, slices.Clone(items))
}

func (*payloads) Live() func(int) bool { return func(int) bool { return true } }

func (*payloads) More() {}

// A worker that finds the queue empty asks for more, without a lock, and runs it.
func TestWorkerAsksForMoreBeforeItEnds(t *testing.T) {
	t.Parallel()
	h := &funcs{}
	bubble(t, h, Config{Active: 2}, func(t *testing.T, p *Pool[*call]) {
		asked, ran := 0, 0
		h.more = func() {
			if asked++; asked <= 1000 {
				p.Put(calls(func() { ran++ }), false)
			}
		}
		p.Wake()
		assert.Equal(t, 1001, asked)
		assert.Equal(t, 1000, ran)
	})
}

// A callback that puts itself into the pool again and again does not keep others from running.
func TestChainOfCallbacksDelaysNoOther(t *testing.T) {
	t.Parallel()
	bubble(t, &funcs{}, Config{Active: 1}, func(t *testing.T, p *Pool[*call]) {
		var chain func()
		var n atomic.Int32
		var other atomic.Bool
		chain = func() {
			if n.Add(1) == 10_000 {
				p.Put(calls(func() { other.Store(true) }), false)
			}
			if !other.Load() && n.Load() < 100_000_000 {
				p.Put(calls(chain), false)
			}
		}
		p.Put(calls(chain), false)
		p.Wake()
		synctest.Wait()
		assert.True(t, other.Load())
		assert.Less(t, n.Load(), int32(100_000_000))
	})
}

// The spares of all active workers are late: only the timer helps.
func TestTimerStartsAWorkerWhileSparesAreLate(t *testing.T) {
	t.Parallel()
	bubble(t, &funcs{}, Config{Active: 2}, func(t *testing.T, p *Pool[*call]) {
		var ran atomic.Bool
		p.Put(calls(func() { ran.Store(true) }), false)
		p.fill()
		p.mu.Lock()
		p.setTimer()
		p.mu.Unlock()
		time.Sleep(stallAfter - 1)
		assert.False(t, ran.Load())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		assert.True(t, ran.Load())
	})
}

// The spare of a blocked worker is late: the timer gives the rest of the batch goroutines.
func TestTimerFreesTheRestOfABatch(t *testing.T) {
	t.Parallel()
	bubble(t, &funcs{}, Config{Active: 2}, func(t *testing.T, p *Pool[*call]) {
		var ran atomic.Int32
		release := make(chan struct{})
		w := &worker[*call]{pool: p, spare: true}
		p.Put(append(calls(func() { <-release }), repeat(3, func() { ran.Add(1) })...), false)
		p.setSize(batchMax)
		p.mu.Lock()
		p.free = w
		p.mu.Unlock()
		go p.Wake()
		synctest.Wait()
		assert.Zero(t, ran.Load())
		time.Sleep(stallAfter)
		synctest.Wait()
		assert.Zero(t, ran.Load())
		time.Sleep(stallAfter)
		synctest.Wait()
		assert.EqualValues(t, 3, ran.Load())
		close(release)
		p.runSpare(w)
	})
}

func TestTimerIsSetOnlyWhileItemsAreQueued(t *testing.T) {
	t.Parallel()
	bubble(t, &funcs{}, Config{Active: 1}, func(t *testing.T, p *Pool[*call]) {
		release := make(chan struct{})
		post(p, calls(func() { <-release })...)
		synctest.Wait()
		assert.False(t, p.timerIsSet())
		var set atomic.Int32
		p.Put(repeat(100, func() {
			if p.timerIsSet() {
				set.Add(1)
			}
		}), false)
		p.Wake()
		synctest.Wait()
		assert.GreaterOrEqual(t, set.Load(), int32(99-batchMax))
		assert.False(t, p.timerIsSet())
		close(release)
	})
}

func TestTimerOfAFullPoolIsNotSet(t *testing.T) {
	t.Parallel()
	bubble(t, &funcs{}, Config{Active: 2, Limit: 1}, func(t *testing.T, p *Pool[*call]) {
		release := make(chan struct{})
		post(p, repeat(3, func() { <-release })...)
		synctest.Wait()
		assert.False(t, p.timerIsSet())
		assert.Equal(t, counts{Queued: 2, Running: 1}, p.counts())
		close(release)
	})
}

// A full pool sets no timer. It sets one when a callback returns and its worker ends.
func TestTimerIsSetWhenAFullPoolHasRoomAgain(t *testing.T) {
	t.Parallel()
	bubble(t, &funcs{}, Config{Active: 1, Limit: 2}, func(t *testing.T, p *Pool[*call]) {
		var ran atomic.Bool
		first, second := make(chan struct{}), make(chan struct{})
		post(p, calls(func() { <-first })...)
		synctest.Wait()
		p.Put(calls(func() { <-second }, func() { ran.Store(true) }), false)
		w := &worker[*call]{pool: p, spare: true} // its earlier spare is late
		p.setSize(2)                              // else the worker that returns would run the item
		p.mu.Lock()
		p.free = w
		p.mu.Unlock()
		go p.Wake()
		synctest.Wait()
		close(first)
		synctest.Wait()
		assert.False(t, ran.Load())
		time.Sleep(stallAfter)
		synctest.Wait()
		assert.True(t, ran.Load())
		close(second)
		synctest.Wait()
		p.runSpare(w)
	})
}

func TestStallRunsWhatWaitsWhileEnoughWorkersAreActive(t *testing.T) {
	t.Parallel()
	const n = 1000
	tests := []struct {
		name  string
		c     Config
		set   func(p *Pool[*call])
		timed bool
		begun int // callbacks that begin while none returns
	}{
		{"blocked", Config{Active: 2}, func(*Pool[*call]) {}, true, n},
		{"quick callbacks", Config{Active: 2}, func(p *Pool[*call]) { p.size = 2 }, false, n},
		{"progress", Config{Active: 2}, func(p *Pool[*call]) { p.stalls.taken = progressMin }, false, n},
		{"limit", Config{Active: 2, Limit: 100}, func(*Pool[*call]) {}, true, 100},
		{"batches", Config{Active: 2, PerCall: 100}, func(*Pool[*call]) {}, true, n / 100},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, &funcs{}, test.c, func(t *testing.T, p *Pool[*call]) {
				var ran atomic.Int32
				release := make(chan struct{})
				p.Put(repeat(n, func() {
					if ran.Add(1) == 1 {
						p.mu.Lock()
						assert.Equal(t, test.timed, p.stalls.timedSpares)
						p.mu.Unlock()
					}
					<-release
				}), false)
				p.fill() // without deactivateAll in stall, the timer's worker would end immediately
				p.mu.Lock()
				p.setTimer()
				test.set(p)
				p.mu.Unlock()
				synctest.Wait()
				assert.Zero(t, ran.Load())
				time.Sleep(stallAfter + 1) // the nanosecond is for the spares that timers start
				synctest.Wait()
				assert.EqualValues(t, test.begun, ran.Load())
				close(release)
				synctest.Wait()
				assert.EqualValues(t, n, ran.Load())
			})
		})
	}
}

// A few quick callbacks do not end timedSpares. A batch size of 32 does.
func TestTimedSparesEndWithLargeBatches(t *testing.T) {
	t.Parallel()
	bubble(t, &funcs{}, Config{Active: 1}, func(t *testing.T, p *Pool[*call]) {
		timed := func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.stalls.timedSpares
		}
		p.stalls.timedSpares = true
		release := make(chan struct{})
		for range 10 {
			post(p, append(repeat(3, func() {}), repeat(3, func() { <-release })...)...)
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			assert.True(t, timed())
		}
		close(release)
		p.Put(repeat(10*batchMax, func() {}), false)
		p.Wake()
		assert.False(t, timed())
	})
}

func TestCloseDiscardsWhatHasNotBegun(t *testing.T) {
	t.Parallel()
	for _, c := range []Config{{Active: 2}, {Active: 2, Limit: 1}} {
		h := &funcs{}
		bubble(t, h, c, func(t *testing.T, p *Pool[*call]) {
			p.setSize(batchMax)
			var ran atomic.Int32
			release := make(chan struct{})
			closing := func() { h.stopped.Store(true); p.Close(); ran.Add(1); <-release }
			post(p, append(calls(closing), repeat(3*batchMax, func() { ran.Add(1) })...)...)
			synctest.Wait()
			assert.Equal(t, counts{Running: 1}, p.counts())
			idle := p.Idle()
			post(p, calls(func() { ran.Add(1) })...)
			p.Close()
			synctest.Wait()
			select {
			case <-idle:
				assert.Fail(t, "idle while a callback runs")
			default:
			}
			close(release)
			<-idle
			assert.EqualValues(t, 1, ran.Load())
		})
	}
}

// model is a host whose items are numbers. Their callbacks do at random what callbacks may do.
type model struct {
	t      *testing.T
	pool   *Pool[uint32]
	ran    []atomic.Uint32 // calls for each item
	put    []atomic.Uint32 // Puts of each item
	left   atomic.Int64    // items that were put and have not run
	closed atomic.Bool     // no callback begins any more
	gate   chan struct{}
}

func (m *model) Live() func(uint32) bool { return func(i uint32) bool { return m.ran[i].Load() == 0 } }

func (m *model) Run(items []uint32) {
	for _, i := range items {
		if m.closed.Load() { // as after a wheel's Stop, which marks its timers
			return
		}
		if !m.ran[i].CompareAndSwap(0, 1) {
			continue
		}
		if m.pool.config.PerCall == 1 {
			m.callback(i)
		} else { // one callback for all, from the last item
			defer m.callback(i)
		}
	}
}

func (*model) More() {}

// add puts items into the pool, each for the first time.
func (m *model) add(items ...uint32) {
	for _, i := range items {
		m.put[i].Add(1)
	}
	m.left.Add(int64(len(items)))
	m.pool.Put(items, false)
	go m.pool.Wake()
}

func (m *model) callback(item uint32) {
	defer func() {
		if v := recover(); v != nil && v != "boom" {
			panic(v)
		}
	}()
	defer m.left.Add(-1)
	switch rand.IntN(50) {
	case 0:
		time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
	case 1: // waits for another callback
		select {
		case m.gate <- struct{}{}:
		case <-m.gate:
		case <-time.After(5 * time.Millisecond):
		}
	case 2:
		runtime.Goexit()
	case 3:
		panic("boom")
	case 4:
		runtime.Gosched()
	case 5, 6:
		if half := uint32(len(m.ran) / 2); item < half {
			m.add(item + half)
		}
	}
}

// check watches the pool until done is closed.
func (m *model) check(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		default:
			assert.NoError(m.t, m.pool.verify(func(i uint32) bool { return i == 0 }))
			runtime.Gosched()
		}
	}
}

// eachModel runs test on models of different pools while goroutines put items.
func eachModel(t *testing.T, test func(t *testing.T, m *model, puts *sync.WaitGroup)) {
	t.Helper()
	for _, c := range []Config{
		{Active: 1}, {Active: 2}, {Active: 16}, {Active: 2, Limit: 1}, {Active: 2, Limit: 5}, {Active: 2, PerCall: 7}, {Active: 1, PerCall: 3, Limit: 2},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			t.Parallel()
			n, putters := testscale.Size(200_000), 4
			m := &model{t: t, ran: make([]atomic.Uint32, 2*n), put: make([]atomic.Uint32, 2*n), gate: make(chan struct{})}
			m.pool = New(m, c)
			done := make(chan struct{})
			var checks, puts sync.WaitGroup
			checks.Go(func() { m.check(done) })
			for k := range putters {
				puts.Go(func() {
					for i := k * n / putters; i < (k+1)*n/putters; {
						var items []uint32
						for range min(1+rand.IntN(50), (k+1)*n/putters-i) {
							items = append(items, uint32(i))
							i++
						}
						m.add(items...)
					}
				})
			}
			test(t, m, &puts)
			close(done)
			checks.Wait()
		})
	}
}

func TestModelEachItemRunsOnce(t *testing.T) {
	t.Parallel()
	eachModel(t, func(t *testing.T, m *model, puts *sync.WaitGroup) {
		t.Helper()
		puts.Wait()
		require.Eventually(t, func() bool { return m.left.Load() == 0 }, time.Minute, time.Millisecond)
		for i := range m.ran {
			require.Equal(t, m.put[i].Load(), m.ran[i].Load(), i)
		}
		require.Eventually(t, func() bool { return m.pool.counts() == counts{} }, time.Minute, time.Millisecond)
	})
}

func TestModelNothingRunsAfterClose(t *testing.T) {
	t.Parallel()
	eachModel(t, func(t *testing.T, m *model, puts *sync.WaitGroup) {
		t.Helper()
		time.Sleep(time.Duration(rand.IntN(5000)) * time.Microsecond)
		m.pool.Close()
		m.closed.Store(true)
		<-m.pool.Idle()
		ran := uint32(0)
		for i := range m.ran {
			require.LessOrEqual(t, m.ran[i].Load(), m.put[i].Load(), i)
			ran += m.ran[i].Load()
		}
		puts.Wait()
		require.Eventually(t, func() bool { return m.pool.counts() == counts{} }, time.Minute, time.Millisecond)
		for i := range m.ran {
			ran -= m.ran[i].Load()
		}
		require.Zero(t, ran)
	})
}

// A worker asks for more while few items are left, if the host has said that it has more, and does
// not ask before.
func TestWorkerAsksForMoreWhileFewItemsAreLeft(t *testing.T) {
	t.Parallel()
	h := &funcs{}
	bubble(t, h, Config{Active: 1}, func(t *testing.T, p *Pool[*call]) {
		put := 2 * few
		var ran atomic.Int32
		var queued []int
		h.more = func() {
			if n := p.counts().Queued; put < 10*few {
				queued = append(queued, n)
				put += few
				p.Put(repeat(few, func() { ran.Add(1) }), put < 10*few)
			}
		}
		p.Put(repeat(put, func() { ran.Add(1) }), true)
		p.Wake()
		synctest.Wait()
		assert.EqualValues(t, 10*few, ran.Load())
		assert.Len(t, queued, 8)
		for _, n := range queued {
			assert.LessOrEqual(t, n, few) // the spare may have taken some meanwhile
		}
		assert.GreaterOrEqual(t, slices.Max(queued), few-batchMax)
	})
}

// If the host has more but cannot put it yet, the worker asks again, and runs what is queued in
// between.
func TestWorkerAsksUntilTheHostHasNoMore(t *testing.T) {
	t.Parallel()
	h := &funcs{}
	bubble(t, h, Config{Active: 1}, func(t *testing.T, p *Pool[*call]) {
		var asked, ran atomic.Int32
		h.more = func() {
			if asked.Add(1) < 100 {
				p.Put(nil, true)
			}
		}
		p.Put(calls(func() { ran.Add(1); assert.LessOrEqual(t, asked.Load(), int32(1)) }), true)
		p.Wake()
		synctest.Wait()
		assert.EqualValues(t, 1, ran.Load())
		assert.InDelta(t, 101, asked.Load(), 1)
	})
}

// Only one worker asks at a time: others end meanwhile.
func TestOneWorkerAsksForMore(t *testing.T) {
	t.Parallel()
	h := &funcs{}
	bubble(t, h, Config{Active: 2}, func(t *testing.T, p *Pool[*call]) {
		var asking, most atomic.Int32
		h.more = func() {
			if n := asking.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(time.Second)
			asking.Add(-1)
		}
		for range 10 {
			go p.Wake()
		}
		time.Sleep(2 * time.Second)
		assert.EqualValues(t, 1, most.Load())
	})
}
