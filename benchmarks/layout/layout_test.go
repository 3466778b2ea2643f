package layout

import (
	"math/bits"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

const (
	pageShift = 9
	pageSize  = 1 << pageShift // slots of one page
	pageMask  = pageSize - 1

	none = 0 // no slot, no chunk: number 0 is never handed out

	// Deadlines are between one minute and one hour ahead, on a level with slots of 65 s. The finer
	// level has 64 slots for each of them, so a whole population fits on either level.
	slotWidth  = 65 * time.Second
	slots      = 60
	fineSlots  = 64
	fineWidth  = slotWidth / fineSlots
	numBuckets = slots + slots*fineSlots

	batchSize = 256 // most timers that one expire claims
)

// coarse and fine return the bucket of a deadline on either level.
func coarse(deadline int64) uint32 { return uint32(uint64(deadline) / uint64(slotWidth)) }
func fine(deadline int64) uint32   { return slots + uint32(uint64(deadline)/uint64(fineWidth)) }

// handle identifies a timer: a slot and its generation.
type handle struct{ index, gen uint32 }

// list is one layout with all its buckets. A call through the interface takes about 2 ns for all
// layouts.
type list interface {
	add(deadline int64, f func()) handle // into its coarse bucket
	stop(h handle) bool                  // false: the handle is stale
	cascade(id uint32)                   // moves all timers of a coarse bucket to fine ones

	// expire claims the first timers of a bucket, up to len(batch). It returns 0 if the bucket is
	// empty.
	expire(id uint32, batch *[batchSize]func()) int

	live(id uint32) int // number of timers of a bucket
	restore(from list)  // makes this list a copy of another one, and reuses its memory
}

var layouts = []struct {
	name string
	make func() list
}{
	{"linked", func() list { return new(linked) }},
	{"entries", func() list { return new(entries) }},
	{"positions", func() list { return new(positions) }},
}

// pages holds the nodes of a list and, in parallel, the payloads. Slots are reused last in, first
// out. Free slots are linked through their nodes.
type pages[N any] struct {
	nodes []*[pageSize]N
	funcs []*[pageSize]func()
	used  uint32 // number of slots that were ever used, including slot none
	free  uint32 // most recently freed slot
}

func (p *pages[N]) node(i uint32) *N         { return &p.nodes[i>>pageShift][i&pageMask] }
func (p *pages[N]) payload(i uint32) *func() { return &p.funcs[i>>pageShift][i&pageMask] }

// fresh returns a slot that has never been used.
func (p *pages[N]) fresh() uint32 {
	p.used = max(p.used, none+1)
	if int(p.used>>pageShift) == len(p.nodes) {
		p.nodes = append(p.nodes, new([pageSize]N))
		p.funcs = append(p.funcs, new([pageSize]func()))
	}
	p.used++
	return p.used - 1
}

func (p *pages[N]) restore(from *pages[N]) {
	p.nodes = copyPages(p.nodes, from.nodes)
	p.funcs = copyPages(p.funcs, from.funcs)
	p.used, p.free = from.used, from.free
}

// copyPages copies from into the pages of to and allocates missing pages.
func copyPages[P any](to, from []*P) []*P {
	for i, p := range from {
		if i == len(to) {
			to = append(to, new(P))
		}
		*to[i] = *p
	}
	return to
}

// xorshift is a random generator that takes about 1 ns.
type xorshift uint64

func (x *xorshift) next() uint64 {
	v := *x
	v ^= v << 13
	v ^= v >> 7
	v ^= v << 17
	*x = v
	return uint64(v)
}

func (x *xorshift) below(n int) int {
	hi, _ := bits.Mul64(x.next(), uint64(n))
	return int(hi)
}

// far returns a random deadline between one minute and one hour.
func (x *xorshift) far() int64 {
	return int64(time.Minute) + int64(x.below(int(59*time.Minute/time.Millisecond)))*int64(time.Millisecond)
}

func TestSizesOfStructs(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, 24, unsafe.Sizeof(linkedNode{}))
	require.EqualValues(t, 16, unsafe.Sizeof(node{}))
	require.EqualValues(t, 16, unsafe.Sizeof(chunkMeta{}))
	require.EqualValues(t, 8, unsafe.Sizeof(handle{}))
}

// model is a reference implementation of a list: the timers of each bucket in order, by handle.
type model struct {
	buckets [numBuckets][]*modelTimer
	armed   []*modelTimer // in no order
	fired   []*modelTimer // by the lists, in order
}

type modelTimer struct {
	handle   handle
	deadline int64
	bucket   uint32
	armed    int // index in model.armed, -1 once stopped or fired
}

