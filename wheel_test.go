package timingwheel

import (
	"fmt"
	"iter"
	"math"
	"math/bits"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/arena"
	"github.com/timingwheel-go/timingwheel/internal/clock"
)

// clockwork is a wheel that the test drives, with a reference: the tick of each of its timers.
type clockwork struct {
	wheel
	store  bucketStore
	table  arena.Table[arena.Page]
	t      testing.TB
	now    int64 // the clock of the test; the wheel's own may lag behind
	ticks  map[uint32]int64
	unused []uint32
	slots  int
	moves  map[uint32]int // by timer: how often it was placed again
	fired  []int64        // ticks
}

func newClockwork(t testing.TB, size, levels int, now int64) *clockwork {
	c := &clockwork{t: t, now: now, ticks: map[uint32]int64{}, moves: map[uint32]int{}}
	c.store.init(&c.table)
	c.init(geometry{size: int64(size), bits: uint(bits.TrailingZeros(uint(size))), last: levels - 1}, &c.store, now)
	return c
}

// slot returns a slot that no timer uses.
func (c *clockwork) slot() uint32 {
	if n := len(c.unused); n > 0 {
		i := c.unused[n-1]
		c.unused = c.unused[:n-1]
		return i
	}
	if c.slots%arena.PageSize == 0 {
		c.table.Set(c.slots/arena.PageSize, new(arena.Page))
	}
	c.slots++
	return uint32(c.slots - 1)
}

// arm places a timer. It goes to the first level that has a slot for its interval within one lap,
// or else to the last level, whose bucket may have timers of earlier rounds.
func (c *clockwork) arm(tick int64) uint32 {
	i := c.slot()
	c.place(i, tick)
	tick = max(tick, c.cur)
	c.ticks[i] = tick
	b, level, interval := c.bucketOf(i), 0, int64(1)
	for level < c.last && tick/interval-c.cur/interval >= c.size {
		level++
		interval *= c.size
	}
	begin := tick / interval * interval
	if int(b.level) != level || int64(b.slot) != tick/interval%c.size || b.at != begin && (level < c.last || b.at > begin) {
		c.t.Fatalf("clock %d, tick %d: level %d, slot %d, from tick %d on; want level %d, intervals of %d",
			c.cur, tick, b.level, b.slot, b.at, level, interval)
	}
	return i
}

// bucketOf returns the bucket of a timer.
func (c *clockwork) bucketOf(i uint32) *bucket {
	return c.store.all[c.store.meta(*c.store.pos(i)>>chunkShift).bucket]
}

// stop removes a timer from its bucket.
func (c *clockwork) stop(i uint32) {
	pos := c.store.pos(i)
	b := c.store.remove(*pos)
	*pos = 0
	if b.state == bucketQueued {
		c.timerRemoved(b)
	}
	c.forget(i)
}

func (c *clockwork) forget(i uint32) {
	delete(c.ticks, i)
	delete(c.moves, i)
	c.unused = append(c.unused, i)
}

// pass moves the clock to a tick and handles each bucket as it is taken. Every timer must be due at
// exactly the wheel's clock.
func (c *clockwork) pass(to int64) (fired []int64) {
	c.t.Helper()
	c.now = max(c.now, to)
	c.fired = nil
	for b := c.pop(to); b != nil; b = c.pop(to) {
		for b.live > 0 {
			c.drainChunk(b, true)
		}
		c.store.freeBucket(b)
		c.cascade = cascade{}
	}
	for i, tick := range c.ticks {
		if tick <= to {
			c.t.Fatalf("slot %d of tick %d has not fired at %d", i, tick, to)
		}
	}
	c.check()
	return c.fired
}

// drainChunk fires the due timers of a chunk and places the others. If exact, none may be overdue.
func (c *clockwork) drainChunk(b *bucket, exact bool) {
	c.t.Helper()
	var slots [chunkSize]uint32
	for _, i := range slots[:c.store.takeChunk(b, &slots)] {
		tick := c.ticks[i]
		if tick > c.cur {
			c.moves[i]++
			if limit := 2 * (c.last + 1); c.moves[i] > limit && c.last > 0 {
				c.t.Fatalf("a timer of tick %d was placed %d times on %d levels", tick, c.moves[i], c.last+1)
			}
			c.place(i, tick)
			continue
		}
		if exact && tick != c.cur {
			c.t.Fatalf("tick %d fires at %d", tick, c.cur)
		}
		c.fired = append(c.fired, tick)
		c.forget(i)
	}
}

