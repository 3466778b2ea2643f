package arena

// Kind is the state of a slot.
//
//	from     to        by                when
//	any *    Staged    arming caller     a timer is armed in the slot
//	Staged   Placed    owner             the timer is taken out of the inbox
//	Staged   Ending    Stop              the call has won; it clears the payload next
//	Ending   Ended *   the same Stop     the payload is cleared
//	Placed   Staged    Reschedule        an earlier deadline; the Moved flag is set
//	Placed   Staged    worker            the timer was postponed while a batch or an entry had it
//	Placed   Dead *    Stop              the call has won; it clears the payload and pushes the slot
//	Placed   Dead *    wheel's Stop      the timer is in a batch, whose claims must fail
//	Placed   Spent *   worker            the timer is claimed
//	Placed   Running   worker            the same for a plan or FuncTimer, which keeps its slot
//	Running  Staged    plan, FuncTimer   the next run is armed; the deadline was moved
//	Running  Dead *    Stop, plan        the plan has ended; its run pushes the slot when it is over
//	Running  Dead *    FuncTimer         it was stopped, or calls its function next
//
// A slot of a kind with a star takes no further part. It is handed out again once no inbox, bucket,
// batch or stack of removals names it.
//
// Every step is one compare-and-swap of the whole word, so a step names the generation and the
// deadline that it has seen. Reschedule to a later time changes the deadline of a Staged, Placed or
// Running word and keeps its kind. "Owner" is the goroutine that holds the wheel's lock.
type Kind uint8

// The kinds of slots.
const (
	Free    Kind = iota // never used
	Staged              // pending, in the inbox
	Ending              // stopped while Staged; the payload is about to be cleared
	Ended               // stopped while Staged; the inbox has it
	Placed              // pending, in a bucket, among the due entries or in a worker's batch
	Dead                // stopped while Placed or Running; in the stack of removals, or about to be
	Spent               // claimed; the worker's batch has it
	Running             // a plan whose run is under way, or a claimed FuncTimer; its worker's batch, or a bucket, may name the slot
)

// Flags of a word.
const (
	Plan  Word = 1 << 3 // the slot belongs to a plan or a FuncTimer
	Far   Word = 1 << 4 // the deadline bits are a ticket of the table of far deadlines
	Moved Word = 1 << 5 // Staged, Ending, Ended: a bucket may have the slot as well.
	// Running: Reschedule has set the next run. Dead: the slot was Running, or its Stop is counted.

	kindMask Word = 1<<3 - 1
)

const (
	genShift  = 6
	genBits   = 22
	genMask   = 1<<genBits - 1
	tickShift = genShift + genBits
	tickBits  = 64 - tickShift

	// Near is the number of ticks ahead of the clock from which a deadline is far.
	Near = 1 << (tickBits - 3)

	// ahead is how far a near deadline may lie ahead of the clock reading by which it is expanded:
	// Near, and as much again for a reading that is out of date. All other values of the bits lie
	// in the past.
	ahead = 2 * Near
)

// Word is the whole state of a slot: its kind and flags, the generation, and the deadline's tick
// modulo 2^36, or a ticket in its place.
//
//	bits   0..2   kind
//	       3..5   flags
//	       6..27  generation
//	      28..63  tick modulo 2^36; Far: ticket; Dead: the next slot of the stack
type Word uint64

// Kind returns the kind.
func (w Word) Kind() Kind { return Kind(w & kindMask) }

// Has reports whether a flag is set.
func (w Word) Has(flag Word) bool { return w&flag != 0 }

// With returns the word with another kind.
func (w Word) With(k Kind) Word { return w&^kindMask | Word(k) }

// WithBits returns the word with other deadline bits: a tick, a ticket or a link.
func (w Word) WithBits(x uint64) Word { return w&(1<<tickShift-1) | Word(x)<<tickShift }

// Bits returns the deadline bits.
func (w Word) Bits() uint64 { return uint64(w >> tickShift) }

// LowBits returns what a word holds of a tick.
func LowBits(tick int64) uint64 { return uint64(tick) & (1<<tickBits - 1) }

// Tick returns the tick of a word that is not Far. now is a tick near the present.
func (w Word) Tick(now int64) int64 {
	const mask = 1<<tickBits - 1
	latest := now + ahead
	return latest - int64((uint64(latest)-w.Bits())&mask)
}

// Gen returns the generation, as handles carry it.
func (w Word) Gen() uint32 { return uint32(w>>genShift) & genMask }

// SameGen reports whether two words belong to the same life of a slot.
func (w Word) SameGen(o Word) bool { return (w^o)>>genShift&genMask == 0 }

// NotAfter reports whether the tick of w, which is near the present, is not after tick.
func (w Word) NotAfter(tick int64) bool {
	const mask, half = 1<<tickBits - 1, 1 << (tickBits - 1)
	return (uint64(tick)-w.Bits())&mask < half
}

// next returns the word of the slot's next timer. The slot must not be exhausted.
func (w Word) next(k Kind, flags Word, x uint64) Word {
	gen := (w>>genShift + 1) & genMask
	return Word(x)<<tickShift | gen<<genShift | flags | Word(k)
}

// Renewed returns the word with the next generation, unless the slot is exhausted.
func (w Word) Renewed() Word {
	if w.Exhausted() {
		return w
	}
	return w + 1<<genShift
}

// Exhausted reports whether the slot can take no further timer.
func (w Word) Exhausted() bool { return w>>genShift&genMask == genMask }
