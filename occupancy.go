package timingwheel

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Limits of one call of Occupancy and of its result.
const (
	occupancyCells = 512     // cells of a level; the slots of a larger wheel share them
	occupancyNext  = 16      // expirations in Next
	occupancyWhole = 1024    // most non-empty buckets of a shard counted in one hold of its lock
	occupancyStep  = quantum // buckets or slots in one hold otherwise; each may be a cache miss
	occupancySlots = 1 << 18 // buckets or slots that are looked at, of all larger shards together
	occupancyPeek  = 128     // buckets that are looked at for the next expirations of a shard
)

// Occupancy says where the pending timers of a wheel stand. Pending is the sum of Due, Moving,
// Unseen and of Timers over all levels.
type Occupancy struct {
	Now       time.Time     // on the wheel's own clock
	Tick      time.Duration // a slot of the finest level
	WheelSize int           // slots of a level
	Shards    int
	Stopped   bool // the wheel was stopped: nothing is pending

	Pending int              // pending timers
	Due     int              // timers that are due and have not been claimed
	Moving  int              // timers that have left a slot and are on their way to a finer level
	Unseen  int              // timers that moved meanwhile, or stand far off on a very full wheel
	Levels  []LevelOccupancy // the finest level first; levels without timers included
	Next    []Expiration     // the earliest buckets, at most 16, in order of time
}

// LevelOccupancy is one level of a wheel, over all shards.
type LevelOccupancy struct {
	Interval time.Duration // of a slot, or the largest duration if that is too short
	Hand     int           // the slot of the current interval, from 0 to WheelSize-1
	Timers   int           // pending timers of the level: the sum of Cells
	Later    int           // of these, on the last level: in slots with nothing due in this lap
	Cells    []int         // timers of each slot, from Hand on, or of several slots: at most 512 cells
}

// Expiration tells of the buckets of one level that expire at one time. Timers of level 0 are due
// then, and others move to a finer level.
type Expiration struct {
	At     time.Time
	Level  int
	Timers int
}

// Occupancy returns where the pending timers stand. It is not meant for hot paths: O(shards ×
// buckets), at most 2^18. It may wait like Len.
func (tw *TimingWheel) Occupancy() Occupancy {
	return tw.engine.occupancy(occupancyWhole, occupancySlots)
}

// Occupancy is [TimingWheel.Occupancy].
func (w *Timeouts[T]) Occupancy() Occupancy {
	return w.engine.occupancy(occupancyWhole, occupancySlots)
}

// survey is an Occupancy in the making.
type survey struct {
	Occupancy
	config
	tick  int64            // of the survey, to which the hands are set
	whole int              // buckets up to which a shard is counted in one hold of its lock
	step  int              // buckets or slots in one hold otherwise
	each  int              // slots of a level, from the hand on, if there are too many buckets
	fold  uint             // log2 of the slots of a cell
	soon  map[expiry]int   // timers of the next expirations
	hand  [maxLevels]int64 // of each level: the current interval, counted from tick 0
}

type expiry struct {
	tick  int64
	level int32
}

func (e *engine[T]) occupancy(whole, slots int) Occupancy {
	v := e.survey(whole, slots)
	v.Stopped = true
	for _, s := range e.shards {
		s.wheelMu.Lock()
		v.add(&s.shard)
		v.Stopped = v.Stopped && s.closed.Load()
		s.unlockAndTend()
	}
	for l := range v.Levels {
		v.Pending += v.Levels[l].Timers
	}
	v.Pending += v.Due + v.Moving + v.Unseen
	v.Next = v.expirations(e.TimeAt)
	return v.Occupancy
}

// survey begins a survey: with levels and no timers.
func (e *engine[T]) survey(whole, slots int) *survey {
	now := e.reading()
	levels := e.last + 1
	v := &survey{
		Occupancy: Occupancy{
			Now: e.TimeAt(now), Tick: time.Duration(e.ticks.Length()), WheelSize: int(e.size), Shards: len(e.shards),
			Levels: make([]LevelOccupancy, levels),
		},
		config: e.config,
		tick:   e.ticks.Floor(now),
		whole:  whole,
		step:   min(whole, occupancyStep),
		each:   int(min(e.size, int64(max(1, slots/(levels*len(e.shards)))))),
		soon:   make(map[expiry]int),
	}
	for e.size>>v.fold > occupancyCells {
		v.fold++
	}
	v.stand(v.tick)
	for l := range v.Levels {
		v.Levels[l] = LevelOccupancy{
			Interval: time.Duration(e.ticks.Begin(1 << (uint(l) * e.bits))),
			Hand:     int(v.hand[l] & (e.size - 1)),
			Cells:    make([]int, e.size>>v.fold),
		}
	}
	return v
}

// stand sets the hands to a tick.
func (v *survey) stand(tick int64) {
	for l := range v.Levels {
		v.hand[l] = tick >> (uint(l) * v.bits)
	}
}

