package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/examples/internal/programtest"
)

// cutAfter is when a request is aborted whose idle timeout is a second.
const cutAfter = 1250 * time.Millisecond

// exchange serves one connection with an idle timeout of a second, in a synctest bubble.
func exchange(t *testing.T, handler http.HandlerFunc, client func(c net.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		tw, err := timingwheel.New(timingwheel.Options{})
		require.NoError(t, err)
		defer tw.Stop()
		l := programtest.NewListener()
		server := &http.Server{Handler: idle(tw, time.Second, handler), ReadHeaderTimeout: time.Hour}
		go server.Serve(l)
		ours, theirs := net.Pipe()
		require.NoError(t, l.Connect(t.Context(), theirs))
		client(ours)
		require.NoError(t, ours.Close())
		require.NoError(t, server.Shutdown(context.Background()))
		assert.Zero(t, tw.Len(), "pending timers at the end")
	})
}

const upload = "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 10\r\n\r\n"

func TestSlowUploadIsNotIdle(t *testing.T) {
	t.Parallel()
	exchange(t, func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		assert.NoError(t, r.Context().Err())
		w.Write(data)
	}, func(c net.Conn) {
		begin := time.Now()
		io.WriteString(c, upload)
		for range 10 {
			time.Sleep(time.Second - 2*time.Millisecond)
			io.WriteString(c, "x")
		}
		answer, err := io.ReadAll(c)
		assert.NoError(t, err)
		assert.Contains(t, string(answer), "xxxxxxxxxx")
		assert.Greater(t, time.Since(begin), 9*time.Second)
	})
}

func TestIdleUploadIsCut(t *testing.T) {
	t.Parallel()
	exchange(t, func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.ErrorIs(t, context.Cause(r.Context()), errIdle)
		_, err = io.WriteString(w, strings.Repeat("x", 1<<20))
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
	}, func(c net.Conn) {
		io.WriteString(c, upload)
		time.Sleep(700 * time.Millisecond)
		io.WriteString(c, "xx")
		begin := time.Now()
		answer, err := io.ReadAll(c)
		assert.NoError(t, err)
		assert.Empty(t, answer)
		assert.InDelta(t, cutAfter, time.Since(begin), float64(2*time.Millisecond), "each timer is at most a tick late")
		assert.GreaterOrEqual(t, time.Since(begin), cutAfter)
	})
}

// When the process runs again after a stall, the timeout has passed and bytes wait in the socket.
// The handler reads them, and the timeout begins again.
func TestUploadWhoseBytesWaitIsNotCut(t *testing.T) {
	t.Parallel()
	const timeout = time.Minute
	tw, err := timingwheel.New(timingwheel.Options{Manual: true})
	require.NoError(t, err)
	defer tw.Stop()
	start := tw.Now()
	read := make(chan error, 5) // one for each read
	s := httptest.NewServer(idle(tw, timeout, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var err error
		for err == nil {
			_, err = r.Body.Read(make([]byte, 1))
			read <- err
		}
	})))
	defer s.Close()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, upload+"x")
	require.NoError(t, err)
	require.NoError(t, <-read)

	for stall := range time.Duration(3) {
		require.Equal(t, 1, tw.Advance(start.Add((stall+1)*timeout)))
		_, err = io.WriteString(c, "x")
		require.NoError(t, err)
		require.NoError(t, <-read)
	}
	require.Zero(t, tw.Advance(start.Add(4*timeout-time.Millisecond)))
	require.Equal(t, 1, tw.Advance(start.Add(4*timeout)))
	require.Zero(t, tw.Advance(start.Add(4*timeout+timeout/4-time.Millisecond)))
	require.Equal(t, 1, tw.Advance(start.Add(4*timeout+timeout/4)))
	require.ErrorIs(t, <-read, os.ErrDeadlineExceeded)
}

