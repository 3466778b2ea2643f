package pool

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/timingwheel-go/timingwheel/internal/bench"
	"github.com/timingwheel-go/timingwheel/internal/heap"
)

// The benchmarks compare the pool with a goroutine for each callback (impl=go), with a fixed number
// of goroutines that read a channel (impl=channel), and with time.AfterFunc (impl=std). For the
// busy ones see internal/bench.

// timer is an item of the toy wheel.
type timer struct {
	f       func()
	claimed atomic.Bool
}

// bucket holds the timers of one millisecond.
type bucket struct {
	at     time.Duration
	timers []*timer
}

func (b *bucket) Before(other *bucket) bool { return b.at < other.at }
func (b *bucket) SetHeapIndex(int)          {}

// toyHost claims timers and runs them.
type toyHost struct{ wheels []*toyWheel }

func (h *toyHost) Run(timers []*timer) {
	for _, t := range timers {
		if t.claimed.CompareAndSwap(false, true) {
			t.f()
		}
	}
}

func (h *toyHost) Live() func(*timer) bool { return func(*timer) bool { return true } }

func (h *toyHost) More() {
	for _, w := range h.wheels {
		if int64(time.Since(w.base)) >= w.next.Load() && w.mu.TryLock() {
			w.expire()
			w.mu.Unlock()
		}
	}
}

// toyWheel is a heap of buckets with an alarm, and one of several that share a pool.
type toyWheel struct {
	pool  *Pool[*timer]
	base  time.Time
	next  atomic.Int64 // when the alarm goes off
	mu    sync.Mutex
	heap  heap.Heap[*bucket]
	ticks map[time.Duration]*bucket
	alarm *time.Timer
}

const never = 1<<63 - 1

// expire puts the timers that are due into the pool and sets the alarm. mu is held.
func (w *toyWheel) expire() {
	for {
		b, ok := w.heap.Min()
		if !ok {
			w.next.Store(never)
			return
		}
		if b.at > time.Since(w.base) {
			w.set(b.at)
			return
		}
		w.heap.Remove(0)
		delete(w.ticks, b.at)
		w.pool.Put(b.timers, false)
	}
}

// set sets the alarm. mu is held.
func (w *toyWheel) set(at time.Duration) {
	w.next.Store(int64(at))
	if d := at - time.Since(w.base); w.alarm == nil {
		w.alarm = time.AfterFunc(d, w.drive)
	} else {
		w.alarm.Reset(d)
	}
}

func (w *toyWheel) drive() {
	w.mu.Lock()
	w.expire()
	w.mu.Unlock()
	w.pool.Wake()
}

func (w *toyWheel) add(d time.Duration, t *timer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := (time.Since(w.base) + d + time.Millisecond).Truncate(time.Millisecond)
	b := w.ticks[at]
	if b == nil {
		b = &bucket{at: at}
		w.ticks[at] = b
		w.heap.Push(b)
	}
	b.timers = append(b.timers, t)
	if int64(at) < w.next.Load() {
		w.set(at)
	}
}

// toyTimers implements bench.Timers.
type toyTimers struct{ *toyHost }

func (h toyTimers) After(d time.Duration, id uint64, f func()) *timer {
	t := &timer{f: f}
	h.wheels[id%uint64(len(h.wheels))].add(d, t)
	return t
}
func (toyTimers) Stop(t *timer) bool               { return t.claimed.CompareAndSwap(false, true) }
func (toyTimers) Reset(*timer, time.Duration) bool { panic("not supported") }
func (h toyTimers) Close()                         { h.wheels[0].pool.Close() }

func openToys(wheels int) bench.Open[*timer] {
	return func(time.Duration, func(uint64)) (bench.Timers[*timer], error) {
		h := &toyHost{}
		p := New(h, Config{Active: runtime.GOMAXPROCS(0)})
		for range wheels {
			w := &toyWheel{pool: p, base: time.Now(), ticks: map[time.Duration]*bucket{}}
			w.next.Store(never)
			h.wheels = append(h.wheels, w)
		}
		return toyTimers{h}, nil
	}
}

type stdTimers struct{}

func (stdTimers) After(d time.Duration, _ uint64, f func()) *time.Timer { return time.AfterFunc(d, f) }
func (stdTimers) Stop(t *time.Timer) bool                               { return t.Stop() }
func (stdTimers) Reset(t *time.Timer, d time.Duration) bool             { return t.Reset(d) }
func (stdTimers) Close()                                                {}

func openStd(time.Duration, func(uint64)) (bench.Timers[*time.Timer], error) { return stdTimers{}, nil }

type workload[H any] func(bench.Open[H], bench.Config) ([]bench.Figure, error)

