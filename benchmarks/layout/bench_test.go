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

// each runs a benchmark of every size for every layout. The function is called once for each of them;
// what it runs may be repeated.
func each(b *testing.B, f func(b *testing.B, name string, k, n int)) {
	b.Helper()
	for _, size := range sizes {
		for k, l := range layouts {
			f(b, "list="+l.name+"/pending="+size.name, k, size.n)
		}
	}
}

// heapInUse is the live heap after a collection.
func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func perTimer(before uint64, n int) float64 {
	return (float64(heapInUse()) - float64(before)) / float64(n)
}

// reportEach reports the time of one timer where an iteration was n of them.
func reportEach(b *testing.B, n int) {
	b.Helper()
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(n), "ns/op")
}

func callback() {}

// BenchmarkFill adds n timers to an empty list. Its operation is one timer. It comes first, while the
// heap is empty.
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

// population is a list of n timers after 10n stops and adds, of the biggest after 2n: that has replaced
// six timers of seven, and the rest would take minutes.
type population struct {
	list    list
	handles []handle
	rng     xorshift
	bytes   float64 // for each timer
}

// populations has those that were made, by layout and n: the big ones take a while.
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

// stagger replaces timers by others of the same bucket, of each bucket a different share: else the
// buckets of entries would all be compacted at about the same time. The deadlines are those of the
// handles, in their order.
func (p *population) stagger(deadlines xorshift) {
	for i, h := range p.handles {
		d := deadlines.far()
		if uint32(p.rng.below(slots)) < coarse(d) {
			p.list.stop(h)
			p.handles[i] = p.list.add(d, callback)
		}
	}
}

// copied returns a population that may be changed.
func (p *population) copied(k int) *population {
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

// BenchmarkChurn stops a random timer and adds another one to a random bucket. Finding the handle is a
// cache miss of its own, on all sides. B/timer is the live heap of the churned population, with the
// chunks that wait for reuse. max-us is the slowest of a million stops, which are measured one by one
// after the others; of linked, whose stops never do more than constant work, it shows how quiet the
// machine was.
func BenchmarkChurn(b *testing.B) {
	each(b, func(b *testing.B, name string, k, n int) {
		var p *population
		b.Run(name, func(b *testing.B) {
			if p == nil {
				p = churned(k, n).copied(k)
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

// locked is a list with a lock around each call, as on the wheel.
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

// BenchmarkChurnLocked is the same with an uncontended lock. Without one, a processor works ahead on the
// next timers while it waits for the memory of this one, which callers of a wheel do not get.
func BenchmarkChurnLocked(b *testing.B) {
	each(b, func(b *testing.B, name string, k, n int) {
		var p *population
		b.Run(name, func(b *testing.B) {
			if p == nil {
				p = churned(k, n).copied(k)
				p.list = &locked{list: p.list}
			}
			runtime.GC()
			for b.Loop() {
				p.churn()
			}
		})
	})
}

// worstStop is churn with a look at the clock before and after each stop, and without a collection.
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

// BenchmarkCascade moves all timers of a churned population to the finer wheel, bucket by bucket. Its
// operation is one timer.
func BenchmarkCascade(b *testing.B) {
	whole(b, func(l list) (n int) {
		for id := range uint32(slots) {
			n += l.live(id)
			l.cascade(id)
		}
		return n
	})
}

// BenchmarkExpire claims all timers of a churned population, bucket by bucket: reads and releases the
// payload, frees the slot. Its operation is one timer.
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

// whole measures f on copies of churned populations. f returns how many timers it has seen.
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
