package adopters

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

// connectionErrors is a logger that receives the errors that end connections.
type connectionErrors chan error

func (c connectionErrors) Printf(_ string, args ...any) {
	if err, ok := args[len(args)-1].(error); ok {
		c <- err
	}
}

// serveFastHTTP runs a server until the end of the test. It returns its address and the errors that
// end its connections.
func serveFastHTTP(t testing.TB, tr transport, server *fasthttp.Server) (string, <-chan error) {
	l := listen(t)
	ended := make(connectionErrors, 100)
	server.Logger, server.LogAllErrors = ended, true
	served := make(chan error, 1)
	go func() { served <- server.Serve(tr.listener(l)) }()
	t.Cleanup(func() {
		assert.NoError(t, server.Shutdown())
		assert.NoError(t, receive(t, served))
	})
	return l.Addr().String(), ended
}

func fastHello(ctx *fasthttp.RequestCtx) { ctx.WriteString("hello") }

func TestFastHTTPServerCutsSilentPeer(t *testing.T) {
	for _, test := range []struct {
		name              string
		read, write, idle time.Duration
		sent              string
		fails             bool // whether the server reports an error, which it does not for an idle connection
	}{
		{"ReadTimeout", timeout, never, never, "", true},
		{"ReadTimeoutOfHeader", timeout, never, never, "GET / HTTP/1.1\r\nHost:", true},
		{"ReadTimeoutOfBody", timeout, never, never, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf", true},
		{"IdleTimeout", never, never, timeout, getHello, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			testTransports(t, func(t *testing.T, tr transport) {
				address, ended := serveFastHTTP(t, tr, &fasthttp.Server{
					Handler:      fastHello,
					ReadTimeout:  test.read,
					WriteTimeout: test.write,
					IdleTimeout:  test.idle,
				})
				start := time.Now()
				c := connect(t, address)
				send(t, c, test.sent)
				requireCut(t, c, start, timeout)
				if test.fails {
					requireTimeout(t, receive(t, ended), start, timeout)
				} else {
					assert.Empty(t, ended)
				}
			})
		})
	}
}

func TestFastHTTPServerCutsPeerThatDoesNotRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "large")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Truncate(file, 1<<30)) // a sparse file
	body := sync.OnceValue(func() []byte { return make([]byte, 1<<25) })
	for _, test := range []struct {
		name    string
		handler fasthttp.RequestHandler
	}{
		{"WriteTimeout", func(ctx *fasthttp.RequestCtx) { ctx.Response.SetBodyRaw(body()) }},
		{"WriteTimeoutOfSendfile", func(ctx *fasthttp.RequestCtx) { ctx.SendFile(file) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			testTransports(t, func(t *testing.T, tr transport) {
				address, ended := serveFastHTTP(t, tr, &fasthttp.Server{Handler: test.handler, WriteTimeout: timeout})
				start := time.Now()
				c := connect(t, address)
				send(t, c, getHello)
				err := receive(t, ended)
				requireTimeout(t, err, start, timeout)
				assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
				requireCut(t, c, start, timeout)
			})
		})
	}
}

func TestFastHTTPServerKeepsLivePeer(t *testing.T) {
	testTransports(t, func(t *testing.T, tr transport) {
		address, _ := serveFastHTTP(t, tr, &fasthttp.Server{
			Handler:      fastHello,
			ReadTimeout:  timeout,
			WriteTimeout: timeout,
			IdleTimeout:  timeout,
		})
		requireAlive(t, func() func() error { return newHTTPPeer(t, address) })
	})
}

func BenchmarkFastHTTPServer(b *testing.B) {
	benchTransports(b, []string{"none", "net", "wheelnet"}, func(b *testing.B, tr transport) {
		address, _ := serveFastHTTP(b, tr, &fasthttp.Server{
			Handler:      fastHello,
			ReadTimeout:  tr.timeout(time.Minute),
			WriteTimeout: tr.timeout(time.Minute),
			IdleTimeout:  tr.timeout(time.Minute),
		})
		benchHTTP(b, address)
	})
}
