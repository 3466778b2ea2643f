package adopters

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/timingwheel-go/timingwheel"
)

// DelayingQueue is a Kubernetes work queue whose waiting items can be removed. It implements
// [workqueue.TypedDelayingInterface], so a rate-limiting queue can use it. Items wait in a
// [timingwheel.DelayQueue], and move to a work queue of client-go when they are due. DelayingQueue
// does not report client-go's retries metric.
type DelayingQueue[T comparable] struct {
	workqueue.TypedInterface[T] // the items that are ready

	delays timingwheel.DelayQueue[T]
	stop   context.CancelFunc // stops feed

	mu      sync.Mutex
	waiting map[T]*timingwheel.Delayed[T] // until feed adds the item; nil after shutdown
}

// NewDelayingQueue returns a queue that adds the items that are due to ready, or to a new
// [workqueue.NewTyped] if ready is nil. ShutDown and ShutDownWithDrain end its goroutine.
func NewDelayingQueue[T comparable](ready workqueue.TypedInterface[T]) *DelayingQueue[T] {
	if ready == nil {
		ready = workqueue.NewTyped[T]()
	}
	ctx, stop := context.WithCancel(context.Background())
	q := &DelayingQueue[T]{TypedInterface: ready, stop: stop, waiting: map[T]*timingwheel.Delayed[T]{}}
	go q.feed(ctx)
	return q
}

// AddAfter adds item after d, or immediately if d is zero or negative. If item is already waiting,
// the earlier time applies and item is added once. A queue of client-go adds a waiting item twice
// if d is zero or negative. AddAfter does nothing after shutdown.
func (q *DelayingQueue[T]) AddAfter(item T, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e, waits := q.waiting[item]
	switch {
	case q.waiting == nil:
	case d <= 0:
		if !waits || q.delays.Remove(e) { // else feed is about to add the item
			delete(q.waiting, item)
			q.Add(item)
		}
	case !waits:
		q.waiting[item] = q.delays.Push(item, d)
	default:
		if due, _ := e.Due(); time.Until(due) > d { // due is zero if feed is about to add the item
			q.delays.Reset(e, d)
		}
	}
}

// Remove removes item if it is waiting, and reports whether it did. If Remove returns true, no
// earlier call to AddAfter adds item. Remove does not affect an item that is ready.
func (q *DelayingQueue[T]) Remove(item T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	removed := q.delays.Remove(q.waiting[item])
	if removed {
		delete(q.waiting, item)
	}
	return removed
}

// Waiting returns the number of waiting items. Items that are ready are not counted.
func (q *DelayingQueue[T]) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// ShutDown implements [workqueue.TypedInterface]. It drops the waiting items.
func (q *DelayingQueue[T]) ShutDown() {
	q.dropWaiting()
	q.TypedInterface.ShutDown()
}

// ShutDownWithDrain implements [workqueue.TypedInterface]. It drops the waiting items.
func (q *DelayingQueue[T]) ShutDownWithDrain() {
	q.dropWaiting()
	q.TypedInterface.ShutDownWithDrain()
}

// dropWaiting stops feed and removes all waiting items.
func (q *DelayingQueue[T]) dropWaiting() {
	q.stop()
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range q.waiting {
		q.delays.Remove(e)
	}
	q.waiting = nil
}

// feed adds items to the work queue as they become due.
func (q *DelayingQueue[T]) feed(ctx context.Context) {
	for item := range q.delays.All(ctx) {
		q.mu.Lock()
		delete(q.waiting, item)
		q.mu.Unlock()
		q.Add(item)
	}
}