func (m *model) disarm(x *modelTimer) {
	last := m.armed[len(m.armed)-1]
	m.armed[x.armed], last.armed = last, x.armed
	m.armed = m.armed[:len(m.armed)-1]
	x.armed = -1
}

// TestAgainstModel applies the same random operations to the three lists. They return the same
// handles and keep the order of arming, so all results must be equal.
func TestAgainstModel(t *testing.T) {
	t.Parallel()
	for seed := xorshift(1); seed <= 4; seed++ {
		d := driver{t: t, rng: seed * 0x9E3779B97F4A7C15, m: new(model)}
		for _, l := range layouts {
			d.lists = append(d.lists, l.make())
		}
		for step := range 200_000 {
			// The population grows and shrinks in turn, so that buckets become sparse.
			adds := 70
			if step/20_000%2 == 1 {
				adds = 30
			}
			switch k := d.rng.below(1000); {
			case k == 0:
				d.cascade(uint32(d.rng.below(slots)))
			case k == 1:
				d.expire(uint32(d.rng.below(numBuckets)))
			case k < 10:
				d.stopStale()
			case k < 10*adds || len(d.m.armed) == 0:
				d.add()
			default:
				d.stop(d.m.armed[d.rng.below(len(d.m.armed))])
			}
			if step == 100_000 {
				d.copyAll()
			}
		}
		for id := range uint32(numBuckets) {
			d.expire(id)
		}
		require.Empty(t, d.m.armed)
	}
}

// driver applies each operation to the model and to all lists.
type driver struct {
	t     *testing.T
	rng   xorshift
	m     *model
	lists []list
	stale []handle
}

func (d *driver) add() {
	x := &modelTimer{deadline: d.rng.far() / 8, armed: len(d.m.armed)} // few, long buckets
	x.bucket = coarse(x.deadline)
	for i, l := range d.lists {
		h := l.add(x.deadline, func() { d.m.fired = append(d.m.fired, x) })
		if i > 0 {
			require.Equal(d.t, x.handle, h)
		}
		x.handle = h
	}
	d.m.armed = append(d.m.armed, x)
	d.m.buckets[x.bucket] = append(d.m.buckets[x.bucket], x)
}

func (d *driver) stop(x *modelTimer) {
	for _, l := range d.lists {
		require.True(d.t, l.stop(x.handle))
	}
	d.stale = append(d.stale, x.handle)
	d.m.disarm(x)
}

func (d *driver) stopStale() {
	if len(d.stale) == 0 {
		return
	}
	h := d.stale[d.rng.below(len(d.stale))]
	for _, l := range d.lists {
		require.False(d.t, l.stop(h))
	}
}

func (d *driver) cascade(id uint32) {
	for _, l := range d.lists {
		l.cascade(id)
		require.Zero(d.t, l.live(id))
	}
	for _, x := range d.pending(id) {
		x.bucket = fine(x.deadline)
		d.m.buckets[x.bucket] = append(d.m.buckets[x.bucket], x)
	}
	d.m.buckets[id] = nil
}

// expire claims the timers of a bucket. In half of the cases it claims only one batch and then
// stops the other timers, so that the list also changes after a claim.
func (d *driver) expire(id uint32) {
	want := d.pending(id)
	whole := d.rng.below(2) == 0
	for _, l := range d.lists {
		require.Equal(d.t, len(want), l.live(id))
		d.m.fired = nil
		var batch [batchSize]func()
		for n := l.expire(id, &batch); n > 0; n = l.expire(id, &batch) {
			for _, f := range batch[:n] {
				f()
			}
			if !whole {
				break
			}
		}
		claimed := len(d.m.fired)
		require.True(d.t, !whole && claimed > batchSize-chunkSize || claimed == len(want))
		for i, x := range want {
			if i < claimed {
				require.Same(d.t, x, d.m.fired[i])
			}
			require.Equal(d.t, i >= claimed, l.stop(x.handle))
		}
		require.Zero(d.t, l.live(id))
		if e, ok := l.(*entries); ok && whole {
			require.Zero(d.t, e.buckets[id])
		}
	}
	for _, x := range want {
		d.stale = append(d.stale, x.handle)
		d.m.disarm(x)
	}
	d.m.buckets[id] = nil
}

// pending returns the timers of a bucket that were not stopped.
func (d *driver) pending(id uint32) []*modelTimer {
	var live []*modelTimer
	for _, x := range d.m.buckets[id] {
		if x.armed >= 0 {
			live = append(live, x)
		}
	}
	return live
}

// copyAll replaces the lists by copies and checks that the copies share nothing with the originals.
func (d *driver) copyAll() {
	for i, l := range layouts {
		original := d.lists[i]
		d.lists[i] = l.make()
		d.lists[i].restore(original)
		for _, x := range d.m.armed {
			require.True(d.t, original.stop(x.handle))
		}
	}
}