// count adds the timers of a bucket that stands in a slot. If the bucket lies in the past, the
// driver has not come to it yet.
func (v *survey) count(b *bucket) {
	l := &v.Levels[b.level]
	ahead := max(0, b.at>>(uint(b.level)*v.bits)-v.hand[b.level])
	switch {
	case ahead < v.size:
	case int(b.level) < v.last:
		ahead = v.size - 1 // the shard's clock went on while its lock was free
	default:
		l.Later += b.live
		ahead &= v.size - 1
	}
	l.Cells[ahead>>v.fold] += b.live
	l.Timers += b.live
}

// add adds the timers of the shard. wheelMu is held; add releases it in between if the shard has
// many buckets.
func (v *survey) add(s *shard) {
	if s.closed.Load() {
		return
	}
	s.settleAll()
	o := &s.owner
	v.stand(max(v.tick, o.wheel.cur)) // the shard may have read the clock since
	v.addNext(s)
	before := v.found()
	switch {
	case o.wheel.queue.Len() <= v.whole:
		for b := range o.wheel.buckets {
			v.count(b)
		}
	case len(o.store.all) <= v.each*len(v.Levels):
		v.addBuckets(s)
	default:
		v.addSlots(s)
	}
	v.addExpired(s)
	if !s.closed.Load() {
		v.Unseen += max(0, s.pending()-(v.found()-before))
	}
}

// found returns the number of timers that have been counted so far.
func (v *survey) found() int {
	n := v.Due + v.Moving
	for l := range v.Levels {
		n += v.Levels[l].Timers
	}
	return n
}

// addBuckets goes through the buckets by their ids. Unlike their places in the queue, the ids stay
// the same while the lock is free. Most slots of a large wheel are empty, and addBuckets does not
// look at them.
func (v *survey) addBuckets(s *shard) {
	for k, steps := 0, 0; k < len(s.owner.store.all); k++ { // none if the wheel was stopped
		if steps == v.step {
			steps = 0
			breathe(s)
			if k >= len(s.owner.store.all) {
				return
			}
		}
		steps++
		if b := s.owner.store.all[k]; b.heapIndex >= 0 {
			v.count(b)
		}
	}
}

// breathe releases the lock for a moment, so that other goroutines get it.
func breathe(s *shard) {
	s.yield()
	if !s.closed.Load() {
		s.settleAll()
	}
}

// addSlots goes through the slots, which stay where they are while the lock is free. It begins with
// the coarsest level. So a timer that moves to a finer level meanwhile is counted twice rather than
// missed.
func (v *survey) addSlots(s *shard) {
	steps := 0
	for l := len(s.owner.wheel.levels) - 1; l >= 0; l-- {
		for k := 0; k < v.each; k++ {
			if steps == v.step {
				steps = 0
				breathe(s)
			}
			// The levels are also gone if the wheel was stopped meanwhile.
			if l >= len(s.owner.wheel.levels) || s.owner.wheel.levels[l].slots == nil {
				break
			}
			steps++
			if b := s.owner.wheel.levels[l].slots[(v.hand[l]+int64(k))&(s.size-1)]; b != nil {
				v.count(b)
			}
		}
	}
}

// addExpired counts the timers that have left their slots. The number of cascading buckets has no
// bound of its own, so at most whole of them are counted. Batches are few.
func (v *survey) addExpired(s *shard) {
	if s.closed.Load() {
		return
	}
	o := &s.owner
	v.Due += o.due.pending()
	for _, b := range o.crew.batches {
		v.Due += b.unclaimed()
	}
	steps := 0
	for b := range o.wheel.cascade.all {
		if steps++; steps > v.whole {
			break
		}
		v.Moving += b.live
	}
}

// addNext notes the earliest buckets with timers. The queue is a heap, so addNext searches it from
// the top: of the buckets whose parents were taken, the first one is taken next. Buckets without
// timers are skipped. The number of looks is bounded.
func (v *survey) addNext(s *shard) {
	var open []int // indices of the queue
	queue := &s.owner.wheel.queue
	if queue.Len() > 0 {
		open = append(open, 0)
	}
	for found, looks := 0, 0; len(open) > 0 && found < occupancyNext && looks < occupancyPeek; looks++ {
		first := 0
		for k := range open {
			if queue.At(open[k]).Before(queue.At(open[first])) {
				first = k
			}
		}
		i := open[first]
		open[first] = open[len(open)-1]
		open = open[:len(open)-1]
		for child := 2*i + 1; child <= 2*i+2 && child < queue.Len(); child++ {
			open = append(open, child)
		}
		if b := queue.At(i); b.live > 0 {
			v.soon[expiry{b.key, b.level}] += b.live
			found++
		}
	}
}

// expirations returns the earliest of the expirations that the shards have noted. Each shard has
// noted as many as are wanted, so none is missing or counted in part.
func (v *survey) expirations(timeAt func(ns int64) time.Time) []Expiration {
	all := slices.SortedFunc(maps.Keys(v.soon), func(a, b expiry) int {
		return cmp.Or(cmp.Compare(a.tick, b.tick), cmp.Compare(a.level, b.level))
	})
	next := make([]Expiration, 0, occupancyNext)
	for _, x := range all[:min(len(all), occupancyNext)] {
		next = append(next, Expiration{At: timeAt(v.ticks.Begin(x.tick)), Level: int(x.level), Timers: v.soon[x]})
	}
	return next
}
