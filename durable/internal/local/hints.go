package local

import (
	"context"
	"sync"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// HintBuffer is the number of hints that are buffered for each watcher.
const HintBuffer = 256

// Hints sends hints to all watchers of a queue. Callers may hold their own locks. The zero value is
// ready to use.
type Hints struct {
	mu       sync.Mutex
	watchers map[chan driver.Hint]struct{}
}

// Watch adds a watcher. When ctx ends, it removes the watcher and closes the channel.
func (h *Hints) Watch(ctx context.Context) <-chan driver.Hint {
	c := make(chan driver.Hint, HintBuffer)
	h.mu.Lock()
	if h.watchers == nil {
		h.watchers = make(map[chan driver.Hint]struct{})
	}
	h.watchers[c] = struct{}{}
	h.mu.Unlock()
	context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.watchers, c)
		close(c) // under the lock, so that Send no longer uses c
	})
	return c
}

// Send sends a hint to each watcher. It never blocks: a watcher with a full buffer loses the hint.
func (h *Hints) Send(hint driver.Hint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.watchers {
		select {
		case c <- hint:
		default:
		}
	}
}

// Stop removes all watchers when the store is closed. Their channels are closed when their contexts
// end.
func (h *Hints) Stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers = nil
}
