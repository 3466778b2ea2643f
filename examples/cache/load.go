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

// item is a value with the records of its worker and of the cache.
type item struct {
	key     int
	ttl     time.Duration
	before  time.Time // before Set: the value lives at least until before+ttl
	after   time.Time // after Set, for the worker only: the value lives at most until after+ttl
	ended   atomic.Int32
	evicted atomic.Bool
}

// store has the methods of [Cache] that the workers use, so that tests can break them.
type store interface {
	Set(key int, value *item, ttl time.Duration)
	Get(key int) (*item, bool)
	Delete(key int) bool
}

// load has the counters of all workers.
type load struct {
	set     atomic.Int64
	hits    atomic.Int64
	misses  atomic.Int64
	deleted atomic.Int64 // calls to Delete that returned true
	ended   [Reasons]atomic.Int64

	late   *latency.Recorder // from the deadline of a value until its removal
	faults fault.List
}

func newLoad() *load { return &load{late: latency.New()} }

// recordEnd is called by the cache for each value that leaves it.
func (l *load) recordEnd(key int, v *item, r Reason) {
	l.faults.Check(v.key == key, "key %d: ended with the value of key %d", key, v.key)
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

// work runs the workers until the duration has passed or ctx is done.
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
				// Without a pause the figures would measure the wait for a processor.
				time.Sleep(time.Millisecond)
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
	known map[int]*item // values that it has set and not deleted; some have expired
}

// step does one operation on one key: half are Gets, one in ten is a Delete.
func (w *worker) step() {
	key := w.first + w.cfg.workers*w.rng.IntN(w.cfg.keys/w.cfg.workers)
	switch n := w.rng.IntN(10); {
	case n < 5:
		w.get(key)
	case n < 9:
		w.put(key)
	default:
		w.remove(key)
	}
}

func (w *worker) put(key int) {
	v := &item{key: key, ttl: 1 + time.Duration(w.rng.Int64N(int64(w.cfg.ttl))), before: time.Now()}
	w.cache.Set(key, v, v.ttl)
	v.after = time.Now()
	w.known[key] = v
	w.set.Inc()
}

func (w *worker) get(key int) {
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
		w.faults.Add("key %d: found a value that was replaced or deleted", key)
	case ok && before.Sub(v.after) >= v.ttl:
		w.faults.Add("key %d: found a value that had expired %v ago", key, before.Sub(v.after)-v.ttl)
	case !ok && want != nil && after.Sub(want.before) < want.ttl && !w.isEvicted(want):
		w.faults.Add("key %d: no value, %v before its expiry", key, want.ttl-after.Sub(want.before))
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
		w.faults.Add("key %d: deleted although there was no value", key)
	case ok && before.Sub(v.after) >= v.ttl:
		w.faults.Add("key %d: deleted although it had expired", key)
	case !ok && v != nil && after.Sub(v.before) < v.ttl && !w.isEvicted(v):
		w.faults.Add("key %d: not deleted although there was a value", key)
	case ok:
		w.deleted.Inc()
	}
}

// isEvicted reports whether the value was evicted. The cache calls recordEnd without a lock, so a
// worker may miss the value before the call.
func (w *worker) isEvicted(v *item) bool {
	for wait := time.Millisecond; wait < 10*time.Second; wait *= 2 {
		if v.evicted.Load() {
			return true
		}
		time.Sleep(wait)
	}
	return false
}
