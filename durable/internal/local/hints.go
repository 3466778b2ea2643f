package local

import (
	"context"
	"sync"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// HintBuffer is the number of hints that wait for a watcher.
const HintBuffer = 256

// Hints hands hints to all watchers of a queue. Its lock is taken under that of a partition. The
// zero value is ready.
type Hints struct {
	mu       sync.Mutex
	watchers map[chan driver.Hint]struct{}
}

// Watch makes a watcher, which ends with ctx.
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
		close(c) // under the lock: Send does not see c any more
	})
	return c
}

// Send never blocks: a watcher that does not keep up loses the hint.
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

// Stop ends the hints of a store that is closed. The channels are closed when their contexts end,
// as for any watcher.
func (h *Hints) Stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers = nil
}
