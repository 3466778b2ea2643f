package timingwheel

import (
	"context"
	"iter"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/internal/clock"
	"github.com/timingwheel-go/timingwheel/internal/heap"
)

const (
	neverDue = math.MaxInt64 // 292 years: waited for without a timer
	awakeNow = math.MinInt64 // DelayQueue.lookBy of a taker that has been told to look
)

// DelayQueue is an unbounded queue whose elements can be taken once they are due, which is never
// early on the monotonic clock; steps of the wall clock move nothing. They leave in the order of
// their due times, and those due at the same instant in the order in which they were pushed or last
// reset.
//
// The zero value is an empty queue. It must not be copied after first use; all methods may be
// called from any goroutine. It needs no closing, and only [DelayQueue.Channel] starts a goroutine.
// It belongs to the testing/synctest bubble in which it is first used, if any. With n elements,
// adding, taking, removing and resetting one cost O(log n): prefer a [TimingWheel] for very many
// timers, a DelayQueue where the consumer has a pace of its own.
//
// # Algorithm
//
// In outline this is Doug Lea's java.util.concurrent.DelayQueue (JSR-166): a binary heap under one
// lock, and the leader-follower pattern, by which only one of many waiting takers keeps a timer.
// There, followers wait on a condition variable; that cannot wait for a context as well, so here
// takers stand in line. The front one is the leader, and the only one that is ever woken:
//
//	D1  If there are a waiting taker and an element, the front taker looks at the queue no later than the
//	    head is due: lookBy <= head.due. It has set its timer to lookBy, or (awakeNow) it has a token in
//	    its channel, which it will find even if it is not asleep yet.
//	D2  A taker looks, and gets in line or sets lookBy, in one critical section; whoever makes the head
//	    earlier restores D1 before unlocking. So no head is published unseen between look and sleep.
//	D3  A taker that leaves the front, with an element or with its context's error, hands the duty of D1
//	    to the next. So no token is lost with a taker that did not need it.
//
// Rejected: one channel of tokens for all takers. One that needs no token may swallow another's.
type DelayQueue[T any] struct {
	mu     sync.Mutex
	line   clock.Timeline // started at first use, as bubbles and monotonic readings want it
	heap   heap.Heap[*element[T]]
	seq    uint64            // numbers elements and takers in the order in which they come
	takers heap.Heap[*taker] // those asleep, or about to be; the front is the one that came first
	lookBy int64             // D1; meaningless while there is no taker
}

// Delayed is the handle of an element of a [DelayQueue]. Once the element has left the queue, the
// handle is inert and does not keep the value alive. Nil and the zero value belong to no queue and
// are inert too.
type Delayed[T any] element[T]

// element is a Delayed as the heap sees it. They are two types, so that users do not see its
// methods.
type element[T any] struct {
	queue *DelayQueue[T] // set once

	// Guarded by queue.mu.
	due   int64 // a reading of queue.line; negative: before its start
	seq   uint64
	index int // in queue.heap; -1 when out
	value T   // zero when out
}

// Before orders the heap: of two elements that are due together the one that was pushed first.
func (e *element[T]) Before(o *element[T]) bool {
	return e.due < o.due || e.due == o.due && e.seq < o.seq
}

// SetHeapIndex notes the element's place in the heap.
func (e *element[T]) SetHeapIndex(i int) { e.index = i }

// Due returns when the element is due, and whether it is still in its queue; the zero time if it is
// not. Another goroutine may take or reset it at any moment. O(1).
func (e *Delayed[T]) Due() (time.Time, bool) {
	if e == nil || e.queue == nil {
		return time.Time{}, false
	}
	q := e.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.holdsLocked(e) {
		return time.Time{}, false
	}
	return q.line.TimeAt(e.due), true
}

// NewDelayQueue returns an empty queue.
func NewDelayQueue[T any]() *DelayQueue[T] { return new(DelayQueue[T]) }

// Push adds v, due once delay has passed, and returns its handle. Zero is due at once; so is a
// negative delay, which as a due time in the past goes ahead of what is due now. A due time beyond
// the clock's 292 years, such as that of math.MaxInt64, never comes. O(log n).
func (q *DelayQueue[T]) Push(v T, delay time.Duration) *Delayed[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.pushLocked(v, clock.Saturated(q.nowLocked(), int64(delay)))
}

