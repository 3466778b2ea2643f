package timingwheel

import (
	"container/list"
	"context"
	"iter"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/internal/clock"
	"github.com/timingwheel-go/timingwheel/internal/heap"
)

const neverDue = math.MaxInt64 // 292 years: no timer is set for it

// DelayQueue has the outline of Doug Lea's java.util.concurrent.DelayQueue (JSR-166): a binary heap
// under one lock, and the leader-follower pattern, in which only one of many waiting takers has a
// timer. In the original, followers wait on a condition variable. A goroutine cannot wait for a
// condition variable and a context at the same time, so here the takers form a queue. The front
// taker is the leader, and only the leader is ever woken:
//
//	D1  If there are a waiting taker and an element, the front taker looks at the queue no later
//	    than the head is due: its timer is set for the head or for an earlier time, or its channel
//	    has a token, which it receives even if it is not asleep yet.
//	D2  A taker looks at the queue and enqueues itself in one critical section. A goroutine that
//	    makes the head earlier, or a taker that leaves the front, with an element or with its
//	    context's error, gives the front taker a token before it unlocks. So no change of the head
//	    is missed between a look and the sleep, and no wake-up is lost with a taker that did not
//	    need it.
//
// Rejected: one channel of tokens for all takers. A taker that needs no token could receive the
// token of another one.

// DelayQueue is an unbounded queue whose elements can be taken once they are due on the monotonic
// clock, and never earlier. Elements leave in order of due time. Elements that are due at the same
// instant leave in the order in which they were pushed or reset. A DelayQueue does not use a wheel.
//
// The zero value is an empty queue and need not be closed. A DelayQueue must not be copied after
// first use. It belongs to the testing/synctest bubble in which it is first used. All methods may
// be called from any goroutine. Adding, taking, removing and resetting an element is O(log n).
type DelayQueue[T any] struct {
	mu sync.Mutex

	// Guarded by mu.
	timeline clock.Timeline // starts at first use, in the bubble of that use
	heap     heap.Heap[*element[T]]
	seq      uint64    // numbers elements in the order in which they are added
	takers   list.List // channels of waiting takers, with room for a token; the front one came first
}

// Delayed is the handle to an element in a [DelayQueue]. Once the element has left the queue, calls
// with its handle return false and have no effect. The same holds for a nil handle, for a zero
// Delayed and for a copy of a Delayed.
type Delayed[T any] element[T]

// element is the heap's view of a Delayed. The types are separate so that Delayed does not export
// the methods for the heap.
type element[T any] struct {
	queue *DelayQueue[T] // set once

	// Guarded by queue.mu.
	due   int64 // a reading of queue.timeline; negative: before its start
	seq   uint64
	index int // in queue.heap; -1 if the element has left the queue
	value T   // zero if the element has left the queue
}

// Before orders the heap: by due time, and then by the order of Push and Reset.
func (e *element[T]) Before(o *element[T]) bool {
	return e.due < o.due || e.due == o.due && e.seq < o.seq
}

// SetHeapIndex stores the element's index in the heap.
func (e *element[T]) SetHeapIndex(i int) { e.index = i }

// Due returns the time at which the element is due. It returns false if the element has left the
// queue.
func (e *Delayed[T]) Due() (due time.Time, ok bool) {
	if e == nil || e.queue == nil {
		return due, false
	}
	q := e.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if ok = q.holdsLocked(e); ok {
		due = q.timeline.TimeAt(e.due)
	}
	return due, ok
}

// Push adds v, which is due once delay has passed, and returns its handle. If delay is zero, v is
// due immediately. If delay is negative, v also goes ahead of elements that are due now. A delay
// beyond the clock's range of 292 years never passes. Push is O(log n) and never blocks.
func (q *DelayQueue[T]) Push(v T, delay time.Duration) *Delayed[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.addLocked(&element[T]{queue: q, value: v}, clock.Saturated(q.nowLocked(), int64(delay)))
}

// PushAt adds v, which is due at t, and returns its handle. If t has passed, v is due immediately.
// If t has no monotonic reading, the wall clock is read once, and later wall-clock steps do not
// move the element. PushAt is O(log n) and never blocks.
func (q *DelayQueue[T]) PushAt(v T, t time.Time) *Delayed[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.timeline.Start()
	due, _ := q.timeline.Signed(t)
	return q.addLocked(&element[T]{queue: q, value: v}, due)
}

// Take waits until the first element is due, removes it and returns its value. If ctx ends first,
// Take returns ctx.Err(). An element that is due is taken even if ctx has ended. Calls that wait
// are served in the order in which they began. Take panics if ctx is nil. Take is O(log n), apart
// from the wait.
func (q *DelayQueue[T]) Take(ctx context.Context) (T, error) {
	mustHaveContext(ctx, "DelayQueue.Take")
	_, v, err := q.take(ctx)
	return v, err
}

// Poll removes the first element if it is due, and returns its value and true. Otherwise it returns
// false. Poll is O(log n) and never blocks.
func (q *DelayQueue[T]) Poll() (T, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e, v := q.popLocked(q.nowLocked())
	return v, e != nil
}

// Peek returns the value and the due time of the first element, due or not, and does not remove it.
// It returns false if the queue is empty. Another goroutine may take the element at any time. O(1).
func (q *DelayQueue[T]) Peek() (v T, due time.Time, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e, ok := q.heap.Min()
	if !ok {
		return v, due, false
	}
	return e.value, q.timeline.TimeAt(e.due), true
}

