package workload

import "time"

// xorshift is a generator whose cost is small and the same for every implementation.
type xorshift uint64

func (x *xorshift) next() uint64 {
	v := *x
	v ^= v << 13
	v ^= v >> 7
	v ^= v << 17
	*x = v
	return uint64(v)
}

func (x *xorshift) below(n int) int { return int((x.next() >> 32) * uint64(n) >> 32) }

// Deadlines of a population lie between one minute and one hour ahead, so that it outlives the run.
const (
	nearest = time.Minute
	horizon = time.Hour
)

func (x *xorshift) far() time.Duration {
	return nearest + time.Duration(x.below(int((horizon-nearest)/time.Millisecond)))*time.Millisecond
}
