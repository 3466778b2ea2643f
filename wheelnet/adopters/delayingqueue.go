package adopters

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/timingwheel-go/timingwheel"
)

// DelayingQueue is a work queue of Kubernetes whose waiting items can be removed. It implements
// [workqueue.TypedDelayingInterface], also for a rate-limiting queue on top. The items that are
// ready are in a work queue of client-go, and only AddAfter is implemented here, on a
// [timingwheel.DelayQueue]. client-go's metric of retries is not kept.
type DelayingQueue[T comparable] struct {
	workqueue.TypedInterface[T] // the items that are ready

	delays timingwheel.DelayQueue[T]
	stop   context.CancelFunc // ends feed

	mu      sync.Mutex
	waiting map[T]*timingwheel.Delayed[T] // until feed adds the item; nil after shutdown
}

// NewDelayingQueue returns a queue that hands its items to ready, or to a new
// [workqueue.NewTyped] if ready is nil. ShutDown or ShutDownWithDrain ends its goroutine.
func NewDelayingQueue[T comparable](ready workqueue.TypedInterface[T]) *DelayingQueue[T] {
	if ready == nil {
		ready = workqueue.NewTyped[T]()
	}
	ctx, stop := context.WithCancel(context.Background())
	waiting := make(map[T]*timingwheel.Delayed[T])
	q := &DelayingQueue[T]{TypedInterface: ready, stop: stop, waiting: waiting}
	go q.feed(ctx)
	return q
}

// AddAfter adds item once d has passed, and at once if d is zero or negative. If item is waiting
// already, the earlier time counts. After shutdown AddAfter does nothing.
func (q *DelayingQueue[T]) AddAfter(item T, d time.Duration) {
	if d <= 0 {
		q.Add(item)
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting == nil {
		return
	}
	e, waits := q.waiting[item]
	if !waits {
		q.waiting[item] = q.delays.Push(item, d)
	} else if due, _ := e.Due(); time.Until(due) > d { // due is zero if feed is about to add the item
		q.delays.Reset(e, d)
	}
}

// Remove removes item if it waits, and returns whether it did: then AddAfter has not added it and
// will not. An item that is ready stays.
func (q *DelayingQueue[T]) Remove(item T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	removed := q.delays.Remove(q.waiting[item])
	if removed {
		delete(q.waiting, item)
	}
	return removed
}

// Waiting returns the number of items that wait. Those that are ready are not counted.
func (q *DelayingQueue[T]) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// ShutDown implements [workqueue.TypedInterface]. Items that wait are dropped.
func (q *DelayingQueue[T]) ShutDown() {
	q.drop()
	q.TypedInterface.ShutDown()
}

// ShutDownWithDrain implements [workqueue.TypedInterface]. Items that wait are dropped.
func (q *DelayingQueue[T]) ShutDownWithDrain() {
	q.drop()
	q.TypedInterface.ShutDownWithDrain()
}

func (q *DelayingQueue[T]) drop() {
	q.stop()
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range q.waiting {
		q.delays.Remove(e)
	}
	q.waiting = nil
}

// feed adds the items that have become due.
func (q *DelayingQueue[T]) feed(ctx context.Context) {
	for item := range q.delays.All(ctx) {
		q.mu.Lock()
		delete(q.waiting, item)
		q.mu.Unlock()
		q.Add(item)
	}
}
