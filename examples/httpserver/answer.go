package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"sync"
)

// maxHeld is how many bytes of an answer are held back until the handler returns.
const maxHeld = 64 << 10

// state is how far an answer has come.
type state uint8

const (
	held      state = iota // nothing was sent; the deadline makes it a 503
	streaming              // a part was sent; the deadline cuts it off
	refused                // the 503 was sent
	cutOff                 // the deadline has passed while it was streaming
	hijacked               // the handler has the connection
	ended                  // the handler has returned
)

// answer is the ResponseWriter that the handler sees. The handler and the deadline write to the one
// below it from two goroutines: whoever holds mu may, and state says what is left to be said. The
// handler has a header map of its own, as it may change that without a lock.
type answer struct {
	w       http.ResponseWriter
	header  http.Header
	message string
	closes  bool // the connection is the request's own: HTTP/1
	stream  stream

	mu    sync.Mutex
	state state
	code  int // 0: not set yet
	body  []byte
}

var (
	_ http.Flusher  = (*answer)(nil)
	_ http.Hijacker = (*answer)(nil)
)

// Header implements [http.ResponseWriter].
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements [http.ResponseWriter]. Of several final codes the first counts;
// informational ones are sent at once.
func (a *answer) WriteHeader(code int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.state > streaming || a.code != 0:
	case code >= 100 && code < 200 && code != http.StatusSwitchingProtocols:
		h := a.w.Header()
		before := h.Clone()
		maps.Copy(h, a.header)
		a.w.WriteHeader(code)
		clear(h) // the answer may become a 503 still, which has other headers
		maps.Copy(h, before)
	default:
		a.code = code
	}
}

// Write implements [http.ResponseWriter].
func (a *answer) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.errLocked(); err != nil {
		return 0, err
	}
	if a.code == 0 {
		a.code = http.StatusOK
	}
	if a.state == held && len(a.body)+len(p) <= maxHeld {
		a.body = append(a.body, p...)
		return len(p), nil
	}
	if err := a.streamLocked(); err != nil {
		return 0, err
	}
	return a.w.Write(p)
}

// Flush implements [http.Flusher].
func (a *answer) Flush() { _ = a.FlushError() }

// FlushError is what [http.ResponseController] calls.
func (a *answer) FlushError() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.errLocked(); err != nil {
		return err
	}
	if a.code == 0 {
		a.code = http.StatusOK
	}
	if err := a.streamLocked(); err != nil {
		return err
	}
	return http.NewResponseController(a.w).Flush()
}

// Hijack implements [http.Hijacker]. From then on the deadline ends the context only.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.errLocked(); err != nil {
		return nil, nil, err
	}
	if a.code != 0 {
		if err := a.sendLocked(); err != nil {
			return nil, nil, err
		}
	}
	cut := a.stream.end()
	conn, rw, err := http.NewResponseController(a.w).Hijack() // which takes back deadlines of the connection
	switch {
	case err == nil:
		a.state = hijacked
	case cut:
		a.state = cutOff
	}
	return conn, rw, err
}

// Unwrap gives [http.ResponseController] the read and write deadlines of the connection and full
// duplex.
func (a *answer) Unwrap() http.ResponseWriter { return a.w }

// errLocked is why the handler must not write any more, nil where it may.
func (a *answer) errLocked() error {
	switch a.state {
	case held, streaming:
		return nil
	case hijacked:
		return http.ErrHijacked
	default:
		return http.ErrHandlerTimeout
	}
}

// streamLocked sends what was held back, for a handler that goes on writing.
func (a *answer) streamLocked() error {
	if !a.stream.begin() {
		return http.ErrHandlerTimeout // expire waits for the lock
	}
	return a.sendLocked()
}

// sendLocked sends what was held back; from then on the answer cannot be taken back.
func (a *answer) sendLocked() error {
	if a.state == streaming {
		return nil
	}
	a.state = streaming
	maps.Copy(a.w.Header(), a.header)
	if a.code != 0 {
		a.w.WriteHeader(a.code)
	}
	body := a.body
	a.body = nil
	if len(body) == 0 {
		return nil
	}
	_, err := a.w.Write(body)
	return err
}

// expire is called when the context has ended. Where that was not the deadline the client has gone,
// and nobody waits for an answer.
func (a *answer) expire(err error) {
	if !errors.Is(err, context.DeadlineExceeded) {
		return
	}
	a.stream.expire(a.w)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch a.state {
	case held:
		if a.closes {
			a.w.Header().Set("Connection", "close") // the handler is still at it, so the next request would wait
		}
		a.refuseLocked()
		// The client is to have all of it now, not when the handler returns.
		_ = http.NewResponseController(a.w).Flush()
	case streaming:
		a.state = cutOff
	}
}

// refuseLocked writes the 503. Of the handler's headers nothing must be in it: they describe
// another answer.
func (a *answer) refuseLocked() {
	a.state, a.body = refused, nil
	h := a.w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(a.message)))
	a.w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = io.WriteString(a.w, a.message) // who does not get it sees no answer at all
}

// finish sends the answer of a handler that has returned, in time or late.
func (a *answer) finish(late bool) {
	late = a.stream.end() || late
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.state == held && late:
		a.refuseLocked()
	case a.state == held:
		_ = a.sendLocked()
	case a.state == cutOff, a.state == streaming && late:
		panic(http.ErrAbortHandler) // the server then breaks the connection off, and logs nothing
	case a.state == streaming:
		maps.Copy(a.w.Header(), a.header) // trailers, which are set after the body
	}
	a.state = ended
}

// abandon ends the answer where finish has not.
func (a *answer) abandon() {
	a.stream.end()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state = ended
}