// expire moves up to n expired buckets to the cascade, as a driver does.
func (c *clockwork) expire(n int) {
	for ; n > 0 && c.pop(c.now) != nil; n-- {
	}
}

// move moves the timers of up to n chunks of the cascade.
func (c *clockwork) move(n int) {
	c.t.Helper()
	for ; n > 0 && c.cascade.any(); n-- {
		list := &c.cascade.fine
		if len(*list) == 0 {
			list = &c.cascade.coarse
		}
		b := (*list)[0]
		if b.live > 0 {
			c.drainChunk(b, false)
			continue
		}
		*list = slices.Delete(*list, 0, 1)
		c.store.freeBucket(b)
	}
}

// check compares the wheel with the reference.
func (c *clockwork) check() {
	c.t.Helper()
	if err := c.wheel.verify(); err != nil {
		c.t.Fatal(err)
	}
	entries := 0
	for _, list := range []iter.Seq[*bucket]{c.buckets, slices.Values(c.cascade.all())} {
		for b := range list {
			entries += c.checkBucket(b)
		}
	}
	if entries != len(c.ticks) {
		c.t.Fatalf("the wheel holds %d timers, want %d", entries, len(c.ticks))
	}
	if c.cur > c.now {
		c.t.Fatalf("the wheel's clock is %d at %d", c.cur, c.now)
	}
	c.checkFirst()
}

func (c *clockwork) checkBucket(b *bucket) (entries int) {
	interval := int64(1) << (uint(b.level) * c.bits)
	c.store.each(b, func(_, i uint32) {
		entries++
		tick, ok := c.ticks[i]
		if !ok || tick < b.at || int(b.level) < c.last && tick-b.at >= interval {
			c.t.Fatalf("slot %d of tick %d (%v) in a bucket of level %d from tick %d on", i, tick, ok, b.level, b.at)
		}
	})
	return entries
}

// checkFirst checks that first is the key of the first bucket, and so not after any timer.
func (c *clockwork) checkFirst() {
	want := int64(never)
	for b := range c.buckets {
		want = min(want, b.key)
	}
	if first := c.first(); first != want {
		c.t.Fatalf("first is %d, want %d", first, want)
	}
}

var wheelShapes = []struct{ size, levels int }{{2, 1}, {2, 3}, {2, 16}, {4, 2}, {8, 3}, {64, 1}, {64, 4}, {1024, 2}}

// starts are clocks at zero, in the middle, just before the wrap of each level, and late.
func starts(size, levels int) (all []int64) {
	all = []int64{0, 1, 12345, 1<<48 - 1, 1 << 48, 1<<61 + 12345}
	for l, span := 0, int64(size); l < levels && span < 1<<50; l, span = l+1, span*int64(size) {
		if levels > 8 && l%5 != 0 {
			continue // enough of them
		}
		all = append(all, span-1, span, span/2, 5*span-1, 1<<52/span*span+span-1)
	}
	return all
}

func forEachClockwork(t *testing.T, test func(t *testing.T, size, levels int, now int64)) {
	t.Helper()
	for _, shape := range wheelShapes {
		t.Run(fmt.Sprintf("size=%d/levels=%d", shape.size, shape.levels), func(t *testing.T) {
			t.Parallel()
			for _, now := range starts(shape.size, shape.levels) {
				test(t, shape.size, shape.levels, now)
			}
		})
	}
}

// edges are ticks around the limits of the levels, as seen from now, and around rounds of the last
// level.
func edges(size, levels int, now int64) (ticks []int64) {
	for l, interval := 0, int64(1); l < levels && interval < 1<<50; l, interval = l+1, interval*int64(size) {
		begin := now &^ (interval - 1)
		for _, n := range []int64{1, 2, int64(size) - 1, int64(size), int64(size) + 1, 3 * int64(size)} {
			for off := int64(-2); off <= 2; off++ {
				ticks = append(ticks, begin+n*interval+off, now+n*interval+off)
			}
		}
	}
	return slices.DeleteFunc(ticks, func(tick int64) bool { return tick < now })
}

