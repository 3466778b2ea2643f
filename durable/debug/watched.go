package durabledebug

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/durable"
)

// An answer is good for maxAge. That is shorter than the second after which a page asks again, so
// one viewer always gets a new answer. An answer that took long is good for share times as long as
// it took, so that looking takes a small part of the store's time, but not for longer than oldest.
const (
	maxAge = 500 * time.Millisecond
	share  = 10
	oldest = 3 * time.Second
)

// watched is a queue that was added.
type watched struct {
	name string
	q    *durable.Queue

	mu      sync.Mutex
	current *look     // the last one, or the one under way; nil: there is none
	until   time.Time // when current is too old; zero while it is under way
	letters []DeadLetter
	dead    deadCounts // those that letters belong to; they are unknown if letters is nil
}

// look is one look at a queue.
type look struct {
	over  chan struct{} // closed when the rest is known
	queue *Queue        // nil if err is set
	err   error
}

// deadCounts are counts that change whenever the dead letters change.
type deadCounts struct {
	dead, bytes     int64
	buried, trimmed uint64
}

// ask returns the last answer or, if that is too old, waits for a new one until ctx ends. Callers at
// the same time share one look, even if the store ignores the context of the look.
func (w *watched) ask(ctx context.Context, timeout time.Duration, headers bool) (*Queue, error) {
	w.mu.Lock()
	if w.current == nil || !w.until.IsZero() && !time.Now().Before(w.until) {
		w.current, w.until = &look{over: make(chan struct{})}, time.Time{}
		go w.look(w.current, timeout, headers)
	}
	l := w.current
	w.mu.Unlock()
	select {
	case <-l.over:
		return l.queue, l.err
	case <-ctx.Done():
		return nil, fmt.Errorf("the store has not answered: %w", context.Cause(ctx))
	}
}

// look looks at the queue, and sets how long the answer is good.
func (w *watched) look(l *look, timeout time.Duration, headers bool) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	began := time.Now()
	queue, err := read(ctx, w.name, w.q)
	if err == nil {
		queue.DeadLetters, err = w.deadLetters(ctx, queue, headers)
	}
	if l.err = err; err == nil {
		l.queue = queue
	}
	close(l.over)
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current == l {
		w.until = now.Add(min(oldest, max(maxAge, share*now.Sub(began))))
	}
}

// deadLetters returns the first dead letters. It reads them only if the counts of the queue say
// that they have changed.
func (w *watched) deadLetters(ctx context.Context, q *Queue, headers bool) ([]DeadLetter, error) {
	now := deadCounts{q.Dead, q.DeadBytes, q.Counters["buried"], q.Counters["trimmed"]}
	w.mu.Lock()
	found, known := w.letters, w.letters != nil && w.dead == now
	w.mu.Unlock()
	if known {
		return found, nil
	}
	found, err := []DeadLetter{}, error(nil)
	if q.Dead > 0 {
		found, err = letters(ctx, w.q, headers)
	}
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.letters, w.dead = found, now
	return found, nil
}

// forget makes the next caller look anew, whatever is under way.
func (w *watched) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.current = nil
}

// document returns the JSON of the queue of that name or, without a name, of the first one.
func (h *Handler) document(ctx context.Context, name string) (int, *Document) {
	d := &Document{Schema: Schema, Actions: h.Actions, Queues: []Entry{}}
	for _, e := range h.queues.All() {
		d.Queues = append(d.Queues, Entry{e.Name})
	}
	chosen, ok := h.queues.Choose(name)
	if !ok {
		if name == "" {
			return http.StatusOK, d
		}
		d.Error = fmt.Sprintf("no queue %q", name)
		return http.StatusNotFound, d
	}
	ctx, cancel := context.WithTimeout(ctx, h.timeout())
	defer cancel()
	queue, err := chosen.Thing.ask(ctx, h.timeout(), h.Headers)
	if err != nil {
		d.Error = err.Error()
		return http.StatusServiceUnavailable, d
	}
	d.Queue = queue
	return http.StatusOK, d
}
