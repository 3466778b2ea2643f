package layout

import (
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"
)

var sizes = []struct {
	name string
	n    int
}{
	{"100k", 100_000},
	{"1M", 1_000_000},
	{"10M", 10_000_000},
}

// each calls f once for each size and layout. The benchmark that f runs may be repeated.
func each(b *testing.B, f func(b *testing.B, name string, k, n int)) {
	b.Helper()
	for _, size := range sizes {
		for k, l := range layouts {
			f(b, "list="+l.name+"/pending="+size.name, k, size.n)
		}
	}
}

// heapInUse returns the live heap after a garbage collection.
func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func perTimer(before uint64, n int) float64 {
	return (float64(heapInUse()) - float64(before)) / float64(n)
}

// reportEach reports the time for each timer, if an iteration handles n timers.
func reportEach(b *testing.B, n int) {
	b.Helper()
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(n), "ns/op")
}

func callback() {}

// BenchmarkFill adds n timers to an empty list. One operation is one timer. This benchmark is the
// first one, because the heap must be empty.
func BenchmarkFill(b *testing.B) {
	each(b, func(b *testing.B, name string, k, n int) {
		b.Run(name, func(b *testing.B) {
			rng := xorshift(1)
			before := heapInUse()
			var l list
			for b.Loop() {
				b.StopTimer()
				l = nil
				runtime.GC()
				l = layouts[k].make()
				b.StartTimer()
				for range n {
					l.add(rng.far(), callback)
				}
			}
			reportEach(b, n)
			b.ReportMetric(perTimer(before, n), "B/timer")
			runtime.KeepAlive(l)
		})
	})
}

// population is a list of n timers after 10n stops and adds. The largest one has 2n, which replace
// six timers in seven; 10n would take minutes.
type population struct {
	list    list
	handles []handle
	rng     xorshift
	bytes   float64 // per timer
}

// populations caches the populations by layout and n, because the large ones take long.
var populations = map[[2]int]*population{}

func churned(k, n int) *population {
	if p := populations[[2]int{k, n}]; p != nil {
		return p
	}
	p := &population{handles: make([]handle, n), rng: 1}
	before := heapInUse()
	p.list = layouts[k].make()
	deadlines := p.rng
	for i := range p.handles {
		p.handles[i] = p.list.add(p.rng.far(), callback)
	}
	p.stagger(deadlines)
	turns := 10
	if n > 1_000_000 {
		turns = 2
	}
	for range turns * n {
		p.churn()
	}
	p.bytes = perTimer(before, n)
	populations[[2]int{k, n}] = p
	return p
}

// stagger replaces a different share of the timers of each bucket by others of the same bucket.
// Otherwise all buckets of entries would be compacted at about the same time. deadlines generates
// the deadlines of the handles, in their order.
func (p *population) stagger(deadlines xorshift) {
	for i, h := range p.handles {
		d := deadlines.far()
		if uint32(p.rng.below(slots)) < coarse(d) {
			p.list.stop(h)
			p.handles[i] = p.list.add(d, callback)
		}
	}
}

// clone returns a copy of the population.
func (p *population) clone(k int) *population {
	q := *p
	q.handles = append([]handle(nil), p.handles...)
	q.list = layouts[k].make()
	q.list.restore(p.list)
	return &q
}

// churn stops a random timer and adds another.
func (p *population) churn() {
	h := &p.handles[p.rng.below(len(p.handles))]
	p.list.stop(*h)
	*h = p.list.add(p.rng.far(), callback)
}

// BenchmarkChurn stops a random timer and adds another one to a random bucket. Reading the handle
// is a cache miss in all layouts. B/timer is the live heap of the churned population, free chunks
// included. max-us is the slowest of a million stops, which are measured one by one at the end.
// Stopping in linked is constant work, so its max-us shows the noise of the machine.
func BenchmarkChurn(b *testing.B) {
	each(b, func(b *testing.B, name string, k, n int) {
		var p *population
		b.Run(name, func(b *testing.B) {
			if p == nil {
				p = churned(k, n).clone(k)
			}
			runtime.GC()
			for b.Loop() {
				p.churn()
			}
			worst := p.worstStop(1_000_000)
			b.ReportMetric(float64(worst)/float64(time.Microsecond), "max-us")
			b.ReportMetric(churned(k, n).bytes, "B/timer")
		})
	})
}

// locked is a list with a lock around each call, as in the wheel.
type locked struct {
	mu sync.Mutex
	list
}

func (l *locked) add(deadline int64, f func()) handle {
	l.mu.Lock()
	h := l.list.add(deadline, f)
	l.mu.Unlock()
	return h
}

func (l *locked) stop(h handle) bool {
	l.mu.Lock()
	ok := l.list.stop(h)
	l.mu.Unlock()
	return ok
}

// BenchmarkChurnLocked is BenchmarkChurn with an uncontended lock. Without a lock the processor
// overlaps the cache misses of consecutive operations, which it cannot do for callers of a wheel.
func BenchmarkChurnLocked(b *testing.B) {
	each(b, func(b *testing.B, name string, k, n int) {
		var p *population
		b.Run(name, func(b *testing.B) {
			if p == nil {
				p = churned(k, n).clone(k)
				p.list = &locked{list: p.list}
			}
			runtime.GC()
			for b.Loop() {
				p.churn()
			}
		})
	})
}

// worstStop churns with a clock reading before and after stopping each timer, and without garbage
// collection. It returns the longest stop.
func (p *population) worstStop(stops int) time.Duration {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	base, worst := time.Now(), time.Duration(0)
	for range stops {
		h := &p.handles[p.rng.below(len(p.handles))]
		start := time.Since(base)
		p.list.stop(*h)
		worst = max(worst, time.Since(base)-start)
		*h = p.list.add(p.rng.far(), callback)
	}
	return worst
}

// BenchmarkCascade moves all timers of a churned population to the finer level, bucket by bucket.
// One operation is one timer.
func BenchmarkCascade(b *testing.B) {
	whole(b, func(l list) (n int) {
		for id := range uint32(slots) {
			n += l.live(id)
			l.cascade(id)
		}
		return n
	})
}

// BenchmarkExpire claims all timers of a churned population, bucket by bucket: it reads and
// releases the payload and frees the slot. One operation is one timer.
func BenchmarkExpire(b *testing.B) {
	var batch [batchSize]func()
	whole(b, func(l list) (n int) {
		for id := range uint32(slots) {
			for k := l.expire(id, &batch); k > 0; k = l.expire(id, &batch) {
				n += k
			}
		}
		return n
	})
}

// whole measures f on copies of churned populations. f returns the number of timers that it
// handled.
func whole(b *testing.B, f func(l list) int) {
	b.Helper()
	each(b, func(b *testing.B, name string, k, n int) {
		var l list
		b.Run(name, func(b *testing.B) {
			p := churned(k, n)
			if l == nil {
				l = layouts[k].make()
			}
			l.restore(p.list)
			runtime.GC()
			for b.Loop() {
				b.StopTimer()
				l.restore(p.list)
				b.StartTimer()
				if f(l) != n {
					b.Fatal("timers are missing")
				}
			}
			reportEach(b, n)
		})
	})
}
