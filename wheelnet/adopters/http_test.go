package adopters

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// serveHTTP runs a server until the end of the test and returns its address.
func serveHTTP(t testing.TB, tr transport, server *http.Server) string {
	l := listen(t)
	served := make(chan error, 1)
	go func() { served <- server.Serve(tr.listener(l)) }()
	t.Cleanup(func() {
		assert.NoError(t, server.Close())
		assert.ErrorIs(t, receive(t, served), http.ErrServerClosed)
	})
	return l.Addr().String()
}

func hello(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }

func TestHTTPServerCutsSilentPeer(t *testing.T) {
	for _, test := range []struct {
		name   string
		server *http.Server
		sent   string
	}{
		{"ReadTimeout", &http.Server{ReadTimeout: timeout}, ""},
		{"ReadHeaderTimeout", &http.Server{ReadHeaderTimeout: timeout, ReadTimeout: never}, "GET / HTTP/1.1\r\nHost:"},
		{"IdleTimeout", &http.Server{IdleTimeout: timeout, ReadTimeout: never, WriteTimeout: never}, getHello},
	} {
		t.Run(test.name, func(t *testing.T) {
			testTransports(t, func(t *testing.T, tr transport) {
				server := &http.Server{
					Handler:           http.HandlerFunc(hello),
					ReadHeaderTimeout: test.server.ReadHeaderTimeout,
					ReadTimeout:       test.server.ReadTimeout,
					WriteTimeout:      test.server.WriteTimeout,
					IdleTimeout:       test.server.IdleTimeout,
				}
				address := serveHTTP(t, tr, server)
				start := time.Now()
				c := connect(t, address)
				send(t, c, test.sent)
				requireCut(t, c, start, timeout)
			})
		})
	}
}

func TestHTTPHandlerGetsTimeoutOfSilentPeer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "large")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Truncate(file, 1<<30)) // a sparse file
	for _, test := range []struct {
		name    string
		sent    string
		handler func(w http.ResponseWriter, r *http.Request) error
	}{
		{"ReadTimeout", "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf", func(_ http.ResponseWriter, r *http.Request) error {
			_, err := io.ReadAll(r.Body)
			return err
		}},
		{"WriteTimeout", getHello, func(w http.ResponseWriter, _ *http.Request) (err error) {
			for chunk := make([]byte, 1<<16); err == nil; {
				_, err = w.Write(chunk)
			}
			return err
		}},
		{"WriteTimeoutOfSendfile", getHello, func(w http.ResponseWriter, _ *http.Request) error {
			f, err := os.Open(file)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = io.Copy(w, f)
			return err
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			testTransports(t, func(t *testing.T, tr transport) {
				returned := make(chan error, 1)
				address := serveHTTP(t, tr, &http.Server{
					ReadTimeout:  timeout,
					WriteTimeout: timeout,
					Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						returned <- test.handler(w, r)
					}),
				})
				start := time.Now()
				c := connect(t, address)
				send(t, c, test.sent)
				err := receive(t, returned)
				requireTimeout(t, err, start, timeout)
				assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
				requireCut(t, c, start, timeout)
			})
		})
	}
}

func TestHTTPServerKeepsLivePeer(t *testing.T) {
	testTransports(t, func(t *testing.T, tr transport) {
		address := serveHTTP(t, tr, &http.Server{
			Handler:           http.HandlerFunc(hello),
			ReadHeaderTimeout: timeout,
			ReadTimeout:       timeout,
			WriteTimeout:      timeout,
			IdleTimeout:       timeout,
		})
		requireAlive(t, func() func() error { return newHTTPPeer(t, address) })
	})
}

