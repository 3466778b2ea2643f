// Package trace makes up the life of a server's connections: Poisson arrivals, log-normal lifetimes, beats at
// an interval with jitter, and an end, by closing or by falling silent.
//
// A trace is a function of its configuration. Nothing that a handler does changes what happens to the
// connections or when, so that every choice of options that is measured sees the same one; Sum tells whether
// two runs did. Only the numbers of slots depend on when the handler gives them back.
//
// Time is virtual and goes in turns of a millisecond, as in an event loop that polls. Events carry their exact
// time in nanoseconds; those of one turn come in no particular order. They wait in a calendar, a ring of lists
// with one list for each turn, which is a structure of its own: the wheel under test has no part in it.
package trace

import (
	"context"
	"math/bits"
	"math/rand/v2"
	"time"
)

// Turn is the length of a turn in nanoseconds.
const Turn = int64(time.Millisecond)

// Handler is told what happens. Each call names the connection's slot and the time in ns since the start.
// Slots are small integers, used again after Release.
type Handler interface {
	// Turn comes before the events of a turn, with its beginning.
	Turn(now int64)
	// Arrive is a new connection; number counts them from 0.
	Arrive(slot, number uint32, at int64)
	// Beat is a sign of life.
	Beat(slot uint32, at int64)
	// Leave closes a connection, whose slot is free when it returns.
	Leave(slot uint32, at int64)
	// Silence says that nothing will be heard of a connection any more. The handler calls Release when it
	// has noticed.
	Silence(slot uint32, at int64)
}

// Counts is what has happened so far.
type Counts struct {
	Arrived, Beats, Left, Silent int
	Live                         int    // neither left nor silent
	Most                         int    // the most slots in use at once
	Sum                          uint64 // of a hash of each event, so that it does not depend on their order
}

// conn is one connection that has not left.
type conn struct {
	at     int64 // its next event
	end    int64
	number uint32
	next   uint32 // in its list of the calendar, or of free slots; 1 + slot, 0: none
	silent bool   // how it ends
}

// Trace is a trace under way. Make one with New.
type Trace struct {
	cfg     Config
	counts  Counts
	rng     *rand.Rand
	conns   []conn
	free    uint32   // 1 + the first free slot
	used    int      // slots
	ring    []uint32 // the calendar: by turn, 1 + the first slot of its list
	turn    int64    // the next one
	arrival int64    // the next one
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

// Counts returns what has happened so far.
func (t *Trace) Counts() Counts { return t.counts }

// Number returns which connection, counted from 0, has the slot.
func (t *Trace) Number(slot uint32) uint32 { return t.conns[slot].number }

// Run plays the trace to its end, or until ctx is done, whose error it returns then.
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
	for *list != 0 { // an end may follow a beat within the turn
		slot := *list - 1
		*list = t.conns[slot].next
		t.event(h, slot)
	}
	for t.arrival < t.turn*Turn && t.counts.Arrived < t.cfg.Conns {
		t.arrive(h)
	}
}

// event is what happens next to the connection.
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

// arrive makes the next connection.
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

// schedule enters the connection's next event in the calendar: its next beat or its end.
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

// Release gives back the slot of a connection that fell silent.
func (t *Trace) Release(slot uint32) {
	t.conns[slot].next = t.free
	t.free = slot + 1
	t.used--
}

// gap is the time to the next arrival, exponentially distributed.
func (t *Trace) gap() int64 {
	return int64(t.rng.ExpFloat64() * float64(t.cfg.Over) / float64(t.cfg.Conns))
}

// lifetime is how long a connection lives, log-normally distributed.
func (t *Trace) lifetime() int64 { return t.cfg.lifetime(t.rng.NormFloat64()) }

// mix is the finaliser of splitmix64: every bit of x changes half of the result's.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
