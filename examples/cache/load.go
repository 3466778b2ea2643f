package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"go.uber.org/atomic"

	"github.com/timingwheel-go/timingwheel/examples/internal/fault"
	"github.com/timingwheel-go/timingwheel/examples/internal/latency"
)

// item is a value, and what its worker and the cache know of it.
type item struct {
	key     int
	ttl     time.Duration
	before  time.Time // right before it was set: it lives until ttl after that at least
	after   time.Time // right after, known to its worker only: until ttl after that at most
	ended   atomic.Int32
	evicted atomic.Bool
}

// store is what the workers need of a [Cache]; tests put broken ones here.
type store interface {
	Set(key int, value *item, ttl time.Duration)
	Get(key int) (*item, bool)
	Delete(key int) bool
}

// load is what the workers did, and what became of it.
type load struct {
	set     atomic.Int64
	hits    atomic.Int64
	misses  atomic.Int64
	deleted atomic.Int64 // Delete was true
	ended   [Reasons]atomic.Int64

	late   *latency.Recorder // how long after its deadline a value was removed
	faults fault.List
}

func newLoad() *load { return &load{late: latency.New()} }

// noteEnd is called by the cache for each value that leaves it.
func (l *load) noteEnd(key int, v *item, r Reason) {
	l.faults.Check(v.key == key, "key %d: the value of key %d has ended", key, v.key)
	l.faults.Check(v.ended.Inc() == 1, "key %d: ended twice", key)
	l.ended[r].Inc()
	switch r {
	case Evicted:
		v.evicted.Store(true)
	case Expired:
		overdue := time.Since(v.before) - v.ttl
		l.faults.Check(overdue >= 0, "key %d: expired %v early", key, -overdue)
		l.late.Record(overdue)
	}
}

// work lets the workers use the cache until the time is over, or ctx ends.
func (l *load) work(ctx context.Context, cfg config, c store) {
	end := time.Now().Add(cfg.duration)
	var workers sync.WaitGroup
	for n := range cfg.workers {
		w := &worker{load: l, cache: c, cfg: cfg, rng: newRand(cfg.seed, uint64(n)), first: n, known: make(map[int]*item)}
		workers.Go(func() {
			for ctx.Err() == nil && time.Now().Before(end) {
				for range 64 {
					w.step()
				}
				time.Sleep(time.Millisecond) // or all processors were busy, and what is measured were the queue for them
			}
		})
	}
	workers.Wait()
}

func newRand(seed, n uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, n)) }

// worker uses the keys first, first+workers, first+2*workers and so on.
type worker struct {
	*load
	cache store
	cfg   config
	rng   *rand.Rand
	first int
	known map[int]*item // what it has set and not deleted; may have expired
}

// step does one thing with one key: half of them look, one in ten deletes.
func (w *worker) step() {
	key := w.first + w.cfg.workers*w.rng.IntN(w.cfg.keys/w.cfg.workers)
	switch n := w.rng.IntN(10); {
	case n < 5:
		w.look(key)
	case n < 9:
		w.store(key)
	default:
		w.remove(key)
	}
}

func (w *worker) store(key int) {
	v := &item{key: key, ttl: 1 + time.Duration(w.rng.Int64N(int64(w.cfg.ttl))), before: time.Now()}
	w.cache.Set(key, v, v.ttl)
	v.after = time.Now()
	w.known[key] = v
	w.set.Inc()
}

func (w *worker) look(key int) {
	before := time.Now()
	v, ok := w.cache.Get(key)
	after := time.Now()
	want := w.known[key]
	if ok {
		w.hits.Inc()
	} else {
		w.misses.Inc()
	}
	switch {
	case ok && v != want:
		w.faults.Add("key %d: a value that was replaced or deleted", key)
	case ok && before.Sub(v.after) >= v.ttl:
		w.faults.Add("key %d: a value that had expired %v ago", key, before.Sub(v.after)-v.ttl)
	case !ok && want != nil && after.Sub(want.before) < want.ttl && !w.isEvicted(want):
		w.faults.Add("key %d: no value, %v before its time", key, want.ttl-after.Sub(want.before))
	}
}

func (w *worker) remove(key int) {
	before := time.Now()
	ok := w.cache.Delete(key)
	after := time.Now()
	v := w.known[key]
	delete(w.known, key)
	switch {
	case ok && v == nil:
		w.faults.Add("key %d: deleted though there was nothing", key)
	case ok && before.Sub(v.after) >= v.ttl:
		w.faults.Add("key %d: deleted though it had expired", key)
	case !ok && v != nil && after.Sub(v.before) < v.ttl && !w.isEvicted(v):
		w.faults.Add("key %d: was there and could not be deleted", key)
	case ok:
		w.deleted.Inc()
	}
}

// isEvicted reports whether the value was dropped to make room. The cache tells that without a
// lock, so possibly after it can be seen that the value is not there any more.
func (w *worker) isEvicted(v *item) bool {
	for wait := time.Millisecond; wait < 10*time.Second; wait *= 2 {
		if v.evicted.Load() {
			return true
		}
		time.Sleep(wait)
	}
	return false
}
