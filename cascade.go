package timingwheel

import (
	"math"
	"slices"
	"sync"

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

// quantum is the number of timers that a driver or worker handles before it releases owner.mu. At
// 20 to 60 ns each it holds the lock for about 10 µs.
const quantum = 256

// owner is the state that belongs to the goroutine that holds mu, and what it does.
type owner struct {
	shard    *shard
	mu       ownerMutex
	arrivals arrivals
	store    bucketStore
	wheel    wheel
	expired  []Timer // due timers that a driver, or an Advance, has to queue
	counters counters

	tick int64 // the owner's clock, ahead of shard.now during an Advance

	removing uint64   // link to the removals that are off the stack and not carried out yet
	freed    []uint32 // records without references; reclaim frees them

	scratch struct { // memory for one quantum
		records [chunkSize]uint32
		words   [chunkSize]arena.Word
	}

	_ [64]byte // separates these cache lines from the next object
}

// ownerMutex has a name so that tests with the build tag invariants can redefine Unlock.
type ownerMutex struct{ sync.Mutex }

func (o *owner) init(s *shard) {
	o.shard = s
	o.tick = s.config.ticks.Floor(s.config.Origin)
	o.arrivals.first = never
	o.store.init(&s.inbox.records.Pages)
	o.wheel.init(s.config.geometry, &o.store, o.tick)
}

// drainAll places and removes all timers that were armed and stopped before the call.
func (o *owner) drainAll() {
	o.drain(math.MaxInt) // places what was taken out of the inbox before the call
	o.drain(math.MaxInt)
}

// drain places up to max timers from the inbox and carries out up to max removals. It reports
// whether none are left. If it finds the shard empty, it turns the alarm off.
func (o *owner) drain(max int) bool {
	s := o.shard
	o.reclaim()
	o.takeArrivals()
	o.wheel.catchUp(o.tick)
	for n := 0; n < max && !o.arrivals.empty(); n += chunkSize {
		o.placeArrivals(min(chunkSize, max-n))
		o.reclaim()
	}
	o.remove(max)
	if !o.arrivals.empty() || o.removing != 0 || s.removals.len() != 0 {
		return false
	}
	idle := o.wheel.live+len(o.expired) == 0 && !o.wheel.cascade.any()
	if at := s.alarm.at.Load(); idle && at != never && at != driverActive {
		s.alarm.reset() // a running driver does that at its end
	}
	return true
}

// reclaim frees the records of freed.
func (o *owner) reclaim() {
	if len(o.freed) == 0 {
		return
	}
	ib := &o.shard.inbox
	ib.mu.Lock()
	defer ib.mu.Unlock()
	for _, i := range o.freed {
		ib.putRecord(i)
	}
	o.freed = o.freed[:0]
}

func (o *owner) takeArrivals() {
	a, ib := &o.arrivals, &o.shard.inbox
	if !a.empty() {
		return
	}
	ib.mu.Lock()
	a.records, a.first = ib.take(a.records[:0])
	now := ib.now
	ib.mu.Unlock()
	a.done = 0
	o.shard.advanceClock(now)
}

// counters are written by the owner.
type counters struct {
	stopped, postponed, cascaded uint64
	discarded, flushed           uint64
}

func (c *counters) pendingOf(armed, stopped, fired uint64) int {
	return int(armed - stopped - c.stopped - fired - c.flushed)
}

func (o *owner) placeArrivals(n int) {
	a := &o.arrivals
	n = min(n, len(a.records)-a.done)
	part := a.records[a.done : a.done+n]
	words := o.loadWords(part)
	for k, i := range part {
		o.placeArrival(i, words[k])
	}
	a.done += n
	if a.empty() {
		a.first = never
		if cap(a.records) > 4*quantum {
			a.records, a.done = nil, 0
		}
	}
}

// loadWords returns the words of up to chunkSize records. The result is valid until the next call.
// The loop does nothing else, so that the cache misses overlap.
func (o *owner) loadWords(records []uint32) []arena.Word {
	words := o.scratch.words[:len(records)]
	for k, i := range records {
		words[k] = loadWord(o.store.records, i)
	}
	return words
}

// placeArrival places the timer of record i, whose word was w, or frees the record if the timer was
// stopped. If that Stop has not cleared the payload yet, it pushes the record onto the removals.
func (o *owner) placeArrival(i uint32, w arena.Word) {
	pg := o.store.records.At(i >> arena.PageShift)
	for ; pg != nil; w = pg.Load(i) {
		switch w.Kind() {
		case arena.Staged:
			if !pg.Swap(i, w, w.With(arena.Placed)&^arena.Listed) {
				continue
			}
			if w.Has(arena.Listed) {
				o.leaveBucket(i)
			}
			o.put(i, w)
		case arena.Ending:
			if !pg.Swap(i, w, w.With(arena.Dead)&^arena.Listed) {
				continue
			}
		case arena.Ended:
			if w.Has(arena.Listed) {
				o.leaveBucket(i)
			}
			o.counters.stopped++
			o.freed = append(o.freed, i)
		}
		return
	}
}

// put adds a placed timer to expired if its tick has come, and to the wheel otherwise.
func (o *owner) put(i uint32, w arena.Word) {
	if tick := w.Tick(); tick > o.tick {
		o.wheel.place(i, tick)
		return
	}
	o.expired = append(o.expired, Timer{o.shard.page(i).ref, i, w.Gen()})
}

// leaveBucket does nothing if the record is in no bucket.
func (o *owner) leaveBucket(i uint32) {
	pos := o.store.pos(i)
	if *pos == 0 {
		return
	}
	b := o.store.remove(*pos)
	if *pos = 0; b.state == bucketQueued {
		o.wheel.timerRemoved(b)
	}
}

// remove carries out up to max removals. Those that are already off the stack come first. The
// record of a claimed timer may be in a bucket, if the timer was moved away and back while it was
// due.
func (o *owner) remove(max int) {
	defer o.reclaim()
	for range max {
		if o.removing == 0 {
			o.removing = o.shard.removals.take()
		}
		if o.removing == 0 {
			return
		}
		i := uint32(o.removing - 1)
		w := loadWord(o.store.records, i)
		if o.removing = w.Bits(); w.Kind() == arena.Dead {
			o.counters.stopped++
		}
		o.leaveBucket(i)
		if o.freed = append(o.freed, i); len(o.freed) >= removalGroup {
			o.reclaim()
		}
	}
}

// expire takes up to a quantum of expired buckets off the wheel and moves a quantum of the timers
// of the finest level and a quantum of the others. It reports whether no expired bucket is left.
func (o *owner) expire() bool {
	for range quantum {
		if o.wheel.pop(o.tick) == nil {
			break
		}
	}
	o.move(&o.wheel.cascade.fine)
	o.move(&o.wheel.cascade.coarse)
	return o.wheel.first() > o.tick && !o.wheel.cascade.any()
}

func (o *owner) move(buckets *[]*bucket) {
	done := 0
	for steps := 0; steps < quantum && done < len(*buckets); {
		b := (*buckets)[done]
		if b.live == 0 {
			o.store.freeBucket(b)
			done++
			steps++
			continue
		}
		n := o.store.takeChunk(b, &o.scratch.records)
		o.relocate(o.scratch.records[:n], b)
		steps += n
	}
	*buckets = slices.Delete(*buckets, 0, done)
}

// relocate places timers that have left bucket b, or makes them due. It skips timers that were
// stopped or moved to an earlier deadline, which are in the removals or in the inbox.
func (o *owner) relocate(records []uint32, b *bucket) {
	words := o.loadWords(records)
	for k, i := range records {
		if words[k].Kind() != arena.Placed {
			continue
		}
		if b.level > 0 {
			o.counters.cascaded++
		}
		if o.shard.config.Manual == nil && !o.wheel.belongs(b, words[k].Tick()) { // in Manual mode Reschedule counts it
			o.counters.postponed++
		}
		o.put(i, words[k])
	}
}

// live returns the number of timers in buckets.
func (o *owner) live() int { return o.wheel.live + o.wheel.cascade.live() }

func (o *owner) clearExpired() {
	clear(o.expired)
	if o.expired = o.expired[:0]; cap(o.expired) > 4*quantum {
		o.expired = nil
	}
}
