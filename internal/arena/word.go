package arena

import "github.com/timingwheel-go/timingwheel/internal/clock"

// Kind is the state of a record.
//
//	from     to        by                when
//	any *    Staged    arming caller     a timer is armed in the record
//	Staged   Placed    owner             the timer moves from the inbox to a bucket
//	Staged   Ending    Stop              this call stops the timer; it clears the payload next
//	Ending   Ended *   the same Stop     the payload is cleared
//	Ending   Dead *    owner             the record leaves the inbox; the same Stop clears the payload
//	                                     and pushes the record on the stack of removals
//	Placed   Staged    Reschedule        to an earlier deadline; the Listed flag is set
//	Placed   Staged    worker            the timer was postponed while it was due
//	Placed   Flushed   Flush             the timer is claimed; its callback begins later
//	Placed   Dead *    Stop              this call stops the timer; it clears the payload and
//	                                     pushes the record on the stack of removals
//	Placed   Dead *    wheel's Stop      the timer is discarded, so later claims fail
//	Placed   Spent *   worker            the timer is claimed, and its callback begins
//	Placed   Spent *   RemoveAll         the payload is returned
//	Flushed  Spent *   worker            as Placed
//	Flushed  Dead *    wheel's Stop      as Placed
//
// A star marks a final kind. The record is allocated again once no inbox, bucket or stack refers to
// it. A queue of due timers may still do so, with the old generation.
//
// Every transition but the first is a compare-and-swap of the whole word: it fails if generation or
// deadline have changed. Reschedule to a later time keeps the kind. The owner holds owner.mu.
type Kind uint8

// The kinds of records.
const (
	Spent   Kind = iota // never used, or claimed: on the stack of removals, or about to be
	Staged              // pending, in the inbox
	Ending              // stopped while Staged; the payload is about to be cleared
	Ended               // stopped while Staged; still in the inbox
	Placed              // pending, in a bucket or due
	Flushed             // due and claimed by Flush; the callback has not begun
	Dead                // stopped outside the inbox, or discarded; in the stack of removals, or about to be
)

// Classes of timers. An ordinary timer has class 0.
const (
	Lasting Word = 1 << 3 // the wheel's Stop hands the timer to package time
	Counted Word = 2 << 3 // the calls to the timer's function are counted; the payload tells whose
)

// Listed is a flag. Staged, Ending, Ended: a bucket may also refer to the record.
const Listed Word = 1 << 5

const (
	kindMask  Word = 1<<3 - 1
	classMask Word = 3 << 3
)

const (
	genShift  = 6
	genBits   = 14
	genMask   = 1<<genBits - 1
	tickShift = genShift + genBits
	tickBits  = 64 - tickShift
)

const _ = uint(1<<tickBits - 1 - clock.LastTick) // a word has room for every tick

// Word is the whole state of a record: kind, flags, generation, and the tick of the deadline.
//
//	bits   0..2   kind
//	       3..4   class
//	       5      Listed
//	       6..19  generation
//	      20..63  tick of the deadline; Dead, Spent: next record of the stack
type Word uint64

func (w Word) Kind() Kind { return Kind(w & kindMask) }

func (w Word) Has(flag Word) bool { return w&flag != 0 }

func (w Word) Is(class Word) bool { return w&classMask == class }

func (w Word) With(k Kind) Word { return w&^kindMask | Word(k) }

// WithBits returns the word with other deadline bits. Bits of x that do not fit are dropped.
func (w Word) WithBits(x uint64) Word { return w&(1<<tickShift-1) | Word(x)<<tickShift }

// Bits returns the deadline bits.
func (w Word) Bits() uint64 { return uint64(w >> tickShift) }

func (w Word) Tick() int64 { return int64(w >> tickShift) }

// Gen returns the generation of the record, which handles contain.
func (w Word) Gen() uint32 { return uint32(w>>genShift) & genMask }

// next returns the word for the record's next timer. The record must not be exhausted.
func (w Word) next(class Word, x uint64) Word {
	gen := (w>>genShift + 1) & genMask
	return Word(x)<<tickShift | gen<<genShift | class | Word(Staged)
}

// Exhausted reports whether the record has used all generations, so that it must be retired.
func (w Word) Exhausted() bool { return w>>genShift&genMask == genMask }
