package timingwheel

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

// countedFunc is a function whose calls are counted, so that [FuncTimer.StopWait] can wait for
// them. It is part of a FuncTimer.
type countedFunc struct {
	f func()

	// calls counts each claim from before the claim until its call of f has ended. So if a Stop
	// fails because of a claim, calls has counted that claim. The bit awaited is set too while
	// callWaits has a channel for the function.
	calls   atomic.Uint32
	changes atomic.Uint32 // see FuncTimer; it is here because it takes no memory here
}

const awaited = 1 << 31

// callWaits has the channels on which calls to StopWait wait.
type callWaits struct {
	mu    sync.Mutex
	ended map[*countedFunc]chan struct{}
}

// wait returns a channel that is closed when no call of f is under way, or nil if none is under way
// now.
func (c *callWaits) wait(f *countedFunc) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := f.calls.Load(); n&awaited == 0; n = f.calls.Load() {
		if n == 0 {
			return nil
		}
		if f.calls.CompareAndSwap(n, n|awaited) {
			if c.ended == nil {
				c.ended = make(map[*countedFunc]chan struct{})
			}
			c.ended[f] = make(chan struct{})
		}
	}
	return c.ended[f]
}

// callEnded counts the end of a call of f, or a claim that has failed.
func (c *callWaits) callEnded(f *countedFunc) {
	if f.calls.Add(^uint32(0)) != awaited {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.calls.CompareAndSwap(awaited, 0) { // else another call has begun
		close(c.ended[f])
		if delete(c.ended, f); len(c.ended) == 0 {
			c.ended = nil // a map does not shrink
		}
	}
}

// countedFuncs holds the functions of a shard's pending FuncTimers, by record. A worker looks up
// the function before it claims a timer, so it may read the entry of another timer. An entry is
// written under armMu when a timer is armed, and cleared by the goroutine that has stopped or
// claimed the timer.
type countedFuncs struct {
	waits *callWaits // of the wheel
	pages arena.Table[countedPage]
	open  int // number of pages; armMu guards it
}

type countedPage [arena.PageSize]atomic.Pointer[countedFunc]

// at returns the function of record i, or nil if the record has none.
func (c *countedFuncs) at(i uint32) *countedFunc {
	page := c.pages.At(i >> arena.PageShift)
	if page == nil {
		return nil
	}
	return page[i&arena.PageMask].Load()
}

// set makes f the function of record i. armMu is held.
func (c *countedFuncs) set(i uint32, f *countedFunc) {
	p := i >> arena.PageShift
	page := c.pages.At(p)
	if page == nil {
		page = new(countedPage)
		c.pages.Set(int(p), page)
		c.open++
	}
	page[i&arena.PageMask].Store(f)
}

// clear removes the function of record i.
func (c *countedFuncs) clear(i uint32) {
	if page := c.pages.At(i >> arena.PageShift); page != nil { // nil if the wheel is stopped
		page[i&arena.PageMask].Store(nil)
	}
}

// closePage drops a page of entries, whose records are free. armMu is held.
func (c *countedFuncs) closePage(p int) {
	if c.pages.At(uint32(p)) != nil {
		c.pages.Set(p, nil)
		c.open--
	}
}

// closeAll drops all pages. armMu is held.
func (c *countedFuncs) closeAll() {
	c.pages.Clear()
	c.open = 0
}

// bytes returns the memory of the table. armMu is held.
func (c *countedFuncs) bytes() uintptr {
	return uintptr(c.open)*unsafe.Sizeof(countedPage{}) + uintptr(c.pages.Cap())*unsafe.Sizeof(uintptr(0))
}

// countCall returns the function of a record whose calls are counted, or nil. It counts the call
// unless Flush has counted it.
func (s *shard) countCall(i uint32, w arena.Word) *countedFunc {
	if !w.Is(arena.Counted) {
		return nil
	}
	f := s.countedFuncs.at(i) // nil, or another timer's, if the claim is about to fail
	if f != nil && w.Kind() == arena.Placed {
		f.calls.Add(1)
	}
	return f
}

// funcTimerState is the state that an engine keeps for its FuncTimers.
type funcTimerState struct {
	replaced  atomic.Uint64 // timers that FuncTimer.rearm has stopped to arm another one
	planWaits atomic.Uint64 // timers of plans that have fired and were armed again without a run
	flushes   atomic.Uint32 // Flushes that have begun
	waits     callWaits
}