// PushAt adds v, due at t, and returns its handle. A time in the past is due at once, the oldest
// first. A time with a monotonic reading is used as it is; for one without, the distance from now
// is measured on the wall clock here and kept, so that later steps of the wall clock do not move
// it. O(log n).
func (q *DelayQueue[T]) PushAt(v T, t time.Time) *Delayed[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.pushLocked(v, q.dueAtLocked(t))
}

// Take waits until the first element is due, whichever that is by then, removes it and returns its
// value. If ctx ends first, it returns the zero value and ctx.Err(); an element that is due is
// preferred over an ended context. Waiting takers are served first come, first served, but a call
// that finds an element due takes it ahead of them. O(log n).
func (q *DelayQueue[T]) Take(ctx context.Context) (T, error) {
	_, v, err := q.take(ctx)
	return v, err
}

// Poll removes the first element and returns its value if it is due; otherwise, or if the queue is
// empty, it returns false at once. O(log n).
func (q *DelayQueue[T]) Poll() (T, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e, v := q.popLocked(q.nowLocked())
	return v, e != nil
}

// Peek returns the value of the first element and when it is due, be that past or not; false if the
// queue is empty. The element stays, and another goroutine may take it at any moment. O(1).
func (q *DelayQueue[T]) Peek() (v T, due time.Time, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e, ok := q.heap.Min()
	if !ok {
		return v, due, false
	}
	return e.value, q.line.TimeAt(e.due), true
}

// Drain removes up to max elements that are due at the call, all of them if max is zero or
// negative, and returns their values in order; nil if none is due. The lock is held throughout:
// with max it is in the caller's hand for how long others wait. O(k log n) for k values.
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

// Remove takes e out of the queue, due or not. It returns false if e is nil, another queue's, or
// already taken or removed: of racing calls that take or remove an element exactly one gets it.
// O(log n).
func (q *DelayQueue[T]) Remove(e *Delayed[T]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	held := q.holdsLocked(e)
	if held {
		q.removeLocked((*element[T])(e))
	}
	return held
}

// Reset makes e due once delay has passed from now, earlier or later than before, as if it were
// pushed anew: among elements due at the same instant it goes last. Delays mean what they mean to
// [DelayQueue.Push]. Where [DelayQueue.Remove] would return false, so does Reset, and does nothing.
// O(log n).
func (q *DelayQueue[T]) Reset(e *Delayed[T], delay time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.holdsLocked(e) {
		return false
	}
	e.due = clock.Saturated(q.nowLocked(), int64(delay))
	q.seq++
	e.seq = q.seq
	q.heap.Fix(e.index)
	q.headMovedLocked()
	return true
}

// Len returns the number of elements, due or not. O(1).
func (q *DelayQueue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.heap.Len()
}

// Channel returns a channel of the elements, in order, each once it is due. size is its buffer's
// capacity; Channel panics if it is negative. A goroutine feeds the channel until ctx ends, whether
// or not anybody receives, and then closes it. Several channels and takers may share a queue; each
// element goes to one.
//
// Nothing is lost: once the channel is closed, each element has either come out of it (receive
// until it is closed; ctx does not empty the buffer) or is in the queue. To wait for a receiver,
// the feeder must have taken its element already: it holds one at most beside those in the buffer.
// That one counts as taken: Len leaves it out, Remove and Reset return false, and an earlier one
// does not overtake it. If ctx ends before it is received, it goes back to its old place under its
// own due time.
func (q *DelayQueue[T]) Channel(ctx context.Context, size int) <-chan T {
	if size < 0 {
		panic("timingwheel: DelayQueue.Channel: size is " + strconv.Itoa(size) + ", want 0 or more")
	}
	ch := make(chan T, size)
	go q.feed(ctx, ch)
	return ch
}

// All returns an iterator that takes elements, each as soon as it is due, until ctx ends. An
// element leaves the queue right before it is yielded, so that a break loses none. Elements that
// are due when ctx ends stay in the queue. The iterator may be used several times and by several
// goroutines at once.
func (q *DelayQueue[T]) All(ctx context.Context) iter.Seq[T] {
	return func(yield func(T) bool) {
		for ctx.Err() == nil {
			v, err := q.Take(ctx)
			if err != nil || !yield(v) {
				return
			}
		}
	}
}

// feed is the goroutine of Channel.
func (q *DelayQueue[T]) feed(ctx context.Context, ch chan<- T) {
	defer close(ch)
	for ctx.Err() == nil {
		e, v, err := q.take(ctx)
		if err != nil {
			return
		}
		select {
		case ch <- v:
		case <-ctx.Done():
			q.putBack(e, v)
			return
		}
	}
}

