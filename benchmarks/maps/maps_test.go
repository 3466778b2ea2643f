package maps

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/benchmarks/internal/process"
)

func TestStoresMatchAMapAndSweepWhatIsNotPending(t *testing.T) {
	t.Parallel()
	for _, c := range stores[string]() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w, err := timingwheel.NewTimeouts(timingwheel.Options{Manual: true}, func([]string) {})
			require.NoError(t, err)
			defer w.Stop()
			s, model := c.make(), map[string]timingwheel.Timer{}
			for range 5000 {
				k := fmt.Sprint(rand.IntN(300))
				old, present := model[k]
				switch rand.IntN(4) {
				case 0:
					if !present { // haxmap does not replace an entry
						assert.True(t, s.insert(k, func() timingwheel.Timer {
							model[k] = w.Add(time.Hour, k)
							return model[k]
						}))
					}
				case 1:
					found, ok := s.find(k)
					assert.Equal(t, present, ok)
					assert.True(t, !ok || found == old)
				case 2:
					removed, ok := s.remove(k)
					assert.Equal(t, present, ok)
					assert.True(t, !ok || removed == old)
					delete(model, k)
				case 3:
					stopped := rand.IntN(2) == 0 && old.Stop()
					assert.Equal(t, present && (stopped || !pending(old)), s.sweep(k))
					if stopped {
						delete(model, k)
					}
				}
				if len(model) != s.size() || t.Failed() {
					t.Fatalf("%d keys in the model, %d in the store", len(model), s.size())
				}
			}
		})
	}
}

// BenchmarkMaps runs the operations of package keyed on each map. impl is the map, op is the
// operation on a random key, pending is the number of keys, and procs is the number of processors.
func BenchmarkMaps(b *testing.B) {
	eachMap(b, benchCalls[uint64], benchCalls[string])
}

// BenchmarkMapsFill sets all keys of a new map and then lets them expire. One iteration is all
// keys. Times are CPU times.
func BenchmarkMapsFill(b *testing.B) {
	eachMap(b, benchFill[uint64], benchFill[string])
}

func eachMap(b *testing.B, numbers func(*testing.B, candidate[uint64], []uint64), strings func(*testing.B, candidate[string], []string)) {
	b.Helper()
	for _, n := range []int{1000, 1_000_000} {
		eachStore(b, "uint64", n, func(i int) uint64 { return uint64(i) * 0x9e3779b97f4a7c15 }, numbers)
		eachStore(b, "string", n, func(i int) string { return fmt.Sprintf("connection-%07d", i) }, strings)
	}
}

func eachStore[K key](b *testing.B, name string, n int, nth func(int) K, run func(*testing.B, candidate[K], []K)) {
	b.Helper()
	all := sync.OnceValue(func() []K { // only if a benchmark is selected
		ks := make([]K, n)
		for i := range ks {
			ks[i] = nth(i)
		}
		return ks
	})
	for _, c := range stores[K]() {
		b.Run(fmt.Sprintf("key=%s/pending=%d/impl=%s", name, n, c.name), func(b *testing.B) { run(b, c, all()) })
	}
}

func benchCalls[K key](b *testing.B, c candidate[K], ks []K) {
	for op, call := range map[string]func(p *population[K], k K){"Touch": (*population[K]).touch, "DeleteSet": (*population[K]).deleteSet} {
		b.Run("op="+op, func(b *testing.B) {
			p := populate(b, c, ks, timingwheel.Options{})
			defer p.w.Stop()
			for procs := 1; procs <= min(2, runtime.NumCPU()); procs++ {
				b.Run(fmt.Sprintf("procs=%d", procs), func(b *testing.B) {
					defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
					runtime.GC()
					var part atomic.Uint64
					b.ResetTimer()
					begin := cpuTime()
					b.RunParallel(func(pb *testing.PB) {
						rng := rand.New(rand.NewPCG(part.Add(1), 2))
						for pb.Next() {
							call(p, ks[rng.IntN(len(ks))])
						}
					})
					b.ReportMetric(float64(cpuTime()-begin)/float64(b.N), "cpu-ns/op")
				})
			}
		})
	}
}

func benchFill[K key](b *testing.B, c candidate[K], ks []K) {
	// The best of all rounds, because of other load.
	filled, expired := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	var bytes uint64
	for b.Loop() {
		before := heap()
		begin := cpuTime()
		p := populate(b, c, ks, timingwheel.Options{Manual: true, Tick: 10 * time.Second})
		filled = min(filled, cpuTime()-begin)
		bytes = heap() - before
		begin = cpuTime()
		p.w.Advance(p.w.Now().Add(3 * time.Hour))
		expired = min(expired, cpuTime()-begin)
		if p.expired != len(ks) {
			b.Fatalf("%d of %d keys have expired", p.expired, len(ks))
		}
		p.w.Stop()
	}
	n := float64(len(ks))
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(filled)/n, "set-cpu-ns/key")
	b.ReportMetric(float64(expired)/n, "expire-cpu-ns/key")
	b.ReportMetric(float64(bytes)/n, "B/key")
}

// population is package keyed with another map, without its handling of races.
type population[K key] struct {
	s       store[K]
	w       *timingwheel.Timeouts[K]
	expired int
}

func populate[K key](b *testing.B, c candidate[K], ks []K, opts timingwheel.Options) *population[K] {
	p := &population[K]{s: c.make()}
	w, err := timingwheel.NewTimeouts(opts, func(claimed []K) {
		for _, k := range claimed {
			if p.s.sweep(k) {
				p.expired++
			}
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	p.w = w
	rng := rand.New(rand.NewPCG(1, 1))
	for _, k := range ks {
		p.set(k, time.Hour+time.Duration(rng.IntN(3_600_000))*time.Millisecond)
	}
	return p
}

func (p *population[K]) set(k K, d time.Duration) {
	p.s.insert(k, func() timingwheel.Timer { return p.w.Add(d, k) })
}

func (p *population[K]) touch(k K) {
	if t, ok := p.s.find(k); ok {
		t.Reschedule(3 * time.Hour)
	}
}

// deleteSet deletes a key and sets it again.
func (p *population[K]) deleteSet(k K) {
	if t, ok := p.s.remove(k); ok {
		t.Stop()
	}
	p.set(k, 2*time.Hour)
}

var start = time.Now()

// cpuTime returns the CPU time of the process, which other load hardly affects, or the elapsed time
// where the system does not report it.
func cpuTime() time.Duration {
	if used, ok := process.CPUTime(); ok {
		return used
	}
	return time.Since(start)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
