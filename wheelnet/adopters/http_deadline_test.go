package adopters

import (
	"bufio"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHTTPDeadlineEndsContextAndReads(t *testing.T) {
	for name, test := range map[string]struct {
		sent    string
		handler func(r *http.Request) error
		after   time.Duration
	}{
		"context": {getHello, func(r *http.Request) error { <-r.Context().Done(); return r.Context().Err() }, timeout},
		"body": {"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf", func(r *http.Request) error {
			_, err := io.ReadAll(r.Body)
			return err
		}, 5 * timeout},
	} {
		t.Run(name, func(t *testing.T) {
			testTransports(t, func(t *testing.T, tr transport) {
				tw := newWheel(t)
				ended := make(chan error, 1)
				address := serveHTTP(t, tr, &http.Server{Handler: HTTPDeadline(tw, timeout, 4*timeout, http.HandlerFunc(
					func(w http.ResponseWriter, r *http.Request) {
						ended <- test.handler(r)
						w.WriteHeader(http.StatusServiceUnavailable)
					}))})
				start := time.Now()
				c := connect(t, address)
				send(t, c, test.sent)
				response, err := http.ReadResponse(bufio.NewReader(c), nil)
				require.NoError(t, err, "the handler can still answer")
				require.NoError(t, response.Body.Close())
				assert.Equal(t, http.StatusServiceUnavailable, response.StatusCode)
				err = receive(t, ended)
				requireTimeout(t, err, start, test.after)
				requireLen(t, tw, 0)
			})
		})
	}
}

func TestHTTPDeadlineEndsWrites(t *testing.T) {
	testTransports(t, func(t *testing.T, tr transport) {
		ended := make(chan error, 1)
		address := serveHTTP(t, tr, &http.Server{Handler: HTTPDeadline(newWheel(t), timeout/3, timeout/3, http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				_, err := w.Write(make([]byte, 1<<26))
				ended <- err
			}))})
		start := time.Now()
		send(t, connect(t, address), getHello) // and reads nothing
		requireTimeout(t, receive(t, ended), start, timeout)
	})
}

// The deadlines of a request do not affect the next request of the connection.
func TestHTTPDeadlineKeepsConnection(t *testing.T) {
	testTransports(t, func(t *testing.T, tr transport) {
		const short = 500 * time.Millisecond
		tw := newWheel(t)
		limit := time.Duration(never)
		address := serveHTTP(t, tr, &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			HTTPDeadline(tw, limit, 0, http.HandlerFunc(hello)).ServeHTTP(w, r)
		})})
		client := &http.Client{Transport: &http.Transport{DialContext: once(tr.dial)}}
		defer client.CloseIdleConnections()
		get := func() error {
			response, err := client.Get("http://" + address)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			_, err = io.Copy(io.Discard, response.Body)
			return err
		}
		require.NoError(t, get())
		limit = short
		require.NoError(t, get())
		time.Sleep(short + tick)
		limit = never
		require.NoError(t, get())
	})
}
