package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// errIdle is the cause of the context of a request that was idle for too long.
var errIdle = errors.New("httpserver: no byte of the request or the answer was transferred for too long")

// idle is middleware that aborts a request if the handler neither reads a byte of the body nor
// writes a byte of the answer for d. A deadline must be long enough for the largest upload on the
// slowest connection. An idle timeout does not depend on the length of a request.
//
// The context of the request is then cancelled with cause errIdle, reads of the body and writes of
// the answer fail, and the connection closes when the handler returns. A handler that computes for
// d is aborted too, so idle is for requests that are limited by the connection of the client, and
// deadline for the others. They can be combined.
func idle(tw *timingwheel.TimingWheel, d time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		t := &transfer{ResponseWriter: w, body: r.Body, cancel: cancel}
		t.timer.Init(tw, d, t.cut)
		defer t.end()
		r = r.WithContext(ctx)
		r.Body = body{t}
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
	body   io.ReadCloser
	cancel context.CancelCauseFunc
	timer  timingwheel.FuncTimer

	mu    sync.Mutex
	ended bool // the handler has returned or hijacked the connection
	idle  bool // the timer fired before that
}

var _, _ = http.Flusher((*transfer)(nil)), http.Hijacker((*transfer)(nil))

// cut is the callback of the timer. A read or write of the handler in progress fails.
func (t *transfer) cut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	t.idle = true
	t.cancel(errIdle)
	control, now := http.NewResponseController(t.ResponseWriter), time.Now()
	_ = control.SetReadDeadline(now) // without support the handler waits for the client
	_ = control.SetWriteDeadline(now)
}

// end stops the timer and reports whether cut has aborted the request. Stop does not wait for cut,
// so mu orders the two.
func (t *transfer) end() (cut bool) {
	t.timer.Stop()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	return t.idle
}

// Write implements [http.ResponseWriter].
func (t *transfer) Write(p []byte) (int, error) {
	n, err := t.ResponseWriter.Write(p)
	if n > 0 {
		t.timer.Touch()
	}
	return n, err
}

// Flush implements [http.Flusher].
func (t *transfer) Flush() { _ = t.FlushError() }

// FlushError is called by [http.ResponseController].
func (t *transfer) FlushError() error {
	err := http.NewResponseController(t.ResponseWriter).Flush()
	if err == nil {
		t.timer.Touch()
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
type body struct{ t *transfer }

func (b body) Read(p []byte) (int, error) {
	n, err := b.t.body.Read(p)
	if n > 0 {
		b.t.timer.Touch()
	}
	return n, err
}

func (b body) Close() error { return b.t.body.Close() }