// A handler moves its deadlines with http.ResponseController. It streams for longer than the
// server's timeouts, until its peer goes silent.
func TestHTTPHandlerMovesDeadlines(t *testing.T) {
	testTransports(t, func(t *testing.T, tr transport) {
		returned := make(chan error, 100)
		address := serveHTTP(t, tr, &http.Server{
			ReadTimeout:  timeout,
			WriteTimeout: timeout,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				control := http.NewResponseController(w)
				err := control.EnableFullDuplex()
				for b := make([]byte, 1); err == nil; {
					if _, err = io.ReadFull(r.Body, b); err != nil {
						break
					}
					at := time.Now().Add(timeout)
					_, werr := w.Write(b)
					err = errors.Join(control.SetReadDeadline(at), control.SetWriteDeadline(at), werr, control.Flush())
				}
				returned <- err
			}),
		})
		var last time.Time
		var c net.Conn
		requireAlive(t, func() func() error {
			for len(returned) > 0 { // the errors of peers that stalled
				<-returned
			}
			c = connect(t, address)
			send(t, c, "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
			var body io.Reader
			return func() error {
				last = time.Now()
				if _, err := io.WriteString(c, "1\r\nx\r\n"); err != nil {
					return err
				}
				if body == nil {
					r := bufio.NewReader(c)
					response, err := http.ReadResponse(r, nil)
					if err != nil {
						return err
					}
					body = response.Body
				}
				_, err := io.ReadFull(body, make([]byte, 1))
				return err
			}
		})
		requireTimeout(t, receive(t, returned), last, timeout)
	})
}

func TestHTTPSServerCutsSilentPeer(t *testing.T) {
	testTransports(t, func(t *testing.T, tr transport) {
		server := httptest.NewUnstartedServer(http.HandlerFunc(hello))
		server.Listener = tr.listener(server.Listener)
		server.Config.ReadHeaderTimeout = timeout
		server.Config.ErrorLog = log.New(io.Discard, "", 0) // the timeout of the handshake
		server.EnableHTTP2 = true
		server.StartTLS()
		t.Cleanup(server.Close)

		start := time.Now()
		c := connect(t, server.Listener.Addr().String())
		requireCut(t, c, start, timeout)

		response, err := server.Client().Get(server.URL)
		require.NoError(t, err)
		defer response.Body.Close()
		assert.Equal(t, 2, response.ProtoMajor)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		assert.Equal(t, "hello", string(body))
	})
}

func TestHTTPClientEndsRequestToSilentServer(t *testing.T) {
	for _, test := range []struct {
		name   string
		client func(*http.Transport) *http.Client
	}{
		{"Timeout", func(transport *http.Transport) *http.Client {
			return &http.Client{Transport: transport, Timeout: timeout}
		}},
		{"ResponseHeaderTimeout", func(transport *http.Transport) *http.Client {
			transport.ResponseHeaderTimeout = timeout
			return &http.Client{Transport: transport}
		}},
		{"deadline", func(transport *http.Transport) *http.Client {
			dial := transport.DialContext
			transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				c, err := dial(ctx, network, address)
				if err != nil {
					return nil, err
				}
				return c, c.SetReadDeadline(time.Now().Add(timeout))
			}
			return &http.Client{Transport: transport}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			testTransports(t, func(t *testing.T, tr transport) {
				client := test.client(&http.Transport{DialContext: tr.dial})
				t.Cleanup(client.CloseIdleConnections)
				start := time.Now()
				_, err := client.Get("http://" + listen(t).Addr().String()) //nolint:bodyclose // it fails
				requireTimeout(t, err, start, timeout)
			})
		})
	}
}

func TestHTTPClientKeepsLiveConnection(t *testing.T) {
	testTransports(t, func(t *testing.T, tr transport) {
		address := serveHTTP(t, tr, &http.Server{Handler: http.HandlerFunc(hello)})
		requireAlive(t, func() func() error {
			var dials atomic.Int32
			client := &http.Client{Timeout: timeout, Transport: &http.Transport{
				ResponseHeaderTimeout: timeout,
				DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
					if dials.Add(1) > 1 {
						return nil, errors.New("a live connection was closed")
					}
					return tr.dial(ctx, network, address)
				},
			}}
			t.Cleanup(client.CloseIdleConnections)
			return func() error {
				response, err := client.Get("http://" + address)
				if err != nil {
					return err
				}
				_, err = httputil.DumpResponse(response, true)
				return errors.Join(err, response.Body.Close())
			}
		})
	})
}

func BenchmarkHTTPServer(b *testing.B) {
	benchTransports(b, []string{"none", "net", "wheelnet"}, func(b *testing.B, tr transport) {
		benchHTTP(b, serveHTTP(b, tr, &http.Server{
			Handler:           http.HandlerFunc(hello),
			ReadHeaderTimeout: tr.timeout(time.Minute),
			ReadTimeout:       tr.timeout(time.Minute),
			WriteTimeout:      tr.timeout(time.Minute),
			IdleTimeout:       tr.timeout(time.Minute),
		}))
	})
}
