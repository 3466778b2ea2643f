package pool

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// verify returns an error if Q1 or Q2 does not hold.
func (q *Queue[E]) verify(isZero func(E) bool) error {
	n := 0
	var last *chunk[E]
	for c := q.head; c != nil; last, c = c, c.next {
		if len(c.items) == 0 {
			return errors.New("Q1: a chunk without items")
		}
		n += len(c.items)
		if err := c.verify(isZero); err != nil {
			return err
		}
	}
	if n != q.n || last != q.tail {
		return fmt.Errorf("Q1: %d items, counted %d", n, q.n)
	}
	if c := q.spare; c != nil {
		if len(c.items) > 0 || cap(c.items) < chunkSize || c.next != nil {
			return errors.New("the spare chunk is in use")
		}
		return c.verify(isZero)
	}
	return nil
}

// verify returns an error if Q2 does not hold.
func (c *chunk[E]) verify(isZero func(E) bool) error {
	n := 0
	for _, e := range c.memory {
		if !isZero(e) {
			n++
		}
	}
	if n > len(c.items) {
		return fmt.Errorf("Q2: a chunk of %d items keeps %d", len(c.items), n)
	}
	return nil
}

func TestQueueIsFirstInFirstOut(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	var q Queue[int]
	var model []int
	for next := 1; next < 100_000; {
		switch random.IntN(4) {
		case 0, 1:
			items := make([]int, random.IntN(3*chunkSize))
			for i := range items {
				items[i] = next
				next++
			}
			q.Push(items)
			model = append(model, items...)
		case 2:
			items := q.Pop(nil, random.IntN(2*chunkSize))
			back := items[random.IntN(len(items)+1):]
			q.Return(back)
			model = model[len(items)-len(back):]
		default:
			most := random.IntN(4 * chunkSize)
			popped := q.Pop([]int{-1}, most)
			n := min(most, len(model))
			require.Equal(t, append([]int{-1}, model[:n]...), popped)
			model = model[n:]
		}
		require.Equal(t, len(model), q.Len())
		require.NoError(t, q.verify(func(e int) bool { return e == 0 }))
	}
}

// The chunks of a long queue are garbage once it is empty. A short queue allocates nothing.
func TestEmptyQueueKeepsOneChunk(t *testing.T) {
	var q Queue[int]
	q.Push(make([]int, 1_000_000))
	require.Len(t, q.Pop(nil, 2_000_000), 1_000_000)
	require.Nil(t, q.head)
	require.NoError(t, q.verify(func(e int) bool { return e == 0 }))
	require.Empty(t, q.Pop(nil, 1))
	require.Zero(t, testing.AllocsPerRun(100, func() {
		q.Push([]int{1, 2, 3})
		q.Pop(make([]int, 0, 3), 3)
	}))
}

// A queue that only dead items make longer stays short, and keeps the live ones in order.
func TestSweepRemovesDeadItems(t *testing.T) {
	t.Parallel()
	var q Queue[int]
	var model []int
	asked := 0
	live := func() func(int) bool {
		return func(i int) bool { asked++; return i%1000 == 1 }
	}
	const n = 1_000_000
	for i := 1; i <= n; i++ {
		q.Push([]int{i})
		q.Sweep(live)
		if i%1000 == 1 {
			model = append(model, i)
		}
		require.Less(t, q.Len(), sweepMin+4*len(model))
	}
	require.Less(t, asked, 2*n)
	require.NoError(t, q.verify(func(e int) bool { return e == 0 }))
	require.Equal(t, model, slices.DeleteFunc(q.Pop(nil, n), func(i int) bool { return i%1000 != 1 }))
}