// take is Take; it also returns the element, which is out of the queue, or nil with ctx's error.
// The context is user code and is not called under the lock (G7).
func (q *DelayQueue[T]) take(ctx context.Context) (*element[T], T, error) {
	var w *taker // made when there is reason to wait
	for {
		err := ctx.Err()
		q.mu.Lock()
		now := q.nowLocked()
		e, v := q.popLocked(now)
		if e != nil || err != nil {
			q.leaveLocked(w)
			q.mu.Unlock()
			if e != nil {
				err = nil
			}
			return e, v, err
		}
		if w == nil {
			q.seq++
			w = &taker{seq: q.seq, wake: make(chan struct{}, 1)}
			q.takers.Push(w)
		}
		wait := q.waitLocked(w, now)
		q.mu.Unlock()
		w.sleep(ctx.Done(), wait)
	}
}

// putBack returns a taken element and its value to their place.
func (q *DelayQueue[T]) putBack(e *element[T], v T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e.value = v
	q.insertLocked(e)
}

func (q *DelayQueue[T]) pushLocked(v T, due int64) *Delayed[T] {
	q.seq++
	e := &element[T]{queue: q, due: due, seq: q.seq, value: v}
	q.insertLocked(e)
	return (*Delayed[T])(e)
}

func (q *DelayQueue[T]) insertLocked(e *element[T]) {
	q.heap.Push(e)
	q.headMovedLocked()
}

// popLocked takes out the head if it is due, else returns nil. D1 stays true: the next head is no
// earlier.
func (q *DelayQueue[T]) popLocked(now int64) (e *element[T], v T) {
	if head, ok := q.heap.Min(); ok && head.due <= now {
		return head, q.removeLocked(head)
	}
	return nil, v
}

// removeLocked takes out e and returns its value, which e forgets.
func (q *DelayQueue[T]) removeLocked(e *element[T]) (v T) {
	q.heap.Remove(e.index)
	v, e.value = e.value, v
	return v
}

// holdsLocked reports whether e is in q; a copy of an element is not.
func (q *DelayQueue[T]) holdsLocked(e *Delayed[T]) bool {
	return e != nil && e.queue == q && uint(e.index) < uint(q.heap.Len()) && q.heap.At(e.index) == (*element[T])(e)
}

// waitLocked returns how long w may sleep, and notes it (D1). Only the front taker watches the
// clock.
func (q *DelayQueue[T]) waitLocked(w *taker, now int64) time.Duration {
	if w.index != 0 {
		return neverDue
	}
	q.lookBy = neverDue
	if e, ok := q.heap.Min(); ok && e.due != neverDue {
		q.lookBy = e.due
		return time.Duration(e.due - now)
	}
	return neverDue
}

// headMovedLocked restores D1 after the head may have become earlier.
func (q *DelayQueue[T]) headMovedLocked() {
	e, ok := q.heap.Min()
	if w, waits := q.takers.Min(); ok && waits && e.due < q.lookBy {
		q.lookBy = awakeNow
		select {
		case w.wake <- struct{}{}:
		default: // it has not used its last token yet
		}
	}
}

// leaveLocked takes w, which may be nil, out of the line and hands its duty on (D3).
func (q *DelayQueue[T]) leaveLocked(w *taker) {
	if w == nil {
		return
	}
	i := w.index
	q.takers.Remove(i)
	if i == 0 {
		q.lookBy = neverDue // what the new front knows of the clock
		q.headMovedLocked()
	}
}

// nowLocked reads the clock.
func (q *DelayQueue[T]) nowLocked() int64 {
	q.line.Start()
	return q.line.Read()
}

// dueAtLocked converts t. It reads the clock only if it must.
func (q *DelayQueue[T]) dueAtLocked(t time.Time) int64 {
	q.line.Start()
	due, _ := q.line.Signed(t)
	return due
}

// taker is a goroutine that waits in Take.
type taker struct {
	seq   uint64
	index int           // in DelayQueue.takers; guarded by its mu
	wake  chan struct{} // one token; it is kept if the taker is not asleep
}

func (w *taker) Before(o *taker) bool { return w.seq < o.seq }
func (w *taker) SetHeapIndex(i int)   { w.index = i }

// sleep returns after wait (neverDue: no limit), on a token, or when done is closed.
func (w *taker) sleep(done <-chan struct{}, wait time.Duration) {
	var due <-chan time.Time
	if wait != neverDue {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-due:
	case <-w.wake:
	case <-done:
	}
}
