package main

import (
	"net/http"
	"sync"
	"time"
)

// stream is what the deadline may know of an answer without the answer's lock. The handler holds
// that one while it writes, and a client that does not read makes that last for ever.
type stream struct {
	mu      sync.Mutex
	open    bool // the handler may be in the middle of a write
	expired bool
}

// begin is called before a part of the answer is sent. It is false where the deadline has come
// first.
func (s *stream) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = s.open || !s.expired
	return !s.expired
}

// end is called when the handler will not write any more, or not through the answer. It reports
// whether the deadline has cut a stream off.
func (s *stream) end() (cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cut = s.open && s.expired
	s.open = false
	return cut
}

// expire is called when the deadline has passed. A write that is under way fails.
func (s *stream) expire(w http.ResponseWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expired = true
	if s.open {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now()) // what cannot do it waits for the client
	}
}
