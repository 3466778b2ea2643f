package timingwheel

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Bounds of what one call of Occupancy does and returns.
const (
	occupancyCells = 512     // of one level: the slots of larger wheels share them
	occupancyNext  = 16      // expirations
	occupancyWhole = 1024    // non-empty buckets of a shard that are looked at without letting go of its lock
	occupancyStep  = quantum // else, buckets or slots that are looked at before it is let go: on a large wheel each may be a cache miss
	occupancySlots = 1 << 18 // buckets or slots, of all levels and shards, of shards with more non-empty buckets than that
	occupancyPeek  = 128     // buckets that are looked at for the next expirations of a shard
)

// Occupancy is where the pending timers of a wheel stand: on which level, and how far from the
// clock's hand. It counts timers and knows nothing of what they run.
//
// Each pending timer is counted once: Pending is the sum of Due, Moving, Unseen and of Timers over
// all levels.
type Occupancy struct {
	Now       time.Time     // on the wheel's own clock, see [TimingWheel.Now]
	Tick      time.Duration // a slot of the finest level
	WheelSize int           // slots of a level
	Shards    int
	Stopped   bool // the wheel was stopped: nothing is pending

	Pending int // pending timers
	Due     int // those that are due and have not been claimed
	Moving  int // those that have left a slot and are on their way to a finer level

	// Unseen is pending timers that were not found. On a wheel where nothing is going on it is 0,
	// except where a shard has more than 1,024 non-empty buckets and has had more than 2^18/Shards
	// at once: then only the slots nearest to its hand are looked at. Under load, with more than
	// 1,024 non-empty buckets in a shard, timers may also have moved meanwhile.
	Unseen int

	Levels []LevelOccupancy // the finest first: all that Options.Levels allows, also those without timers
	Next   []Expiration     // the earliest buckets, at most 16, in order of time
}

// LevelOccupancy is one level of a wheel, over all shards.
type LevelOccupancy struct {
	Interval time.Duration // of a slot; the largest duration where that is too short
	Hand     int           // the slot in which the clock is, from 0 to WheelSize-1
	Timers   int           // pending timers of the level: the sum of Cells
	Later    int           // of these, on the last level, those in slots of which no timer is due within this lap

	// Cells are the numbers of timers of the slots, beginning at the hand: in Cells[0] is what is
	// looked at in the current interval (or is overdue), and so on round the ring. There is one for
	// each slot, or 512 for WheelSize/512 slots each. A timer that was postponed counts where it
	// stood before, until the wheel has looked there.
	Cells []int
}

// Expiration is what the wheel is going to look at next: the buckets of one level, over all shards,
// that expire at one time. Those of level 0 are run then, apart from postponed ones; others move to
// a finer level.
type Expiration struct {
	At     time.Time
	Level  int
	Timers int
}

// Occupancy returns where the pending timers stand. It is for people who look at a wheel, not for
// hot paths: O(shards × buckets), and at most 2^18 buckets or slots are looked at, however large
// the wheel is, or 1,024 for each shard where there are more than 256 of those. A shard with more
// than 1,024 non-empty buckets is looked at in portions of 256, between which its lock is free;
// others are in one go, and then what is said of a shard is one moment of it. The result takes at
// most 64 KiB for the levels.
//
// After Stop nothing is pending, and the levels have cells all the same.
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
	tick  int64            // at which the shards' clocks are taken to stand
	whole int              // buckets for one hold of the lock
	step  int              // buckets or slots for one
	each  int              // slots of a level that are looked at, from the hand on, where there are too many buckets
	fold  uint             // log2 of slots for each cell
	soon  map[expiry]int   // timers
	hand  [maxLevels]int64 // the interval in which the clock is, counted from the beginning of time
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
		s.unlock()
	}
	for l := range v.Levels {
		v.Pending += v.Levels[l].Timers
	}
	v.Pending += v.Due + v.Moving + v.Unseen
	v.Next = v.expirations(e.TimeAt)
	return v.Occupancy
}

// survey begins one: with levels and no timers.
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

// stand puts the hands to where they are at a tick.
func (v *survey) stand(tick int64) {
	for l := range v.Levels {
		v.hand[l] = tick >> (uint(l) * v.bits)
	}
}

// count adds the timers of a bucket that stands in a slot. A bucket of the past is one that the
// driver has not come to yet.
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

// add adds what the shard has. wheelMu is held, and let go meanwhile if the shard has many buckets.
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

// found is the number of timers that have been counted somewhere.
func (v *survey) found() int {
	n := v.Due + v.Moving
	for l := range v.Levels {
		n += v.Levels[l].Timers
	}
	return n
}

// addBuckets goes through the buckets by their ids, which they keep while the lock is free, unlike
// their places in the queue. Most slots of a large wheel are empty, and are not looked at.
func (v *survey) addBuckets(s *shard) {
	for k, steps := 0, 0; k < len(s.owner.store.all); k++ { // none are left where the wheel was stopped meanwhile
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

// breathe lets go of the lock for other workers.
func breathe(s *shard) {
	s.yield()
	if !s.closed.Load() {
		s.settleAll()
	}
}

// addSlots goes through the slots, which stay where they are while the lock is free. It begins with
// the coarsest level, so that a timer that moves to a finer one meanwhile is rather counted twice
// than lost.
func (v *survey) addSlots(s *shard) {
	steps := 0
	for l := len(s.owner.wheel.levels) - 1; l >= 0; l-- {
		for k := 0; k < v.each; k++ {
			if steps == v.step {
				steps = 0
				breathe(s)
			}
			if l >= len(s.owner.wheel.levels) || s.owner.wheel.levels[l].slots == nil { // also where the wheel was stopped meanwhile
				break
			}
			steps++
			if b := s.owner.wheel.levels[l].slots[(v.hand[l]+int64(k))&(s.size-1)]; b != nil {
				v.count(b)
			}
		}
	}
}

// addExpired counts what has left its slots. Buckets that move are as many as have expired while
// nobody came, so there is a bound for them too; lots are few.
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

// addNext notes the earliest buckets with timers. The queue is a heap, so they are found from the
// top down: of the buckets whose parents were taken, the first is taken next. The buckets that all
// timers have left are passed over, a bounded number of them.
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

// expirations are the earliest of what the shards have noted. Each has noted as many as are wanted,
// so none is missing or counted in part.
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
