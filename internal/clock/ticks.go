package clock

import (
	"math"
	"math/bits"
)

// LastTick is the tick of all deadlines beyond the range of the clock. The clock never reaches it.
const LastTick = 1<<44 - 1

// Ticks converts non-negative readings to ticks, from 0 to LastTick, by one multiplication. Source:
// Granlund and Montgomery, "Division by invariant integers using multiplication", 1994, for 63-bit
// dividends: with l = ceil(log2 d) and m = ceil(2^(63+l) / d), x/d = x*m >> (63+l).
type Ticks struct {
	length int64
	m      uint64
	shift  uint8 // l-1, because bits.Mul64 has already shifted by 64
}

// NewTicks returns a Ticks for a tick of length ns, which must be greater than 1.
func NewTicks(length int64) Ticks {
	l := bits.Len64(uint64(length - 1))
	hi, lo := uint64(1)<<(l-1), uint64(0) // 2^(63+l) as 128 bits
	q, r := bits.Div64(hi%uint64(length), lo, uint64(length))
	if r != 0 {
		q++
	}
	return Ticks{length: length, m: q, shift: uint8(l - 1)}
}

// Length is in nanoseconds.
func (t *Ticks) Length() int64 { return t.length }

// Floor returns the tick that contains the reading x, which is before LastTick: at the end of its
// range the clock stands still.
func (t *Ticks) Floor(x int64) int64 {
	hi, _ := bits.Mul64(uint64(x), t.m)
	return min(int64(hi>>t.shift), LastTick-1)
}

// Ceil returns the first tick that begins at the reading x or later, or LastTick.
func (t *Ticks) Ceil(x int64) int64 {
	if x == 0 {
		return 0
	}
	return t.Floor(x-1) + 1
}

// Rounded returns the tick of a deadline, rounded up, or of now if the deadline has passed.
func (t *Ticks) Rounded(deadline, now int64) int64 {
	if deadline <= now {
		return t.Floor(now)
	}
	return t.Ceil(deadline)
}

// Begin returns the reading at which a tick begins. The result saturates.
func (t *Ticks) Begin(tick int64) int64 {
	hi, lo := bits.Mul64(uint64(tick), uint64(t.length))
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}