// Each timer fires when the wheel's clock is exactly at its tick, and cascades at most once for
// each level.
func TestTimersOfAllEdgesFireAtTheirTicks(t *testing.T) {
	t.Parallel()
	forEachClockwork(t, func(t *testing.T, size, levels int, now int64) {
		c := newClockwork(t, size, levels, now)
		ticks := edges(size, levels, now)
		for _, tick := range ticks {
			c.arm(tick)
		}
		c.check()
		slices.Sort(ticks)
		require.Equal(t, ticks, c.pass(ticks[len(ticks)-1]), "in one leap")
		require.Empty(t, c.ticks)

		c = newClockwork(t, size, levels, now)
		for k := range ticks {
			c.arm(ticks[(k*7919)%len(ticks)])
		}
		for _, tick := range slices.Sorted(func(yield func(int64) bool) {
			for _, tick := range c.ticks {
				if !yield(tick) {
					return
				}
			}
		}) {
			if tick > c.now && len(c.pass(tick-1)) > 0 {
				t.Fatalf("tick %d fires early", tick)
			}
			c.pass(tick)
		}
		require.Empty(t, c.ticks)
	})
}

// A tick at the end of the range does not overflow, whether the clock is near 0 or near the end.
func TestLastTicksDoNotOverflow(t *testing.T) {
	t.Parallel()
	for _, shape := range wheelShapes {
		for _, now := range []int64{0, 1 << 62, math.MaxInt64 - 5} {
			c := newClockwork(t, shape.size, shape.levels, now)
			for _, tick := range []int64{math.MaxInt64 - 1, math.MaxInt64, math.MaxInt64 - 4} {
				c.arm(tick)
				c.check()
			}
			if shape.levels > 1 && now < math.MaxInt64-5 {
				continue // rounds of rounds
			}
			require.Equal(t, []int64{math.MaxInt64 - 4}, c.pass(math.MaxInt64-3), "%+v from %d", shape, now)
		}
	}
}

// A large bucket of a coarse level is taken before it expires: by the time that its cascade takes,
// and by at most a quarter of its interval. Small buckets and buckets of the finest level are not.
func TestLargeCoarseBucketBeginsEarly(t *testing.T) {
	t.Parallel()
	c := newClockwork(t, 1024, 2, 0)
	c.cascadeTicks, c.cascadeTimers = 1, 16 // one tick earlier for every 16 timers
	fill := func(tick int64, n int) *bucket {
		var i uint32
		for range n {
			i = c.arm(tick)
		}
		return c.bucketOf(i)
	}
	require.EqualValues(t, 500, fill(500, 4*earlyMin).key, "the finest level")
	b := fill(10*1024+5, earlyMin-1)
	require.Equal(t, b.at, b.key, "small")
	fill(10*1024+5, 1)
	require.Equal(t, b.at-earlyMin/16, b.key)
	fill(10*1024+5, earlyMin-1)
	require.Equal(t, b.at-earlyMin/16, b.key, "the size has not doubled")
	fill(10*1024+5, 1)
	require.Equal(t, b.at-2*earlyMin/16, b.key)
	fill(10*1024+5, 14*earlyMin)
	require.EqualValues(t, b.at-1024/4, b.key, "a quarter of the interval")
	c.check()
	require.Len(t, c.pass(500), 4*earlyMin)
	require.Empty(t, c.pass(b.key-1))
	require.Empty(t, c.pass(b.key), "its timers are not due")
	require.Len(t, c.pass(10*1024+5), 16*earlyMin)
}

// playClockwork performs the operations that pick chooses on a wheel and compares it with the
// reference after each step. The driver may be late, and moves a few buckets at a time.
func playClockwork(t *testing.T, pick choices) {
	size, levels := 2<<pick.below(6), 1+pick.below(5)
	all := starts(size, levels)
	c := newClockwork(t, size, levels, all[pick.below(len(all))])
	if pick.below(3) == 0 {
		c.cascadeTicks, c.cascadeTimers = 1, int64(1+pick.below(512))
	}
	span := satMul(1, int64(1)<<min(62, c.bits*uint(levels)))
	for pick.more() {
		switch pick.below(10) {
		case 0, 1, 2, 3:
			c.armSome(pick, span)
		case 4:
			c.stopSome(pick)
		case 5: // a caller drains
			c.catchUp(c.now)
		case 6, 7: // time passes, perhaps just to the next bucket
			c.now = min(1<<62+1<<61, clock.Saturated(c.now, c.pause(pick, span)))
		case 8:
			c.expire(1 + pick.below(4))
		case 9:
			c.move(1 + pick.below(8))
		}
		c.check()
	}
	c.finish()
}