func TestSlowDownloadIsNotIdle(t *testing.T) {
	t.Parallel()
	exchange(t, func(w http.ResponseWriter, r *http.Request) {
		for range 10 {
			time.Sleep(900 * time.Millisecond) // a slow source
			_, err := io.WriteString(w, "x")
			assert.NoError(t, err)
		}
		for range 10 {
			time.Sleep(900 * time.Millisecond)
			assert.NoError(t, http.NewResponseController(w).Flush())
		}
		assert.NoError(t, r.Context().Err())
	}, func(c net.Conn) {
		go io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
		answer, err := io.ReadAll(c)
		assert.NoError(t, err)
		assert.True(t, strings.HasSuffix(string(answer), "\r\n\r\nxxxxxxxxxx"), "%q", answer)
	})
}

func TestClientThatDoesNotReadIsCut(t *testing.T) {
	t.Parallel()
	exchange(t, func(w http.ResponseWriter, r *http.Request) {
		begin := time.Now()
		_, err := io.WriteString(w, strings.Repeat("x", 1<<20))
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.ErrorIs(t, context.Cause(r.Context()), errIdle)
		assert.InDelta(t, cutAfter, time.Since(begin), float64(2*time.Millisecond))
	}, func(c net.Conn) {
		io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
		time.Sleep(time.Minute)
	})
}

// A partial answer must not look complete, even if the handler has not noticed the cut.
func TestCutAnswerIsAborted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tw, err := timingwheel.New(timingwheel.Options{})
		require.NoError(t, err)
		defer tw.Stop()
		for _, took := range []time.Duration{time.Millisecond, time.Minute} {
			c := &connection{ResponseRecorder: httptest.NewRecorder()}
			serve := func() {
				idle(tw, time.Second, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					io.WriteString(w, "half")
					time.Sleep(took)
				})).ServeHTTP(c, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
			}
			if took == time.Minute {
				assert.PanicsWithValue(t, http.ErrAbortHandler, serve)
			} else {
				assert.NotPanics(t, serve)
			}
			assert.Equal(t, took == time.Minute, c.cut)
		}
	})
}

func TestHijackedConnectionIsNotCut(t *testing.T) {
	t.Parallel()
	exchange(t, func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if !assert.NoError(t, err) {
			return
		}
		defer c.Close()
		time.Sleep(time.Minute)
		_, err = io.WriteString(c, "late")
		assert.NoError(t, err)
	}, func(c net.Conn) {
		go io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
		answer, err := io.ReadAll(c)
		assert.NoError(t, err)
		assert.Equal(t, "late", string(answer))
	})
}

// The timer may fire while the handler returns. After end the connection belongs to the next
// request, so expire must do nothing. The same holds if bytes were transferred after the timer
// fired.
func TestCutAfterTheEndDoesNothing(t *testing.T) {
	t.Parallel()
	c := &connection{ResponseRecorder: httptest.NewRecorder()}
	tr := &transfer{ResponseWriter: c, cancel: func(error) { t.Error("cancelled") }}
	assert.False(t, tr.end())
	tr.expire()
	assert.False(t, c.cut)
	assert.False(t, tr.end())
	tr.touch(1, nil) // arms nothing

	tw, err := timingwheel.New(timingwheel.Options{Manual: true})
	require.NoError(t, err)
	defer tw.Stop()
	tr = &transfer{ResponseWriter: c, timeout: time.Second}
	tr.timer.InitStopped(tw, tr.expire)
	tr.late.Store(true)
	tr.touch(1, nil)
	tr.expire()
	assert.False(t, c.cut)
	assert.False(t, tr.late.Load(), "the whole timeout has begun again")
	assert.False(t, tr.end())
	assert.Zero(t, tw.Len())

	var cause error
	tr = &transfer{ResponseWriter: c, cancel: func(err error) { cause = err }}
	tr.late.Store(true)
	tr.expire()
	assert.True(t, c.cut)
	tr.touch(1, nil) // arms nothing
	assert.True(t, tr.end())
	assert.True(t, errors.Is(cause, errIdle))
	_, _, err = tr.Hijack()
	assert.ErrorIs(t, err, errIdle)
}
