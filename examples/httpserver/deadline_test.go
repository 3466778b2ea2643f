package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
)

// serve runs a handler with a deadline of a second in a synctest bubble. It returns the answer and
// the time.
func serve(t *testing.T, handler http.HandlerFunc) (*httptest.ResponseRecorder, time.Duration) {
	t.Helper()
	tw, err := timingwheel.New(timingwheel.Options{})
	require.NoError(t, err)
	defer tw.Stop()
	w := httptest.NewRecorder()
	begin := time.Now()
	func() {
		defer func() {
			if p := recover(); p != nil {
				assert.Equal(t, http.ErrAbortHandler, p)
				w.Header().Set("Aborted", "true")
			}
		}()
		deadline(tw.WithTimeout, time.Second, refusal, handler).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	}()
	took := time.Since(begin)
	assert.Zero(t, tw.Len())
	seen := w.Body.Len()
	time.Sleep(time.Hour)
	synctest.Wait()
	assert.Equal(t, seen, w.Body.Len(), "bytes written after the handler returned")
	return w, took
}

func TestAnswersBeforeAndAfterTheDeadline(t *testing.T) {
	errWrite := errors.New("no write")
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		code    int
		body    string
		took    time.Duration
		write   error // error of a write at the end
		aborted bool
	}{
		"in time": {
			handler: func(w http.ResponseWriter, _ *http.Request) {
				time.Sleep(time.Second - 2*time.Millisecond)
				w.Header().Set("Handler", "yes")
				w.WriteHeader(http.StatusCreated)
				w.WriteHeader(http.StatusTeapot) // too late
				io.WriteString(w, "fine")
			},
			code: http.StatusCreated, body: "fine", took: time.Second - 2*time.Millisecond, write: errWrite,
		},
		"nothing written": {handler: func(http.ResponseWriter, *http.Request) {}, code: http.StatusOK, write: errWrite},
		"waits for the context": {
			handler: func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Handler", "yes")
				w.WriteHeader(http.StatusCreated)
				io.WriteString(w, "half of an answer")
				<-r.Context().Done()
			},
			code: http.StatusServiceUnavailable, body: refusal, took: time.Second, write: errWrite,
		},
		"ignores the context": {
			handler: func(w http.ResponseWriter, _ *http.Request) {
				time.Sleep(time.Minute)
				_, errWrite = io.WriteString(w, "at last")
				assert.ErrorIs(t, http.NewResponseController(w).Flush(), http.ErrHandlerTimeout)
				_, _, err := http.NewResponseController(w).Hijack()
				assert.ErrorIs(t, err, http.ErrHandlerTimeout)
			},
			code: http.StatusServiceUnavailable, body: refusal, took: time.Minute, write: http.ErrHandlerTimeout,
		},
		"streams in time": {
			handler: func(w http.ResponseWriter, _ *http.Request) {
				io.WriteString(w, "one ")
				w.(http.Flusher).Flush()
				io.WriteString(w, "two")
			},
			code: http.StatusOK, body: "one two", write: errWrite,
		},
		"streams too long": {
			handler: func(w http.ResponseWriter, _ *http.Request) {
				io.WriteString(w, "one ")
				w.(http.Flusher).Flush()
				time.Sleep(time.Minute)
				_, errWrite = io.WriteString(w, "two")
			},
			code: http.StatusOK, body: "one ", took: time.Minute, write: http.ErrHandlerTimeout, aborted: true,
		},
		"a large answer": {
			handler: func(w http.ResponseWriter, _ *http.Request) {
				for range 3 {
					io.WriteString(w, strings.Repeat("x", maxBuffered/2))
				}
			},
			code: http.StatusOK, body: strings.Repeat("x", 3*maxBuffered/2), write: errWrite,
		},
		"a large answer that stalls": {
			handler: func(w http.ResponseWriter, r *http.Request) {
				io.WriteString(w, strings.Repeat("x", maxBuffered+1))
				<-r.Context().Done()
			},
			code: http.StatusOK, body: strings.Repeat("x", maxBuffered+1), took: time.Second, write: errWrite, aborted: true,
		},
		"cannot be hijacked": {
			handler: func(w http.ResponseWriter, _ *http.Request) {
				_, _, err := http.NewResponseController(w).Hijack() // a recorder has no connection
				assert.ErrorIs(t, err, http.ErrNotSupported)
				io.WriteString(w, "not hijacked")
			},
			code: http.StatusOK, body: "not hijacked", write: errWrite,
		},
	} {
		t.Run(name, func(t *testing.T) {
			errWrite = tt.write
			synctest.Test(t, func(t *testing.T) {
				w, took := serve(t, tt.handler)
				assert.Equal(t, tt.code, w.Code)
				assert.Equal(t, tt.body, w.Body.String())
				assert.GreaterOrEqual(t, took, tt.took)
				assert.LessOrEqual(t, took, tt.took+time.Millisecond)
				assert.Equal(t, tt.write, errWrite)
				assert.Equal(t, tt.aborted, w.Header().Get("Aborted") != "")
				if tt.code == http.StatusServiceUnavailable {
					assert.Empty(t, w.Header().Get("Handler"), "header of the handler in the 503")
				}
			})
		})
	}
}

func TestPanicReachesTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw, err := timingwheel.New(timingwheel.Options{})
		require.NoError(t, err)
		defer tw.Stop()
		w := httptest.NewRecorder()
		h := deadline(tw.WithTimeout, time.Second, refusal, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("handler") }))
		assert.PanicsWithValue(t, "handler", func() { h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)) })
		assert.Zero(t, tw.Len())
		time.Sleep(time.Minute)
		assert.Empty(t, w.Body.String())
	})
}

// The end of the context of a disconnected client is not a deadline, so there is no 503.
func TestDisconnectedClientGetsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, disconnect := context.WithCancel(t.Context())
		defer disconnect()
		time.AfterFunc(time.Millisecond, disconnect)
		w := httptest.NewRecorder()
		h := deadline(context.WithTimeout, time.Second, refusal, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			synctest.Wait()
		}))
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		assert.Equal(t, http.StatusOK, w.Code)
		assert.Empty(t, w.Body.String())
	})
}

func TestTrailersAreSent(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(deadline(context.WithTimeout, time.Minute, refusal, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "Sum")
		w.(http.Flusher).Flush()
		w.WriteHeader(http.StatusTeapot) // too late
		io.WriteString(w, "body")
		w.Header().Set("Sum", "4")
	})))
	defer srv.Close()
	response, err := srv.Client().Get(srv.URL)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	assert.NoError(t, err)
	assert.Equal(t, http.StatusOK, response.StatusCode)
	assert.Equal(t, "body", string(body))
	assert.Equal(t, "4", response.Trailer.Get("Sum"))
}

// The 503 does not wait for a handler that is reading a stalled upload.
func TestRefusalDuringAStalledUpload(t *testing.T) {
	t.Parallel()
	read := make(chan error, 1)
	srv := httptest.NewServer(deadline(context.WithTimeout, 50*time.Millisecond, refusal, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		read <- err
	})))
	defer srv.Close()
	upload, more := io.Pipe()
	go more.Write([]byte("the first part"))
	response, err := srv.Client().Post(srv.URL, "text/plain", upload)
	require.NoError(t, err)
	body, err := io.ReadAll(response.Body)
	assert.NoError(t, err)
	assert.Equal(t, http.StatusServiceUnavailable, response.StatusCode)
	assert.Equal(t, refusal, string(body))
	response.Body.Close()
	more.CloseWithError(io.ErrClosedPipe)
	assert.Error(t, <-read)
}

// Over a real connection the 503 arrives at the deadline, before the handler returns, and the
// client detects a cut answer.
func TestDeadlineOverAConnection(t *testing.T) {
	t.Parallel()
	tw, err := timingwheel.New(timingwheel.Options{})
	require.NoError(t, err)
	defer tw.Stop()
	release := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/ignoring", func(http.ResponseWriter, *http.Request) { <-release })
	mux.HandleFunc("/cut", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		io.WriteString(w, "the first part")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/hijacked", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if assert.NoError(t, err) {
			<-release // the deadline passes and must not write
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nby hand")
			assert.NoError(t, conn.Close())
			_, err = w.Write([]byte("x"))
			assert.ErrorIs(t, err, http.ErrHijacked)
		}
	})
	srv := httptest.NewServer(deadline(tw.WithTimeout, time.Second, refusal, mux))
	defer srv.Close()
	get := func(path string) (response *http.Response, body string, err error) {
		response, err = srv.Client().Get(srv.URL + path)
		if !assert.NoError(t, err, path) {
			return &http.Response{}, "", err
		}
		defer response.Body.Close()
		b, err := io.ReadAll(response.Body)
		return response, string(b), err
	}
	var ignoring, requests sync.WaitGroup
	ignoring.Go(func() {
		response, body, err := get("/ignoring") // returns while the handler waits
		assert.NoError(t, err)
		assert.Equal(t, http.StatusServiceUnavailable, response.StatusCode)
		assert.Equal(t, refusal, body)
		assert.True(t, response.Close)
	})
	requests.Go(func() {
		_, body, err := get("/cut")
		assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
		assert.Equal(t, "the first part", body)
	})
	requests.Go(func() {
		_, body, err := get("/hijacked")
		assert.NoError(t, err)
		assert.Equal(t, "by hand", body)
	})
	time.Sleep(1500 * time.Millisecond)
	ignoring.Wait()
	close(release)
	requests.Wait()
}

// A client that does not read blocks the handler in a Write. The deadline makes the Write fail.
func TestDeadlineUnblocksAWrite(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(w http.ResponseWriter){
		"large":   func(http.ResponseWriter) {},
		"flushed": func(w http.ResponseWriter) { w.(http.Flusher).Flush() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failed := make(chan error, 1)
			srv := httptest.NewServer(deadline(context.WithTimeout, 200*time.Millisecond, refusal, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				begin(w)
				for {
					if _, err := w.Write(make([]byte, 1<<20)); err != nil {
						failed <- err
						return
					}
				}
			})))
			defer srv.Close()
			conn, err := net.Dial("tcp", srv.Listener.Addr().String())
			require.NoError(t, err)
			defer conn.Close()
			_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: test\r\n\r\n")
			require.NoError(t, err)
			select {
			case err := <-failed:
				assert.Error(t, err)
			case <-time.After(20 * time.Second):
				t.Error("the handler is still blocked long after the deadline")
			}
		})
	}
}
