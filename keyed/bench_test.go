package keyed

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/puzpuzpuz/xsync/v4"

	"github.com/timingwheel-go/timingwheel"
)

// The benchmarks are named BenchmarkX/impl=…/pending=…/key=…/procs=…, so that benchstat can pivot
// on the parts:
//
//	go test -run '^$' -bench 'Load|Touch|DeleteSet' -benchtime 300000x ./keyed
//	go test -run '^$' -bench 'Fill|Expire' -benchtime 2x ./keyed
//
// The implementations are:
//
//   - "keyed": Keys.
//   - "map": Map with values of 8 bytes.
//   - "std": a Go map with a mutex and a time.AfterFunc for each key.
//   - "functimer": a FuncTimer for each key, a rejected design.
//   - "reschedule", in BenchmarkTouch: the wheel's timers without a map, with handles in a slice.

// stdKeys implements the same with the standard library.
type stdKeys[K comparable] struct {
	expire func(key K)

	mu     sync.Mutex
	timers map[K]*time.Timer
}

func newStdKeys[K comparable](expire func(K)) *stdKeys[K] {
	return &stdKeys[K]{expire: expire, timers: map[K]*time.Timer{}}
}

func (s *stdKeys[K]) Set(key K, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.timers[key]; t != nil && t.Stop() {
		t.Reset(d)
		return
	}
	var t *time.Timer
	t = time.AfterFunc(d, func() { s.expireTimer(key, &t) })
	s.timers[key] = t
}

// expireTimer takes a pointer to the timer, which Set writes under the lock.
func (s *stdKeys[K]) expireTimer(key K, t **time.Timer) {
	s.mu.Lock()
	current := s.timers[key] == *t
	if current {
		delete(s.timers, key)
	}
	s.mu.Unlock()
	if current {
		s.expire(key)
	}
}

func (s *stdKeys[K]) Touch(key K, d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.timers[key]
	if t == nil || !t.Stop() {
		return false
	}
	t.Reset(d)
	return true
}

func (s *stdKeys[K]) Delete(key K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.timers[key]
	if t == nil {
		return false
	}
	t.Stop()
	delete(s.timers, key)
	return true
}

func (s *stdKeys[K]) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.timers {
		t.Stop()
	}
	clear(s.timers)
}

func (s *stdKeys[K]) Has(key K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.timers[key] != nil
}

// funcKeys has a FuncTimer for each key, in an object to which the map points.
type funcKeys[K comparable] struct {
	wheel   *timingwheel.TimingWheel
	expire  func(key K)
	members *xsync.Map[K, *member[K]]
}

type member[K comparable] struct {
	set   *funcKeys[K]
	key   K
	timer timingwheel.FuncTimer
}

func newFuncKeys[K comparable](b *testing.B, expire func(K)) *funcKeys[K] {
	b.Helper()
	tw, err := timingwheel.New(timingwheel.Options{})
	if err != nil {
		b.Fatal(err)
	}
	return &funcKeys[K]{tw, expire, xsync.NewMap[K, *member[K]]()}
}

func (s *funcKeys[K]) Set(key K, d time.Duration) {
	s.members.Compute(key, func(m *member[K], present bool) (*member[K], xsync.ComputeOp) {
		if present {
			m.timer.Reset(d)
			return m, xsync.CancelOp
		}
		m = &member[K]{set: s, key: key}
		m.timer.Init(s.wheel, d, m.expireTimer)
		return m, xsync.UpdateOp
	})
}

func (m *member[K]) expireTimer() {
	expired := false
	m.set.members.Compute(m.key, func(now *member[K], _ bool) (*member[K], xsync.ComputeOp) {
		if _, armed := m.timer.Deadline(); now != m || armed {
			return now, xsync.CancelOp
		}
		expired = true
		return nil, xsync.DeleteOp
	})
	if expired {
		m.set.expire(m.key)
	}
}

func (s *funcKeys[K]) Touch(key K, d time.Duration) bool {
	m, ok := s.members.Load(key)
	if !ok {
		return false
	}
	if d != touched { // FuncTimer.Touch has no argument
		return m.timer.Reset(d)
	}
	return m.timer.Touch()
}

func (s *funcKeys[K]) Delete(key K) bool {
	m, ok := s.members.LoadAndDelete(key)
	return ok && m.timer.Stop()
}

func (s *funcKeys[K]) Has(key K) bool {
	_, ok := s.members.Load(key)
	return ok
}

func (s *funcKeys[K]) Stop() { s.wheel.Stop() }

// setter is the common interface of the implementations.
type setter[K comparable] interface {
	Set(key K, d time.Duration)
	Touch(key K, d time.Duration) bool
	Delete(key K) bool
	Has(key K) bool
	Stop()
}

// keysSetter drops the result of Set.
type keysSetter[K comparable] struct{ k *Keys[K] }

