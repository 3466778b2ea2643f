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

// errIdle is the cause of the end of a request's context when no byte has come or gone for too
// long.
var errIdle = errors.New("httpserver: no byte of the request or the answer has moved for too long")

// idle is middleware that breaks off each request in which nothing moves for d: the handler reads
// no byte of the body and writes none of the answer. A deadline has to be long enough for the
// largest upload on the slowest line. An idle timeout need not know how long a request takes.
//
// The request's context then ends with errIdle as its cause, reads of the body and writes of the
// answer fail, and the connection closes when the handler returns. A handler that only computes
// moves nothing either: d is for requests that are limited by the client's line, and deadline for
// the others. The two can be combined.
//
// The timer is a field, so it costs no allocation of its own. Each read and write touches it, which
// is one look at the clock and one atomic operation, whatever the number of requests.
func idle(tw *timingwheel.TimingWheel, d time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		m := &motion{ResponseWriter: w, body: r.Body, cancel: cancel}
		m.timer.Init(tw, d, m.cut)
		defer m.end()
		r = r.WithContext(ctx)
		r.Body = body{m}
		next.ServeHTTP(m, r)
		if m.end() {
			panic(http.ErrAbortHandler) // the client must not take a part of an answer for the whole
		}
	})
}

// motion is the ResponseWriter that the handler sees, and the timer that everything that moves
// touches.
type motion struct {
	http.ResponseWriter
	body   io.ReadCloser
	cancel context.CancelCauseFunc
	timer  timingwheel.FuncTimer

	mu    sync.Mutex
	ended bool // the handler has returned or hijacked: the connection is not ours any more
	idle  bool // the timer has fired before that
}

var (
	_ http.Flusher  = (*motion)(nil)
	_ http.Hijacker = (*motion)(nil)
)

// cut runs when the timer fires. The handler may be in the middle of a read or a write, which
// fails.
func (m *motion) cut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return
	}
	m.idle = true
	m.cancel(errIdle)
	control, now := http.NewResponseController(m.ResponseWriter), time.Now()
	_ = control.SetReadDeadline(now) // a ResponseWriter that cannot do it waits for the client
	_ = control.SetWriteDeadline(now)
}

// end stops the timer, and reports whether it has cut the request. Stop does not wait for cut, so
// mu decides which of the two came first.
func (m *motion) end() (cut bool) {
	m.timer.Stop()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = true
	return m.idle
}

// Write implements [http.ResponseWriter].
func (m *motion) Write(p []byte) (int, error) {
	n, err := m.ResponseWriter.Write(p)
	if n > 0 {
		m.timer.Touch()
	}
	return n, err
}

// Flush implements [http.Flusher].
func (m *motion) Flush() { _ = m.FlushError() }

// FlushError is what [http.ResponseController] calls.
func (m *motion) FlushError() error {
	err := http.NewResponseController(m.ResponseWriter).Flush()
	if err == nil {
		m.timer.Touch()
	}
	return err
}

// Hijack implements [http.Hijacker]. From then on the handler has to look after the connection.
func (m *motion) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if m.end() {
		return nil, nil, errIdle
	}
	return http.NewResponseController(m.ResponseWriter).Hijack()
}

// Unwrap gives [http.ResponseController] the deadlines of the connection and full duplex.
func (m *motion) Unwrap() http.ResponseWriter { return m.ResponseWriter }

// body is the body of a request whose reads are noted.
type body struct{ m *motion }

func (b body) Read(p []byte) (int, error) {
	n, err := b.m.body.Read(p)
	if n > 0 {
		b.m.timer.Touch()
	}
	return n, err
}

func (b body) Close() error { return b.m.body.Close() }