// Drain removes up to max elements that are due when it is called, or all of them if max is zero or
// negative. It returns their values in order, or nil if none is due. Drain is O(k log n) for k
// values, and other calls wait until it returns.
func (q *DelayQueue[T]) Drain(max int) []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.nowLocked()
	var values []T
	for max <= 0 || len(values) < max {
		e, v := q.popLocked(now)
		if e == nil {
			break
		}
		values = append(values, v)
	}
	return values
}

// Remove removes e, due or not. It reports whether e was in this queue. If several calls race for
// e, including calls that take it, exactly one gets it. O(log n).
func (q *DelayQueue[T]) Remove(e *Delayed[T]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	held := q.holdsLocked(e)
	if held {
		q.removeLocked((*element[T])(e))
	}
	return held
}

// Reset makes e due once delay has passed, as if e had just been pushed. It reports whether e was
// in this queue. If not, it does nothing. O(log n).
func (q *DelayQueue[T]) Reset(e *Delayed[T], delay time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.holdsLocked(e) {
		return false
	}
	q.heap.Remove(e.index)
	q.addLocked((*element[T])(e), clock.Saturated(q.nowLocked(), int64(delay)))
	return true
}

// Len returns the number of elements in the queue, due or not. O(1).
func (q *DelayQueue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.heap.Len()
}

// Channel returns a channel with capacity size that delivers elements as they become due. A
// goroutine takes elements for the channel until ctx ends, and then closes the channel. To lose no
// element, receive until the channel is closed, because elements in the buffer do not return to the
// queue.
//
// While that goroutine waits for a receiver, it holds one element, which counts as taken. If ctx
// ends first, the element returns to its place in the queue. Channel panics if size is negative or
// ctx is nil.
func (q *DelayQueue[T]) Channel(ctx context.Context, size int) <-chan T {
	if size < 0 {
		panic("timingwheel: DelayQueue.Channel: size is " + strconv.Itoa(size) + "; it must not be negative")
	}
	mustHaveContext(ctx, "DelayQueue.Channel")
	ch := make(chan T, size)
	go func() {
		defer close(ch)
		for ctx.Err() == nil {
			e, v, err := q.take(ctx)
			if err != nil {
				return
			}
			select {
			case ch <- v:
			case <-ctx.Done():
				q.mu.Lock()
				defer q.mu.Unlock()
				e.value = v
				q.insertLocked(e) // at its old position
				return
			}
		}
	}()
	return ch
}

// All returns an iterator that takes elements as they become due, until ctx ends. An element leaves
// the queue immediately before it is yielded, so no element is lost when the loop is left. The
// iterator may be used several times and concurrently. All panics if ctx is nil.
func (q *DelayQueue[T]) All(ctx context.Context) iter.Seq[T] {
	mustHaveContext(ctx, "DelayQueue.All")
	return func(yield func(T) bool) {
		for ctx.Err() == nil {
			v, err := q.Take(ctx)
			if err != nil || !yield(v) {
				return
			}
		}
	}
}

// take implements Take. It also returns the element, which has left the queue, or nil with ctx's
// error. The context is user code, so take does not call it under the lock (G7).
func (q *DelayQueue[T]) take(ctx context.Context) (*element[T], T, error) {
	var w *list.Element // of takers; nil until take has to wait
	for {
		err := ctx.Err()
		q.mu.Lock()
		now := q.nowLocked()
		e, v := q.popLocked(now)
		if e != nil || err != nil {
			if w != nil {
				front := w == q.takers.Front()
				if q.takers.Remove(w); front {
					q.wakeLocked() // the new front taker has set no timer
				}
			}
			q.mu.Unlock()
			if e != nil {
				err = nil
			}
			return e, v, err
		}
		if w == nil {
			w = q.takers.PushBack(make(chan struct{}, 1))
		}
		var due <-chan time.Time // only the front taker has a timer
		if head, ok := q.heap.Min(); ok && head.due != neverDue && w == q.takers.Front() {
			due = time.After(time.Duration(head.due - now))
		}
		q.mu.Unlock()
		select {
		case <-due:
		case <-w.Value.(chan struct{}):
		case <-ctx.Done():
		}
	}
}

func (q *DelayQueue[T]) addLocked(e *element[T], due int64) *Delayed[T] {
	q.seq++
	e.due, e.seq = due, q.seq
	q.insertLocked(e)
	return (*Delayed[T])(e)
}

func (q *DelayQueue[T]) insertLocked(e *element[T]) {
	if q.heap.Push(e); e.index == 0 {
		q.wakeLocked()
	}
}

// popLocked removes the head if it is due, and otherwise returns nil. D1 still holds, because the
// next head is not earlier.
func (q *DelayQueue[T]) popLocked(now int64) (e *element[T], v T) {
	if head, ok := q.heap.Min(); ok && head.due <= now {
		return head, q.removeLocked(head)
	}
	return nil, v
}

// removeLocked removes e and returns its value. It clears the value in e.
func (q *DelayQueue[T]) removeLocked(e *element[T]) (v T) {
	q.heap.Remove(e.index)
	v, e.value = e.value, v
	return v
}

// holdsLocked reports whether e is in q. It returns false for a copy of an element.
func (q *DelayQueue[T]) holdsLocked(e *Delayed[T]) bool {
	return e != nil && e.queue == q && uint(e.index) < uint(q.heap.Len()) && q.heap.At(e.index) == (*element[T])(e)
}

func (q *DelayQueue[T]) wakeLocked() {
	e, ok := q.heap.Min()
	if w := q.takers.Front(); w != nil && ok && e.due != neverDue {
		select {
		case w.Value.(chan struct{}) <- struct{}{}:
		default: // it has a token already
		}
	}
}

func (q *DelayQueue[T]) nowLocked() int64 {
	q.timeline.Start()
	return q.timeline.Read()
}
