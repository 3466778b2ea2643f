package main

import (
	"net/http"
	"sync"
	"time"
)

// stream is the part of an answer that the deadline can access without the lock of the answer. The
// handler holds that lock during a write, which blocks as long as the client does not read.
type stream struct {
	mu      sync.Mutex
	open    bool // the handler may be writing
	expired bool
}

// begin is called before a part of the answer is sent. It reports whether the deadline is ahead.
func (s *stream) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = s.open || !s.expired
	return !s.expired
}

// end is called after the last write of the handler through the answer. It reports whether the
// deadline has cut the stream.
func (s *stream) end() (cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cut = s.open && s.expired
	s.open = false
	return cut
}

// expire is called at the deadline. A write in progress fails.
func (s *stream) expire(w http.ResponseWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expired = true
	if s.open {
		// Without support the write waits for the client.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now())
	}
}