func BenchmarkBusyBlocked(b *testing.B) {
	busy(b, bench.Config{N: 2_000, Rounds: 10}, bench.BusyBlocked[*time.Timer], bench.BusyBlocked[*timer])
}

func BenchmarkBusyBlockedWaking(b *testing.B) {
	busy(b, bench.Config{N: 2_000, Rounds: 10}, bench.BusyBlockedWaking[*time.Timer], bench.BusyBlockedWaking[*timer])
}

func BenchmarkBusyStream(b *testing.B) {
	busy(b, bench.Config{N: 20_000}, bench.BusyStream[*time.Timer], bench.BusyStream[*timer])
}

func BenchmarkBusySpread(b *testing.B) {
	busy(b, bench.Config{N: 200_000}, bench.BusySpread[*time.Timer], bench.BusySpread[*timer])
}

// busy runs a workload on package time, and on the pool with one driver and with four.
func busy(b *testing.B, c bench.Config, std workload[*time.Timer], pool workload[*timer]) {
	b.Helper()
	for _, busy := range []int{0, 4, 16} {
		c.Busy, c.Grace = busy, time.Minute
		run(b, "std", c, openStd, std)
		run(b, "pool", c, openToys(1), pool)
		run(b, "pool4", c, openToys(4), pool)
	}
}

func run[H any](b *testing.B, impl string, c bench.Config, open bench.Open[H], f workload[H]) {
	b.Helper()
	b.Run(fmt.Sprintf("impl=%s/busy=%d", impl, c.Busy), func(b *testing.B) {
		total := map[string]float64{}
		for range b.N {
			runtime.GC()
			figures, err := f(open, c)
			if err != nil {
				b.Fatal(err)
			}
			for _, f := range figures {
				if slices.Contains(bench.MistakeUnits, f.Unit) {
					if f.Value > 0 {
						b.Fatalf("%v timers: %s", f.Value, f.Unit)
					}
					continue
				}
				total[f.Unit] += f.Value
			}
		}
		b.ReportMetric(0, "ns/op")
		for unit, sum := range total {
			b.ReportMetric(sum/float64(b.N), unit)
		}
	})
}

// recordHost runs items that are indices of words, as the records of timers are.
type recordHost struct {
	words []atomic.Uint64
	f     func()
}

func (h *recordHost) Run(items []uint64) {
	for _, i := range items {
		if h.words[i].CompareAndSwap(1, 2) {
			h.f()
		}
	}
}
func (h *recordHost) Live() func(uint64) bool { return func(uint64) bool { return true } }

func (h *recordHost) More() {}

// BenchmarkBurst measures a million quick callbacks: the time from the first Put until the last one
// has run.
func BenchmarkBurst(b *testing.B) { burst(b, 1_000_000, nil) }

// BenchmarkBurstBlocking is BenchmarkBurst with 10,000 callbacks that sleep for a millisecond.
func BenchmarkBurstBlocking(b *testing.B) {
	burst(b, 10_000, func() { time.Sleep(time.Millisecond) })
}

func burst(b *testing.B, n int, work func()) {
	b.Helper()
	for _, impl := range []struct {
		name string
		run  func(n int, f func())
	}{{"pool", burstPool}, {"std", burstStd}, {"go", burstGo}, {"channel", burstChannel}} {
		b.Run("impl="+impl.name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				var left atomic.Int64
				left.Store(int64(n))
				done := make(chan struct{})
				impl.run(n, func() {
					if work != nil {
						work()
					}
					if left.Add(-1) == 0 {
						close(done)
					}
				})
				<-done
			}
		})
	}
}

func burstPool(n int, f func()) {
	h := &recordHost{words: make([]atomic.Uint64, n), f: f}
	for i := range h.words {
		h.words[i].Store(1)
	}
	p := New(h, Config{Active: runtime.GOMAXPROCS(0)})
	var chunk [32]uint64
	for i := 0; i < n; i += len(chunk) {
		for k := range chunk {
			chunk[k] = uint64(i + k)
		}
		p.Put(chunk[:min(len(chunk), n-i)], false)
		if i == 0 {
			go p.Wake()
		}
	}
	go p.Wake()
}

func burstGo(n int, f func()) {
	for range n {
		go f()
	}
}

func burstChannel(n int, f func()) {
	c := make(chan func(), 1024)
	for range 16 * runtime.GOMAXPROCS(0) {
		go func() {
			for f := range c {
				f()
			}
		}()
	}
	for range n {
		c <- f
	}
	close(c)
}

// burstStd gives each callback a timer that is due.
func burstStd(n int, f func()) {
	for range n {
		time.AfterFunc(0, f)
	}
}