func (s keysSetter[K]) Set(key K, d time.Duration)        { s.k.Set(key, d) }
func (s keysSetter[K]) Touch(key K, d time.Duration) bool { return s.k.Touch(key, d) }
func (s keysSetter[K]) Delete(key K) bool                 { return s.k.Delete(key) }
func (s keysSetter[K]) Has(key K) bool                    { return s.k.Has(key) }
func (s keysSetter[K]) Stop()                             { s.k.Stop() }

// mapSetter uses Map.Touch if its timeout is the timeout of the entry.
type mapSetter[K comparable] struct{ m *Map[K, int] }

func (s mapSetter[K]) Set(key K, d time.Duration) { s.m.StoreFor(key, 1, d) }
func (s mapSetter[K]) Delete(key K) bool          { return s.m.Delete(key) }
func (s mapSetter[K]) Has(key K) bool             { _, ok := s.m.Load(key); return ok }
func (s mapSetter[K]) Stop()                      { s.m.Stop() }
func (s mapSetter[K]) Touch(key K, d time.Duration) bool {
	if d != touched {
		s.m.StoreFor(key, 1, d)
		return true
	}
	return s.m.Touch(key)
}

var impls = []string{"keyed", "map", "std", "functimer"}

func newSetter[K comparable](b *testing.B, impl string, expired func(n int)) setter[K] {
	b.Helper()
	switch impl {
	case "std":
		return newStdKeys(func(K) { expired(1) })
	case "functimer":
		return newFuncKeys(b, func(K) { expired(1) })
	case "map":
		m, err := NewMap(timingwheel.Options{}, touched, func(K, int) { expired(1) })
		if err != nil {
			b.Fatal(err)
		}
		return mapSetter[K]{m}
	}
	k, err := New(timingwheel.Options{}, func(keys []K) { expired(len(keys)) })
	if err != nil {
		b.Fatal(err)
	}
	return keysSetter[K]{k}
}

func number(i int) uint64 { return uint64(i) * 0x9e3779b97f4a7c15 }

func name(i int) string { return fmt.Sprintf("connection-%07d", i) }

// many returns a function that makes n keys on its first call, so that benchmarks that are not
// selected make none.
func many[K comparable](n int, nth func(int) K) func() []K {
	return sync.OnceValue(func() []K {
		keys := make([]K, n)
		for i := range keys {
			keys[i] = nth(i)
		}
		return keys
	})
}

// touched is the timeout that BenchmarkTouch sets.
const touched = 3 * time.Hour

// far returns a random timeout for the keys that are pending during a benchmark.
func far() time.Duration { return time.Hour + rand.N(time.Hour) }

func fill[K comparable](s setter[K], keys []K) {
	for _, key := range keys {
		s.Set(key, far())
	}
}

var sizes = []struct {
	name string
	n    int
}{{"1k", 1000}, {"1M", 1_000_000}}

// eachProcs runs call for random keys, in parallel on one and on two processors.
func eachProcs(b *testing.B, n int, call func(i int)) {
	b.Helper()
	for procs := 1; procs <= min(2, runtime.NumCPU()); procs++ {
		b.Run(fmt.Sprintf("procs=%d", procs), func(b *testing.B) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
			runtime.GC()
			b.ReportAllocs()
			b.ResetTimer()
			var part atomic.Uint64
			begin := processorTime()
			b.RunParallel(func(pb *testing.PB) {
				rng := rand.New(rand.NewPCG(part.Add(1), 2))
				for pb.Next() {
					call(rng.IntN(n))
				}
			})
			b.ReportMetric(float64(processorTime()-begin)/float64(b.N), "cpu-ns/op")
		})
	}
}

// benchCalls makes a call for random keys with each implementation. All keys are present.
func benchCalls[K comparable](b *testing.B, size, kind string, all func() []K, call func(s setter[K], key K)) {
	for _, impl := range impls {
		b.Run(fmt.Sprintf("impl=%s/pending=%s/key=%s", impl, size, kind), func(b *testing.B) {
			keys := all()
			s := newSetter[K](b, impl, func(int) {})
			defer s.Stop()
			fill(s, keys)
			eachProcs(b, len(keys), func(i int) { call(s, keys[i]) })
		})
	}
}

// BenchmarkTouch measures a heartbeat: it restarts the timeout of a random key.
func BenchmarkTouch(b *testing.B) {
	for _, size := range sizes {
		benchTouch(b, size.name, "uint64", many(size.n, number))
		benchTouch(b, size.name, "string", many(size.n, name))
	}
}