func (c *clockwork) armSome(pick choices, span int64) {
	off := int64(0)
	switch pick.below(4) {
	case 0:
		off = int64(pick.below(2 * int(c.size)))
	case 1:
		off = pick.bits() % satMul(span, 4)
	case 2: // an edge
		interval := int64(1) << min(56, uint(pick.below(c.last+1))*c.bits)
		off = interval*int64(1+pick.below(int(c.size)+2)) + int64(pick.below(3)) - 1 - c.cur%interval
	case 3: // at the clock, or in the past
		off = -int64(pick.below(5))
	}
	n := 1
	if pick.below(24) == 1 && len(c.ticks) < 4*earlyMin {
		n = pick.below(8) * earlyMin / 2
	}
	for range n {
		c.arm(min(clock.Saturated(c.now, off), 1<<62+1<<61+1<<60))
	}
}

func (c *clockwork) stopSome(pick choices) {
	armed := make([]uint32, 0, len(c.ticks))
	for i := range c.ticks {
		armed = append(armed, i)
	}
	slices.Sort(armed)
	for n := 1 + pick.below(64); n > 0 && len(armed) > 0; n-- {
		k := pick.below(len(armed))
		c.stop(armed[k])
		armed = slices.Delete(armed, k, k+1)
	}
}

func (c *clockwork) pause(pick choices, span int64) int64 {
	first := c.first()
	switch pick.below(4) {
	case 0:
		if first != never {
			return max(0, first-c.now-int64(pick.below(2)))
		}
	case 1:
		return int64(pick.below(3 * int(c.size)))
	case 2:
		return pick.bits() % (span/16 + 1)
	}
	return int64(pick.below(3))
}

// finish fires the due timers, and then all others in order.
func (c *clockwork) finish() {
	c.t.Helper()
	settle := func() {
		c.fired = nil
		for {
			c.expire(3)
			if !c.cascade.any() {
				break
			}
			c.move(4)
		}
		for i, tick := range c.ticks {
			if tick <= c.now {
				c.t.Fatalf("slot %d of tick %d has not fired at %d", i, tick, c.now)
			}
		}
		c.check()
	}
	settle()
	for len(c.ticks) > 0 {
		first := c.first()
		if first < c.now {
			c.t.Fatalf("the first bucket has to be taken at %d, the clock is at %d", first, c.now)
		}
		c.now = first
		settle()
	}
	if c.queue.Len() > 0 || c.wheel.live != 0 {
		c.t.Fatalf("%d buckets are left, with %d entries", c.queue.Len(), c.wheel.live)
	}
}

func TestModelClockwork(t *testing.T) {
	t.Parallel()
	for seed := range scaledSeeds(40) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			playClockwork(t, newSeeded(seed, 200))
		})
	}
}

func FuzzWheel(f *testing.F) {
	addModelSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) { playClockwork(t, &scripted{data[:min(len(data), 1024)]}) })
}

// A large bucket of a coarse level takes long to move. It does not delay the buckets of finer
// levels that expire meanwhile.
func TestLargeCoarseBucketDelaysNoFinerOne(t *testing.T) {
	t.Parallel()
	const size, heavy = 16, 100 * quantum
	const first = size * size * size // the beginning of the large bucket, which is one of level 3
	w, err := NewTimeouts(Options{Tick: ms, WheelSize: size, Levels: 4, Manual: true}, func([]int) {})
	require.NoError(t, err)
	defer w.Stop()
	for range heavy {
		w.Add((first+2*size*size)*ms, 0)
	}
	require.Zero(t, w.Advance(modelStart))
	require.Zero(t, w.Advance(w.Now().Add((first-size*size/2)*ms)))
	w.Add((size*size/2+2*size)*ms, 1) // of tick first + 2*size

	s := w.engine.shards[0]
	s.owner.mu.Lock()
	defer s.owner.mu.Unlock()
	s.owner.drainAll()
	o := &s.owner
	o.tick = first
	require.False(t, o.expire(), "the large bucket has begun to move")
	o.tick = first + 2*size // some ticks later
	quanta := 0
	for ; len(o.expired) == 0; quanta++ {
		o.expire()
	}
	require.Less(t, quanta, heavy/quantum/4, "quanta by which the timer is late")
}
