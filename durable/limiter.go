package durable

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"
)

// callLimiter limits the producers' calls that wait for the store or are in progress, in number and
// in bytes. A call without room waits, in order of arrival. A single call may exceed the
// limits if it is the only one. A nil limiter has room for all calls.
type callLimiter struct {
	calls, bytes int           // maximum
	maxWait      time.Duration // how long a call waits for room

	mu        sync.Mutex
	usedCalls int
	usedBytes int
	outages   int       // calls that have failed for outageAfter; if there are any, no call waits
	waiting   list.List // of *limiterWaiter
}

// outageAfter is how long the store must be unreachable before calls without room fail immediately.
const outageAfter = time.Second

type limiterWaiter struct {
	bytes int
	ready chan error // receives nil when a place was taken for the call
}

// acquire takes a place for a call. It waits for room until ctx ends, but no longer than maxWait.
func (l *callLimiter) acquire(ctx context.Context, bytes int) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	if l.waiting.Len() == 0 && l.fits(bytes) {
		l.take(bytes)
		l.mu.Unlock()
		return nil
	}
	if l.outages > 0 {
		defer l.mu.Unlock()
		return l.busy()
	}
	w := &limiterWaiter{bytes: bytes, ready: make(chan error, 1)}
	element := l.waiting.PushBack(w)
	l.mu.Unlock()
	timeout := time.NewTimer(l.maxWait)
	defer timeout.Stop()
	select {
	case err := <-w.ready:
		return err
	case <-ctx.Done():
		return l.giveUp(element, context.Cause(ctx))
	case <-timeout.C:
		return l.giveUp(element, nil)
	}
}

// tryAcquire takes a place for a call if there is room.
func (l *callLimiter) tryAcquire(bytes int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting.Len() > 0 || !l.fits(bytes) {
		return false
	}
	l.take(bytes)
	return true
}

// giveUp ends the wait of a call with err, or with ErrBusy if err is nil. If the call has received
// a place in the meantime, it keeps the place.
func (l *callLimiter) giveUp(element *list.Element, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := element.Value.(*limiterWaiter)
	select {
	case err := <-w.ready:
		return err
	default:
	}
	l.waiting.Remove(element)
	l.admit() // the call may have blocked smaller ones behind it
	if err == nil {
		err = l.busy()
	}
	return err
}

// fits reports whether there is room.
func (l *callLimiter) fits(bytes int) bool {
	return l.usedCalls == 0 || l.usedCalls < l.calls && l.usedBytes+bytes <= l.bytes
}

func (l *callLimiter) take(bytes int) {
	l.usedCalls++
	l.usedBytes += bytes
}

// release frees the place of a call.
func (l *callLimiter) release(bytes int) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.usedCalls--
	l.usedBytes -= bytes
	l.admit()
}

// admit takes places for waiting calls.
func (l *callLimiter) admit() {
	for e := l.waiting.Front(); e != nil; e = l.waiting.Front() {
		w := e.Value.(*limiterWaiter)
		if !l.fits(w.bytes) {
			return
		}
		l.take(w.bytes)
		l.waiting.Remove(e)
		w.ready <- nil
	}
}

// outage records that a call to the store has failed for outageAfter (n is 1), or that the call is
// over (n is -1).
func (l *callLimiter) outage(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.outages += n; l.outages == 0 {
		return
	}
	for e := l.waiting.Front(); e != nil; e = l.waiting.Front() {
		l.waiting.Remove(e)
		e.Value.(*limiterWaiter).ready <- l.busy()
	}
}

// busy returns the error of a call without room. mu is held.
func (l *callLimiter) busy() error {
	return fmt.Errorf("%w: %d calls with %d bytes; there must be at most %d calls and %d bytes (Options.MaxWaiting, MaxWaitingBytes); this call was not sent",
		ErrBusy, l.usedCalls, l.usedBytes, l.calls, l.bytes)
}