func benchTouch[K comparable](b *testing.B, size, kind string, all func() []K) {
	benchCalls(b, size, kind, all, func(s setter[K], key K) { s.Touch(key, touched) })
	b.Run(fmt.Sprintf("impl=reschedule/pending=%s/key=%s", size, kind), func(b *testing.B) {
		keys := all()
		w, err := timingwheel.NewTimeouts(timingwheel.Options{}, func([]K) {})
		if err != nil {
			b.Fatal(err)
		}
		defer w.Stop()
		timers := make([]timingwheel.Timer, len(keys))
		for i, key := range keys {
			timers[i] = w.Add(far(), key)
		}
		eachProcs(b, len(keys), func(i int) { timers[i].Reschedule(touched) })
	})
}

// BenchmarkLoad looks up a random key: with Load of a Map, and with Has of the others.
func BenchmarkLoad(b *testing.B) {
	for _, size := range sizes {
		benchLoad(b, size.name, "uint64", many(size.n, number))
		benchLoad(b, size.name, "string", many(size.n, name))
	}
}

func benchLoad[K comparable](b *testing.B, size, kind string, all func() []K) {
	benchCalls(b, size, kind, all, func(s setter[K], key K) { s.Has(key) })
}

// BenchmarkDeleteSet deletes a random key and sets it again, as when one connection is closed and
// another one is opened.
func BenchmarkDeleteSet(b *testing.B) {
	for _, size := range sizes {
		benchDeleteSet(b, size.name, "uint64", many(size.n, number))
		benchDeleteSet(b, size.name, "string", many(size.n, name))
	}
}

func benchDeleteSet[K comparable](b *testing.B, size, kind string, all func() []K) {
	benchCalls(b, size, kind, all, func(s setter[K], key K) {
		s.Delete(key)
		s.Set(key, 2*time.Hour)
	})
}

// BenchmarkFill sets all keys of an empty set. One iteration sets all keys. B/key is the growth of
// the heap without the keys themselves.
func BenchmarkFill(b *testing.B) {
	for _, size := range sizes {
		benchFill(b, size.name, "uint64", many(size.n, number))
		benchFill(b, size.name, "string", many(size.n, name))
	}
}

func benchFill[K comparable](b *testing.B, size, kind string, all func() []K) {
	for _, impl := range impls {
		b.Run(fmt.Sprintf("impl=%s/pending=%s/key=%s", impl, size, kind), func(b *testing.B) {
			keys := all()
			took, bytes := time.Duration(0), uint64(0)
			for range b.N {
				before := heapInUse()
				s := newSetter[K](b, impl, func(int) {})
				begin := processorTime()
				fill(s, keys)
				took += processorTime() - begin
				bytes += heapInUse() - before
				s.Stop()
			}
			total := float64(b.N * len(keys))
			b.ReportMetric(float64(took)/total, "cpu-ns/key")
			b.ReportMetric(float64(bytes)/total, "B/key")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkExpire moves all keys to a deadline in 10 ms and waits until all have been reported. One
// iteration covers all keys. The CPU time includes moving the keys to the deadline.
func BenchmarkExpire(b *testing.B) {
	for _, size := range sizes {
		benchExpire(b, size.name, "uint64", many(size.n, number))
		benchExpire(b, size.name, "string", many(size.n, name))
	}
}

func benchExpire[K comparable](b *testing.B, size, kind string, all func() []K) {
	for _, impl := range impls {
		b.Run(fmt.Sprintf("impl=%s/pending=%s/key=%s", impl, size, kind), func(b *testing.B) {
			keys := all()
			used := time.Duration(0)
			for range b.N {
				used += expireAll(b, impl, keys)
			}
			b.ReportMetric(float64(used)/float64(b.N*len(keys)), "cpu-ns/key")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func expireAll[K comparable](b *testing.B, impl string, keys []K) time.Duration {
	var left atomic.Int64
	left.Store(int64(len(keys)))
	done := make(chan struct{})
	s := newSetter[K](b, impl, func(n int) {
		if left.Add(-int64(n)) == 0 {
			close(done)
		}
	})
	defer s.Stop()
	fill(s, keys)
	runtime.GC()
	begin := processorTime()
	for _, key := range keys {
		s.Touch(key, 10*time.Millisecond)
	}
	<-done
	return processorTime() - begin
}

// BenchmarkLook measures how the sweep checks for each key that its timer has been claimed.
func BenchmarkLook(b *testing.B) {
	b.Run("impl=keyed/pending=1k", func(b *testing.B) {
		w, err := timingwheel.NewTimeouts(timingwheel.Options{Manual: true}, func([]uint64) {})
		if err != nil {
			b.Fatal(err)
		}
		defer w.Stop()
		timers := make([]timingwheel.Timer, 1000)
		for i := range timers {
			timers[i] = w.Add(0, uint64(i))
		}
		w.Advance(w.Now())
		begin := processorTime()
		n := 0
		for b.Loop() {
			if _, pending := timers[n%len(timers)].Deadline(); pending {
				b.Fatal("a timer has not been claimed")
			}
			n++
		}
		b.ReportMetric(float64(processorTime()-begin)/float64(n), "cpu-ns/op")
	})
}
