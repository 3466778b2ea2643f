package timingwheel

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/internal/arena"
	"github.com/timingwheel-go/timingwheel/internal/sampling"
)

// ErrStopped is returned by [TimingWheel.Sleep] if the wheel is stopped.
var ErrStopped = errors.New("timingwheel: the wheel is stopped")

// stop is [TimingWheel.Stop]. It returns after the last claim.
func (e *engine) stop() {
	e.lasting.mu.Lock()
	defer e.lasting.mu.Unlock()
	for _, s := range e.shards {
		s.halt()
	}
	for _, d := range e.dues {
		d.Close()
	}
	for e.claiming.Load() > 0 {
		runtime.Gosched()
	}
	if !isClosed(e.stopped) {
		close(e.stopped) // last, because it wakes goroutines that need the locks
	}
}

func (e *engine) shutdown(ctx context.Context) error {
	e.stop()
	for _, d := range e.dues {
		idle := d.Idle()
		select {
		case <-idle:
		case <-ctx.Done():
			if !isClosed(idle) {
				return ctx.Err()
			}
		}
	}
	return nil
}

func mustHaveContext(ctx context.Context, method string) {
	if ctx == nil {
		panic("timingwheel: " + method + " with a nil context")
	}
}

// halt discards all pending timers, and those that Flush has claimed and that have not begun. For a
// call that read closed before it was set, the word of its timer decides:
//
//   - halt makes the words of all these timers Dead. A claim that is earlier counts, and nothing
//     drops its call. halt waits until the claim is counted, and engine.stop until no batch of
//     Timeouts and no FuncTimer is between claim and call.
//   - Timer.Stop pushes a record that has left the inbox within a few instructions. halt waits for
//     that, and counts it.
func (s *shard) halt() {
	s.closed.Store(true)
	s.owner.mu.Lock()
	defer s.owner.mu.Unlock()
	o := &s.owner
	if o.wheel.levels == nil {
		return // stopped before
	}
	o.drainAll()
	s.discardAll()
	for s.pending()+int(o.counters.flushed-s.claimed.flushBegun.Load()-o.counters.discarded) > 0 {
		runtime.Gosched()
		o.remove(math.MaxInt)
	}
	s.inbox.mu.Lock()
	s.alarm.close()
	s.inbox.counts = s.inbox.count()
	s.inbox.records = arena.Slab[arena.Page]{}
	s.inbox.staged, s.inbox.free = nil, nil
	s.inbox.samples = sampling.Table[Timer]{}
	for _, p := range s.pages.All {
		p.ref.page.Store(nil)
	}
	s.pages.Clear()
	s.inbox.mu.Unlock()
	o.arrivals = arrivals{first: never}
	o.removing, o.freed, o.expired = 0, nil, nil
	o.store = bucketStore{records: o.store.records}
	o.wheel = wheel{geometry: o.wheel.geometry, store: o.wheel.store, cur: o.wheel.cur}
}

// discardAll makes the words of all timers Dead, unless their callbacks have begun. It hands the
// timers that survive the wheel's Stop to the runtime.
func (s *shard) discardAll() {
	for t, pg := range s.all {
		w, ok := pg.Change(t.index, arena.Dead, arena.Placed, arena.Flushed)
		if !ok {
			continue
		}
		s.owner.counters.discarded++
		if t.gen = w.Gen(); w.Is(arena.Lasting) {
			s.engine.lasting.keep(s, t, w)
		}
	}
}

// lastingTimers are those that the runtime has taken over from a stopped wheel.
type lastingTimers struct {
	mu     sync.Mutex            // also held throughout the wheel's Stop
	timers map[Timer]*time.Timer // guarded by mu
}

// keep hands a timer of shard s with word w to the runtime. mu is held.
func (l *lastingTimers) keep(s *shard, t Timer, w arena.Word) {
	if l.timers == nil {
		l.timers = make(map[Timer]*time.Timer)
	}
	d := time.Duration(s.config.ticks.Begin(w.Tick()) - s.config.Read())
	if w.Kind() == arena.Flushed {
		d = 0
	}
	l.timers[t] = time.AfterFunc(d, *payloadOf[func()](s, t.index))
}

// stop stops t and reports whether it did: not if t has fired or the runtime has not taken it over.
func (l *lastingTimers) stop(t Timer) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.timers[t]
	if delete(l.timers, t); len(l.timers) == 0 {
		l.timers = nil // a map does not shrink
	}
	return r != nil && r.Stop()
}

// cancelLasting is Stop for a timer that survives the wheel's Stop.
func (t Timer) cancelLasting() bool {
	if t.Stop() {
		return true
	}
	s := t.ref.shard
	return s.closed.Load() && s.engine.lasting.stop(t)
}

// isClosed reports whether c is closed. There must be no sends on c.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
