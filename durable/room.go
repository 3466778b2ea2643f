package durable

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"
)

// room limits the calls of producers that wait for the store or are in progress, in number and in
// bytes. A call without room waits, in the order of arrival. A single call may be larger than the
// room if it is the only one.
type room struct {
	calls, bytes int           // maximum
	maxWait      time.Duration // how long a call waits for room

	mu        sync.Mutex
	usedCalls int
	usedBytes int
	outages   int       // calls that have failed for outageAfter; if there are any, no call waits
	waiting   list.List // of *roomWaiter
}

// outageAfter is how long the store must be unreachable before calls without room fail immediately.
const outageAfter = time.Second

type roomWaiter struct {
	bytes int
	ready chan error // receives nil when a place was taken for the call
}

// enter takes a place for a call. It waits for room until ctx ends, but no longer than maxWait.
func (r *room) enter(ctx context.Context, bytes int) error {
	r.mu.Lock()
	if r.waiting.Len() == 0 && r.fits(bytes) {
		r.take(bytes)
		r.mu.Unlock()
		return nil
	}
	if r.outages > 0 {
		defer r.mu.Unlock()
		return r.busy()
	}
	w := &roomWaiter{bytes: bytes, ready: make(chan error, 1)}
	element := r.waiting.PushBack(w)
	r.mu.Unlock()
	timeout := time.NewTimer(r.maxWait)
	defer timeout.Stop()
	select {
	case err := <-w.ready:
		return err
	case <-ctx.Done():
		return r.giveUp(element, context.Cause(ctx))
	case <-timeout.C:
		return r.giveUp(element, nil)
	}
}

// tryEnter takes a place for a call if there is room.
func (r *room) tryEnter(bytes int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting.Len() > 0 || !r.fits(bytes) {
		return false
	}
	r.take(bytes)
	return true
}

// giveUp ends the wait of a call with err, or with ErrBusy if err is nil. If the call has received
// a place in the meantime, it keeps the place.
func (r *room) giveUp(element *list.Element, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := element.Value.(*roomWaiter)
	select {
	case err := <-w.ready:
		return err
	default:
	}
	r.waiting.Remove(element)
	r.admit() // the call may have blocked smaller ones behind it
	if err == nil {
		err = r.busy()
	}
	return err
}

// fits reports whether there is room.
func (r *room) fits(bytes int) bool {
	return r.usedCalls == 0 || r.usedCalls < r.calls && r.usedBytes+bytes <= r.bytes
}

func (r *room) take(bytes int) {
	r.usedCalls++
	r.usedBytes += bytes
}

// leave frees the place of a call.
func (r *room) leave(bytes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.usedCalls--
	r.usedBytes -= bytes
	r.admit()
}

// admit takes places for waiting calls.
func (r *room) admit() {
	for e := r.waiting.Front(); e != nil; e = r.waiting.Front() {
		w := e.Value.(*roomWaiter)
		if !r.fits(w.bytes) {
			return
		}
		r.take(w.bytes)
		r.waiting.Remove(e)
		w.ready <- nil
	}
}

// outage records that a call to the store has failed for outageAfter (n is 1), or that the call is
// over (n is -1).
func (r *room) outage(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.outages += n; r.outages == 0 {
		return
	}
	for e := r.waiting.Front(); e != nil; e = r.waiting.Front() {
		r.waiting.Remove(e)
		e.Value.(*roomWaiter).ready <- r.busy()
	}
}

// busy returns the error of a call without room. mu is held.
func (r *room) busy() error {
	return fmt.Errorf("%w: %d calls with %d bytes; up to %d calls and %d bytes are accepted (Options.MaxWaiting, MaxWaitingBytes); this call was not sent",
		ErrBusy, r.usedCalls, r.usedBytes, r.calls, r.bytes)
}
