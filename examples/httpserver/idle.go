package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// errIdle is the cause of the context of a request that was idle for too long.
var errIdle = errors.New("httpserver: no byte of the request or the answer was transferred for too long")

// idle is middleware that aborts a request if the handler neither reads a byte of the body nor
// writes a byte of the answer for d. After a stall of the process, bytes may wait in the socket
// although d has passed, so the handler has another quarter of d to read them. A deadline must be
// long enough for the largest upload on the slowest connection. An idle timeout does not depend on
// the length of a request.
//
// The context of the request is then cancelled with cause errIdle, reads of the body and writes of
// the answer fail, and the connection closes when the handler returns. A handler that computes for
// too long is aborted too, so idle is for requests that are limited by the client's connection, and
// deadline for the others. They can be combined.
func idle(tw *timingwheel.TimingWheel, d time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		t := &transfer{ResponseWriter: w, cancel: cancel, timeout: d}
		t.timer.Init(tw, d, t.expire)
		defer t.end()
		r = r.WithContext(ctx)
		r.Body = body{r.Body, t}
		next.ServeHTTP(t, r)
		if t.end() {
			// So that the client does not take a part of an answer for all of it.
			panic(http.ErrAbortHandler)
		}
	})
}

// transfer is the ResponseWriter of the handler, with the idle timer that reads and writes touch.
type transfer struct {
	http.ResponseWriter
	cancel  context.CancelCauseFunc
	timeout time.Duration
	timer   timingwheel.FuncTimer
	late    atomic.Bool // the timeout has passed, and the timer is armed for another quarter of it

	mu    sync.Mutex // held to arm the timer
	ended bool       // the handler has returned or hijacked the connection
	idle  bool       // expire has aborted the request before that
}

var _, _ = http.Flusher((*transfer)(nil)), http.Hijacker((*transfer)(nil))

// touch starts the idle timeout again after a read or write that transferred bytes, and returns the
// results of that call. Reads and writes may be concurrent.
func (t *transfer) touch(n int, err error) (int, error) {
	if n == 0 || t.timer.Touch() && !t.late.Load() {
		return n, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended && !t.idle {
		t.late.Store(false)
		t.timer.Reset(t.timeout)
	}
	return n, err
}

// expire is the callback of the timer. A read or write of the handler in progress fails if expire
// aborts the request.
func (t *transfer) expire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, armed := t.timer.Deadline(); armed || t.ended { // since the timer fired
		return
	}
	if !t.late.Swap(true) {
		t.timer.Reset(t.timeout / 4)
		return
	}
	t.idle = true
	t.cancel(errIdle)
	control, now := http.NewResponseController(t.ResponseWriter), time.Now()
	_ = control.SetReadDeadline(now) // without support the handler waits for the client
	_ = control.SetWriteDeadline(now)
}

// end stops the timer and reports whether expire has aborted the request. Stop does not wait for
// expire, so mu orders the two.
func (t *transfer) end() (aborted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer.Stop()
	t.ended = true
	return t.idle
}

// Write implements [http.ResponseWriter].
func (t *transfer) Write(p []byte) (int, error) { return t.touch(t.ResponseWriter.Write(p)) }

// Flush implements [http.Flusher].
func (t *transfer) Flush() { _ = t.FlushError() }

// FlushError is called by [http.ResponseController].
func (t *transfer) FlushError() error {
	err := http.NewResponseController(t.ResponseWriter).Flush()
	if err == nil {
		_, err = t.touch(1, nil)
	}
	return err
}

// Hijack implements [http.Hijacker]. Afterwards the handler is responsible for timeouts of the
// connection.
func (t *transfer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if t.end() {
		return nil, nil, errIdle
	}
	return http.NewResponseController(t.ResponseWriter).Hijack()
}

// Unwrap gives [http.ResponseController] access to the deadlines of the connection and to full
// duplex.
func (t *transfer) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// body is the body of a request. Its reads touch the timer.
type body struct {
	io.ReadCloser
	t *transfer
}

func (b body) Read(p []byte) (int, error) { return b.t.touch(b.ReadCloser.Read(p)) }
