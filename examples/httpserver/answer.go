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

// maxBuffered is the largest number of bytes that are buffered until the handler returns.
const maxBuffered = 64 << 10

// state is the state of an answer.
type state uint8

const (
	buffered  state = iota // nothing was sent; the deadline turns it into a 503
	streaming              // a part was sent; the deadline cuts the connection
	refused                // the 503 was sent
	cutOff                 // the deadline passed during streaming
	hijacked               // the handler owns the connection
	ended                  // the handler has returned
)

// answer is the ResponseWriter of the handler. The handler and the deadline write to the underlying
// ResponseWriter from two goroutines, with mu held, and state says what may still be written. The
// handler has its own header map, because it changes the headers without a lock.
type answer struct {
	w       http.ResponseWriter
	header  http.Header
	message string
	closes  bool // HTTP/1: the connection serves only this request at a time
	stream  stream

	mu    sync.Mutex
	state state
	code  int // 0: not set
	body  []byte
}

var (
	_ http.Flusher  = (*answer)(nil)
	_ http.Hijacker = (*answer)(nil)
)

// Header implements [http.ResponseWriter].
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements [http.ResponseWriter]. The first final code counts. Informational codes
// are sent immediately.
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
		clear(h) // the answer may still become a 503, which has other headers
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
	if a.state == buffered && len(a.body)+len(p) <= maxBuffered {
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

// FlushError is called by [http.ResponseController].
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

// Hijack implements [http.Hijacker]. Afterwards the deadline only ends the context.
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
	// Also resets the deadlines of the connection.
	conn, rw, err := http.NewResponseController(a.w).Hijack()
	switch {
	case err == nil:
		a.state = hijacked
	case cut:
		a.state = cutOff
	}
	return conn, rw, err
}

// Unwrap gives [http.ResponseController] access to the deadlines of the connection and to full
// duplex.
func (a *answer) Unwrap() http.ResponseWriter { return a.w }

// errLocked returns the error of a write by the handler, or nil if it may write.
func (a *answer) errLocked() error {
	switch a.state {
	case buffered, streaming:
		return nil
	case hijacked:
		return http.ErrHijacked
	default:
		return http.ErrHandlerTimeout
	}
}

// streamLocked sends the buffer and begins streaming.
func (a *answer) streamLocked() error {
	if !a.stream.begin() {
		return http.ErrHandlerTimeout // expire is waiting for the lock
	}
	return a.sendLocked()
}

// sendLocked sends the header and the buffer. Afterwards the answer cannot become a 503.
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

// expire is called when the context is done. If the reason is not the deadline, the client has
// disconnected and needs no answer.
func (a *answer) expire(err error) {
	if !errors.Is(err, context.DeadlineExceeded) {
		return
	}
	a.stream.expire(a.w)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch a.state {
	case buffered:
		if a.closes {
			a.w.Header().Set("Connection", "close") // a next request would wait for the handler
		}
		a.refuseLocked()
		// Send it now and not when the handler returns.
		_ = http.NewResponseController(a.w).Flush()
	case streaming:
		a.state = cutOff
	}
}

// refuseLocked writes the 503, without the headers of the handler, which describe another answer.
func (a *answer) refuseLocked() {
	a.state, a.body = refused, nil
	h := a.w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(a.message)))
	a.w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = io.WriteString(a.w, a.message) // after an error the client sees no answer
}

// finish sends the answer of a handler that has returned.
func (a *answer) finish(late bool) {
	late = a.stream.end() || late
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.state == buffered && late:
		a.refuseLocked()
	case a.state == buffered:
		_ = a.sendLocked()
	case a.state == cutOff, a.state == streaming && late:
		panic(http.ErrAbortHandler) // the server closes the connection and logs nothing
	case a.state == streaming:
		maps.Copy(a.w.Header(), a.header) // trailers, set after the body
	}
	a.state = ended
}

// abandon ends the answer after a panic of the handler.
func (a *answer) abandon() {
	a.stream.end()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state = ended
}
