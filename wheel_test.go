package timingwheel

import (
	"fmt"
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
	c.store.slots = &c.table
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

func (c *clockwork) arm(tick int64) uint32 {
	i := c.slot()
	c.place(i, tick)
	c.ticks[i] = max(tick, c.cur)
	return i
}

// bucketOf returns the bucket of a timer.
func (c *clockwork) bucketOf(i uint32) *bucket {
	return c.store.all[c.store.chunks.meta(*c.store.pos(i)>>chunkShift).bucket]
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
	for _, i := range slots[:c.store.takeChunk(b, &slots, chunkSize)] {
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
	for ; n > 0; n-- {
		b := c.pop(c.now)
		if b == nil {
			return
		}
		c.cascade.push(b)
	}
}

// move moves the timers of up to n chunks of the cascade.
func (c *clockwork) move(n int) {
	c.t.Helper()
	for ; n > 0; n-- {
		list := &c.cascade.fine
		if list.head == nil {
			list = &c.cascade.coarse
		}
		b := list.head
		if b == nil {
			return
		}
		if b.live > 0 {
			c.drainChunk(b, false)
			continue
		}
		c.store.freeBucket(list.pop())
	}
}

// check compares the wheel with the reference.
func (c *clockwork) check() {
	c.t.Helper()
	if err := c.wheel.verify(); err != nil {
		c.t.Fatal(err)
	}
	entries := 0
	for _, list := range []func(func(*bucket) bool){c.buckets, c.cascade.all} {
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
		if b.live > 0 {
			want = min(want, b.key)
		}
	}
	if first, ok := c.first(); first != want || ok != (want != never) {
		c.t.Fatalf("first is %d (%v), want %d", first, ok, want)
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

// A timer goes to the first level that has a slot for its interval within one lap, or else to the
// last level. Its bucket expires at the start of the interval.
func TestTimerGoesToTheFirstLevelWithRoom(t *testing.T) {
	t.Parallel()
	forEachClockwork(t, func(t *testing.T, size, levels int, now int64) {
		c := newClockwork(t, size, levels, now)
		for _, tick := range edges(size, levels, now) {
			i := c.arm(tick)
			b := c.bucketOf(i)
			level, interval := 0, int64(1)
			for level < levels-1 && tick/interval-now/interval >= int64(size) {
				level++
				interval *= int64(size)
			}
			if int(b.level) != level || b.at != tick/interval*interval || int64(b.slot) != tick/interval%int64(size) {
				t.Fatalf("clock %d, tick %d: level %d, slot %d, from tick %d on; want level %d, intervals of %d",
					now, tick, b.level, b.slot, b.at, level, interval)
			}
			c.check()
			c.stop(i)
			c.check()
		}
	})
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

// A timer for a tick in the past goes to the clock's tick.
func TestPastTickIsPlacedAtTheClock(t *testing.T) {
	t.Parallel()
	c := newClockwork(t, 8, 3, 1000)
	for _, tick := range []int64{0, -5, math.MinInt64, 999, 1000} {
		i := c.arm(tick)
		require.EqualValues(t, 1000, c.bucketOf(i).at)
		require.Zero(t, c.bucketOf(i).level)
	}
	require.Equal(t, 1, c.queue.Len())
	require.Len(t, c.pass(1000), 5)
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

// A slot of the last level holds timers of several rounds. Its bucket is queued by the earliest
// round, in any order of arming, and no bucket is taken while all timers wait for later rounds.
func TestSlotOfSeveralRoundsExpiresWithItsEarliest(t *testing.T) {
	t.Parallel()
	for _, levels := range []int{1, 2} {
		c := newClockwork(t, 4, levels, 0)
		interval := int64(1)
		if levels == 2 {
			interval = 4
		}
		lap := 4 * interval
		for _, round := range []int64{50, 7, 2, 7} {
			c.arm(interval + round*lap)
		}
		require.Equal(t, 1, c.queue.Len())
		first, _ := c.first()
		require.Equal(t, interval+2*lap, first)
		require.Empty(t, c.pass(first-1))
		pops := 0
		for len(c.ticks) > 0 {
			first, _ := c.first()
			pops++
			c.pass(first)
		}
		require.LessOrEqual(t, pops, 3*levels, "once for each round with timers")
	}
}

// A bucket whose timers were all stopped stays in its slot. If the next timer of the slot is for
// another lap, the bucket gets the expiration of that lap, earlier or later.
func TestEmptyBucketIsUsedForAnotherLap(t *testing.T) {
	t.Parallel()
	for _, levels := range []int{1, 3} {
		for _, laps := range [][]int64{{1, 3}, {3, 1}, {2, 2}} {
			c := newClockwork(t, 8, levels, 0)
			span := int64(1) << (3 * levels)
			c.stop(c.arm(laps[0] * span))
			require.Equal(t, 1, c.empties)
			i := c.arm(laps[1] * span)
			require.Zero(t, c.empties)
			require.Equal(t, 1, c.queue.Len(), "the same bucket")
			require.Equal(t, laps[1]*span, c.bucketOf(i).at)
			c.check()
			require.Empty(t, c.pass(laps[1]*span-1))
			require.Len(t, c.pass(laps[1]*span), 1)
		}
	}
}

// An empty bucket that the clock has passed leaves its slot, also on a coarse level.
func TestEmptyBucketDoesNotStopTheClock(t *testing.T) {
	t.Parallel()
	c := newClockwork(t, 8, 3, 0)
	c.stop(c.arm(5))
	c.stop(c.arm(100))
	c.arm(400)
	require.Equal(t, 2, c.empties)
	c.now = 300
	c.catchUp(300)
	require.EqualValues(t, 300, c.cur)
	require.Zero(t, c.empties)
	c.check()
	c.arm(301)
	require.Equal(t, []int64{301, 400}, c.pass(500))
}

// The clock of an idle wheel advances to a reading, but not past the first bucket with timers, and
// never goes back.
func TestCatchUpStopsAtTheFirstBucket(t *testing.T) {
	t.Parallel()
	c := newClockwork(t, 8, 2, 10)
	c.now = 1 << 40
	c.catchUp(5)
	require.EqualValues(t, 10, c.cur)
	c.catchUp(1000)
	require.EqualValues(t, 1000, c.cur)
	c.arm(1040) // in the bucket of ticks 1040 to 1047
	c.catchUp(1030)
	require.EqualValues(t, 1030, c.cur)
	c.catchUp(2000)
	require.EqualValues(t, 1040, c.cur)
	c.check()
	require.Equal(t, []int64{1040}, c.pass(1040))
	c.catchUp(1 << 40)
	require.Equal(t, int64(1<<40), c.cur)
	i := c.arm(1<<40 + 3)
	require.Zero(t, c.bucketOf(i).level, "level of a short timer after a long idle time")
}

// After a stall of the driver the first bucket is overdue, and the clock is at its tick. Timers for
// past ticks go to that bucket or to a later one.
func TestArmingWhileBucketsAreOverdue(t *testing.T) {
	t.Parallel()
	c := newClockwork(t, 4, 2, 0)
	c.arm(2)
	c.arm(9)
	c.now = 100
	c.catchUp(100)
	require.EqualValues(t, 2, c.cur)
	i := c.arm(1)
	require.EqualValues(t, 2, c.bucketOf(i).at)
	c.arm(50)
	c.check()
	require.Equal(t, []int64{2, 2, 9, 50}, c.pass(100))
	require.EqualValues(t, 100, c.cur)
}

// If two buckets expire together, the coarser one goes first, so that its timers reach the finer
// bucket in time.
func TestCoarserBucketOfATickIsTakenFirst(t *testing.T) {
	t.Parallel()
	c := newClockwork(t, 4, 3, 0)
	c.arm(16)
	c.pass(13)
	c.arm(16)
	c.pass(15)
	require.Equal(t, 2, c.queue.Len())
	c.arm(17)
	require.EqualValues(t, 2, c.pop(16).level)
	require.EqualValues(t, 0, c.pop(16).level)
}

// Empty buckets are swept when they are the majority, in any order of becoming empty. The last
// element of the heap may be one of them.
func TestSweepFreesEmptyBucketsInAnyOrder(t *testing.T) {
	t.Parallel()
	for name, order := range removal {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 5 * emptyMax
			c := newClockwork(t, 1024, 2, 0)
			slots := make([]uint32, n)
			for i := range slots {
				slots[i] = c.arm(int64(i + 1))
			}
			for _, k := range order(n) {
				c.stop(slots[k])
				if err := c.wheel.verify(); err != nil {
					t.Fatal(err)
				}
				if c.empties > emptyMax && c.empties > c.queue.Len()/2 {
					t.Fatalf("%d of %d buckets are empty", c.empties, c.queue.Len())
				}
			}
			require.LessOrEqual(t, c.queue.Len(), emptyMax)
			require.LessOrEqual(t, len(c.store.all)-len(c.store.spare), emptyMax)
		})
	}
}

// newEarlyClockwork returns a clockwork whose large buckets begin to cascade early: one tick
// earlier for every 16 timers.
func newEarlyClockwork(t testing.TB, size, levels int, now int64) *clockwork {
	c := newClockwork(t, size, levels, now)
	c.cascadeTicks, c.cascadeTimers = 1, 16
	return c
}

// A large bucket of a coarse level is taken before it expires: by the time that its cascade takes,
// and by at most a quarter of its interval. Small buckets and those of the finest level are not.
func TestLargeCoarseBucketBeginsEarly(t *testing.T) {
	t.Parallel()
	c := newEarlyClockwork(t, 1024, 2, 0)
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

// If a bucket cascades early, the finer level has slots for some of its timers only. The others go
// back to their slot and cascade again when it expires.
func TestTimersBeyondTheFinerLevelGoBackToTheirSlot(t *testing.T) {
	t.Parallel()
	c := newEarlyClockwork(t, 1024, 2, 0)
	var last uint32
	for k := range int64(4 * earlyMin) {
		last = c.arm(3*1024 + k%1024)
	}
	b := c.bucketOf(last)
	key := b.key
	require.EqualValues(t, 3*1024-4*earlyMin/16, key)
	require.Empty(t, c.pass(key))
	back := c.bucketOf(last)
	require.EqualValues(t, 1, back.level)
	require.Equal(t, earlyMin, back.live, "the timers of the last 256 ticks")
	require.EqualValues(t, 3*1024, back.key, "they do not cascade early again")
	moved := c.moves[last]
	require.Empty(t, c.pass(3*1024-1))
	require.Equal(t, moved, c.moves[last])
	require.Len(t, c.pass(4*1024), 4*earlyMin)
}

// A timer of an earlier round joins a large slot of the last level. The bucket still begins early,
// so the timer does not wait for those before it in the list.
func TestEarlierRoundOfALargeSlotBeginsEarly(t *testing.T) {
	t.Parallel()
	c := newEarlyClockwork(t, 64, 2, 0)
	for range 4 * earlyMin {
		c.arm(3*64*64 + 5)
	}
	b := c.bucketOf(c.arm(64*64 + 5))
	require.EqualValues(t, 64*64, b.at)
	require.EqualValues(t, 64*64-64/4, b.key)
	require.Empty(t, c.pass(64*64+4))
	require.Len(t, c.pass(64*64+5), 1)
}

// A bucket that becomes large shortly before it expires does not get a key in the past.
func TestEarlyBeginningIsNeverBeforeTheClock(t *testing.T) {
	t.Parallel()
	c := newEarlyClockwork(t, 1024, 2, 1024+1024-10)
	for range 8 * earlyMin {
		c.arm(4*1024 + 3)
	}
	c.pass(4*1024 - 100)
	for range 8 * earlyMin {
		c.arm(5*1024 + 7)
		require.NoError(t, c.wheel.verify())
	}
	c.pass(5*1024 - 200) // now room is on the finer level
	for k := range int64(8 * earlyMin) {
		c.arm(7*1024 + k%1024)
	}
	c.check()
	c.pass(9 * 1024)
}

// While an early bucket cascades, finer buckets that expire meanwhile go first, and the clock
// passes no bucket.
func TestEarlyBucketDoesNotMoveTheClockPastFinerOnes(t *testing.T) {
	t.Parallel()
	c := newEarlyClockwork(t, 4096, 2, 0)
	for k := range int64(1100) {
		c.arm(2900 + k)
	}
	for range 4 * earlyMin {
		c.arm(5000)
	}
	c.now = 4000
	for step := range 2000 {
		c.expire(3)
		c.move(1)
		require.NoError(t, c.wheel.verify())
		if step%64 == 0 {
			c.check()
		}
	}
	c.now = 5000
	c.expire(math.MaxInt)
	c.move(math.MaxInt32)
	require.Empty(t, c.ticks)
}

func TestWheelVerifyFindsDamage(t *testing.T) {
	t.Parallel()
	for want, damage := range map[string]func(c *clockwork, b *bucket){
		"W1: H":               func(_ *clockwork, b *bucket) { b.heapIndex++ },
		"W1: bucket":          func(_ *clockwork, b *bucket) { b.at++ },
		"W2: bucket":          func(c *clockwork, b *bucket) { c.cur = b.at + 1 },
		"in state":            func(_ *clockwork, b *bucket) { b.state = bucketCascading },
		"buckets in slots":    func(c *clockwork, b *bucket) { c.levels[b.level].slots[b.slot] = nil },
		"W4":                  func(c *clockwork, _ *bucket) { c.empties++ },
		"entries in all":      func(c *clockwork, _ *bucket) { c.wheel.live++ },
		"W5: a bucket of the": func(c *clockwork, _ *bucket) { c.cascade.coarse.push(&bucket{level: 1}) },
		"W5: a bucket of level": func(c *clockwork, _ *bucket) {
			c.cascade.fine.push(&bucket{level: 3, state: bucketCascading})
		},
	} {
		c := newClockwork(t, 8, 3, 0)
		c.arm(30)
		b := c.bucketOf(c.arm(100))
		require.NoError(t, c.wheel.verify())
		damage(c, b)
		require.ErrorContains(t, c.wheel.verify(), want)
	}
}

// Buckets of the finest level that expire while a huge one of a coarse level cascades do not wait
// for it.
func TestCascadeHasAListForTheFinestLevel(t *testing.T) {
	t.Parallel()
	var c cascade
	require.False(t, c.any())
	for id, level := range []int32{2, 0, 15, 1, 0} {
		c.push(&bucket{id: uint32(id), level: level, live: 1})
	}
	require.NoError(t, c.verify())
	require.True(t, c.any())
	require.Equal(t, 5, c.live())
	for _, want := range []uint32{1, 4} {
		require.Equal(t, want, c.fine.pop().id)
	}
	require.Nil(t, c.fine.head)
	for _, want := range []uint32{0, 2, 3} {
		require.True(t, c.any())
		require.Equal(t, want, c.coarse.pop().id)
	}
	require.False(t, c.any())
	require.Zero(t, c.live())
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
	case 3:
		off = -int64(pick.below(5))
	}
	n := 1
	if pick.below(24) == 1 && len(c.ticks) < 4*earlyMin {
		n = pick.below(8) * earlyMin / 2
	}
	for range n {
		c.arm(min(clock.Saturated(c.now, max(off, 0)), 1<<62+1<<61+1<<60))
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
	first, ok := c.first()
	switch pick.below(4) {
	case 0:
		if ok {
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
		first, _ := c.first()
		if first < c.now {
			c.t.Fatalf("the first bucket has to be taken at %d, the clock is at %d", first, c.now)
		}
		c.now = first
		settle()
	}
	if c.empties != c.queue.Len() || c.wheel.live != 0 {
		c.t.Fatalf("%d buckets are left, %d of them empty", c.queue.Len(), c.empties)
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
