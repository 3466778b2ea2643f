package main

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// connection is a ResponseWriter that records whether a write deadline was set.
type connection struct {
	*httptest.ResponseRecorder
	cut bool
}

func (c *connection) SetWriteDeadline(time.Time) error { c.cut = true; return nil }

func (c *connection) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil }

func newConnection() (*connection, *answer) {
	c := &connection{ResponseRecorder: httptest.NewRecorder()}
	return c, &answer{w: c, header: make(http.Header), message: refusal}
}

func TestDeadlineCutsOnlyStreams(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		handler func(*answer)
		cut     bool
	}{
		"nothing sent":      {func(*answer) {}, false},
		"buffered":          {func(a *answer) { a.Write([]byte("x")) }, false},
		"large":             {func(a *answer) { a.Write(make([]byte, maxBuffered+1)) }, true},
		"flushed":           {(*answer).Flush, true},
		"hijacked":          {func(a *answer) { a.Flush(); a.Hijack() }, false},
		"ended":             {func(a *answer) { a.Flush(); a.finish(false) }, false},
		"ended by a panic":  {func(a *answer) { a.Flush(); a.abandon() }, false},
		"ended and not cut": {func(a *answer) { a.finish(false) }, false},
	} {
		c, a := newConnection()
		tt.handler(a)
		a.expire(context.DeadlineExceeded)
		assert.Equal(t, tt.cut, c.cut, name)
		_, err := a.Write([]byte("late"))
		assert.Error(t, err, name)
	}
}

// After a failed write the answer is partial, even if the handler returns before expire continues.
func TestCutStreamIsAborted(t *testing.T) {
	t.Parallel()
	_, a := newConnection()
	a.Flush()
	a.stream.expire(a.w)
	assert.PanicsWithValue(t, http.ErrAbortHandler, func() { a.finish(false) })
}
