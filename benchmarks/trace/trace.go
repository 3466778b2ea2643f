// Package trace generates the connections of a server: Poisson arrivals, log-normal lifetimes,
// beats at an interval with jitter, and an end by closing or by falling silent.
//
// A trace is a function of its configuration. The handler cannot change the events or their times,
// so all choices of options are measured with the same trace; Counts.Sum verifies that. Only the
// slot numbers depend on when the handler releases them.
//
// Time is virtual and advances in turns of a millisecond, as in an event loop that polls. Events
// have an exact time in nanoseconds. The events of a turn have no particular order. Pending events
// are in a calendar, a ring with a list for each turn, which is independent of the wheel under
// test.
package trace

import (
	"context"
	"math/bits"
	"math/rand/v2"
	"time"
)

// Turn is the length of a turn in nanoseconds.
const Turn = int64(time.Millisecond)

// Handler receives the events. Each call has the slot of the connection and the time in ns since
// the start. Slots are small integers, which are reused after Release.
type Handler interface {
	// Turn precedes the events of a turn. now is its beginning.
	Turn(now int64)
	// Arrive is a new connection. Connections are numbered from 0.
	Arrive(slot, number uint32, at int64)
	// Beat is a heartbeat.
	Beat(slot uint32, at int64)
	// Leave closes a connection. Its slot is free after the call.
	Leave(slot uint32, at int64)
	// Silence is the end of a connection that sends no more events. The handler calls Release after
	// it has detected the silence.
	Silence(slot uint32, at int64)
}

// Counts has the numbers of events so far.
type Counts struct {
	Arrived, Beats, Left, Silent int
	Live                         int    // neither left nor fell silent
	Most                         int    // largest number of slots in use
	Sum                          uint64 // sum of a hash of each event, independent of their order
}

// conn is one connection that has not left.
type conn struct {
	at     int64 // time of the next event
	end    int64
	number uint32
	next   uint32 // in a list of the calendar or of free slots: 1 + slot, 0: none
	silent bool   // ends by falling silent
}

// Trace is the state of a trace. Create one with New.
type Trace struct {
	cfg     Config
	counts  Counts
	rng     *rand.Rand
	conns   []conn
	free    uint32   // 1 + the first free slot; 0: none
	used    int      // slots in use
	ring    []uint32 // the calendar: by turn, 1 + the first slot of its list
	turn    int64    // number of the next turn
	arrival int64    // time of the next arrival
}

// New returns the trace of a configuration, which must be valid.
func New(cfg Config) *Trace {
	longest := cfg.interval(1) / Turn
	t := &Trace{
		cfg:  cfg,
		rng:  rand.New(rand.NewPCG(cfg.Seed, 0x7469636b)),
		ring: make([]uint32, 1<<bits.Len64(uint64(longest+1))),
	}
	t.arrival = t.gap()
	return t
}

// Counts returns the numbers of events so far.
func (t *Trace) Counts() Counts { return t.counts }

// Number returns the number of the connection that has the slot.
func (t *Trace) Number(slot uint32) uint32 { return t.conns[slot].number }

// Run plays the trace to its end. If ctx is done first, Run returns its error.
func (t *Trace) Run(ctx context.Context, h Handler) error {
	for turns := int64(t.cfg.For) / Turn; t.turn < turns; {
		if t.turn&0xff == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		t.step(h)
	}
	return nil
}

// step plays one turn.
func (t *Trace) step(h Handler) {
	h.Turn(t.turn * Turn)
	t.turn++
	list := &t.ring[(t.turn-1)&int64(len(t.ring)-1)]
	for *list != 0 { // a heartbeat may add the end of its connection to this turn
		slot := *list - 1
		*list = t.conns[slot].next
		t.event(h, slot)
	}
	for t.arrival < t.turn*Turn && t.counts.Arrived < t.cfg.Conns {
		t.arrive(h)
	}
}

// event delivers the next event of a connection.
func (t *Trace) event(h Handler, slot uint32) {
	c := &t.conns[slot]
	t.counts.Sum += mix(uint64(c.number)<<1 ^ mix(uint64(c.at)))
	switch {
	case c.at < c.end:
		t.counts.Beats++
		h.Beat(slot, c.at)
		t.schedule(slot)
	case c.silent:
		t.counts.Silent++
		t.counts.Live--
		h.Silence(slot, c.at)
	default:
		t.counts.Left++
		t.counts.Live--
		h.Leave(slot, c.at)
		t.Release(slot)
	}
}

// arrive creates the next connection.
func (t *Trace) arrive(h Handler) {
	slot := t.take()
	c := &t.conns[slot]
	c.number = uint32(t.counts.Arrived)
	c.at = t.arrival
	c.end = c.at + t.lifetime()
	c.silent = t.rng.Float64() < t.cfg.Silent
	t.counts.Arrived++
	t.counts.Live++
	t.counts.Sum += mix(uint64(c.at))
	t.arrival += t.gap()
	h.Arrive(slot, c.number, c.at)
	t.schedule(slot)
}

// schedule adds the next event of a connection to the calendar: its next beat or its end.
func (t *Trace) schedule(slot uint32) {
	c := &t.conns[slot]
	random := mix(t.cfg.Seed ^ uint64(c.number)<<32 ^ uint64(c.at))
	c.at = min(c.at+t.cfg.interval(float64(random>>11)/(1<<53)), c.end)
	list := &t.ring[c.at/Turn&int64(len(t.ring)-1)]
	c.next = *list
	*list = slot + 1
}

// take returns a free slot.
func (t *Trace) take() uint32 {
	t.used++
	t.counts.Most = max(t.counts.Most, t.used)
	if t.free == 0 {
		t.conns = append(t.conns, conn{})
		return uint32(len(t.conns) - 1)
	}
	slot := t.free - 1
	t.free = t.conns[slot].next
	return slot
}

// Release frees the slot of a connection that fell silent.
func (t *Trace) Release(slot uint32) {
	t.conns[slot].next = t.free
	t.free = slot + 1
	t.used--
}

// gap returns the time to the next arrival, exponentially distributed.
func (t *Trace) gap() int64 {
	return int64(t.rng.ExpFloat64() * float64(t.cfg.Over) / float64(t.cfg.Conns))
}

// lifetime returns the lifetime of a connection, log-normally distributed.
func (t *Trace) lifetime() int64 { return t.cfg.lifetime(t.rng.NormFloat64()) }

// mix is the finaliser of splitmix64: each bit of x changes half of the bits of the result.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
