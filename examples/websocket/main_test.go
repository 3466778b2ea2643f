package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/examples/internal/option"
	"github.com/timingwheel-go/timingwheel/examples/internal/programtest"
)

// transport returns a transport whose connections come from l.
func transport(l programtest.Listener) *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		client, server := pipe()
		if err := l.Connect(ctx, server); err != nil {
			client.Close()
			return nil, err
		}
		return client, nil
	}}
}

// pipe is like net.Pipe, but has a buffer, as TCP has. Without a buffer, a client that writes a
// pong and a server that writes an echo would wait for each other.
func pipe() (client, server net.Conn) {
	client, toClient := net.Pipe()
	server, toServer := net.Pipe()
	go relay(toClient, toServer)
	go relay(toServer, toClient)
	return client, server
}

// relay copies data between two connections until one of them is closed. Then relay closes both.
func relay(from, to net.Conn) {
	chunks := make(chan []byte, 100)
	go func() {
		for chunk := range chunks {
			if _, err := to.Write(chunk); err != nil {
				from.Close()
			}
		}
		to.Close()
	}()
	for {
		chunk := make([]byte, 4096)
		n, err := from.Read(chunk)
		if err != nil {
			close(chunks)
			return
		}
		chunks <- chunk[:n]
	}
}

// A silent client is closed when the timeout and a quarter of it have passed since its last pong,
// and at most three ticks later. The other clients stay.
func TestServerClosesOnlySilentClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tick = time.Millisecond
		cfg := config{clients: 2, ping: 10 * time.Second, timeout: 45 * time.Second, length: time.Hour + 5*time.Second}
		l := programtest.NewListener()
		clients, err := serve(t.Context(), cfg, l, transport(l))
		require.NoError(t, err)
		require.Len(t, clients, 2*int(kinds))
		for _, c := range clients {
			if c.kind != silent {
				assert.False(t, c.closed, "%v", c.kind)
				assert.InDelta(t, cfg.length, c.open, float64(tick), "%v", c.kind)
				continue
			}
			assert.True(t, c.closed)
			closed := c.speak.Truncate(cfg.ping) + cfg.timeout + cfg.timeout/4
			assert.GreaterOrEqual(t, c.open, closed)
			assert.LessOrEqual(t, c.open, closed+3*tick, "the ping and both timers are each up to a tick late")
		}
	})
}

// Without pings, a client that sends nothing is closed.
func TestServerPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config{clients: 1, ping: time.Hour, timeout: 2 * time.Second, length: time.Minute}
		l := programtest.NewListener()
		clients, err := serve(t.Context(), cfg, l, transport(l))
		require.NoError(t, err)
		assert.True(t, clients[listening].closed)
	})
}

// When the process runs again after a stall, the timeout has passed and a frame waits in the
// socket. The server answers it, and the timeout begins again.
func TestServerKeepsConnectionWhoseFrameWaits(t *testing.T) {
	t.Parallel()
	const timeout = time.Minute
	tw, err := timingwheel.New(timingwheel.Options{Manual: true})
	require.NoError(t, err)
	defer tw.Stop()
	start := tw.Now()
	s := httptest.NewServer(&server{wheel: tw, ping: time.Hour, timeout: timeout})
	defer s.Close()
	conn, _, err := websocket.Dial(t.Context(), s.URL, nil)
	require.NoError(t, err)
	defer conn.CloseNow()
	require.Eventually(t, func() bool { return tw.Len() == 2 }, timeout, time.Millisecond)

	for stall := range time.Duration(3) {
		require.Equal(t, 1, tw.Advance(start.Add((stall+1)*timeout)))
		require.NoError(t, conn.Write(t.Context(), websocket.MessageText, []byte("hello")))
		_, echo, err := conn.Read(t.Context())
		require.NoError(t, err)
		require.Equal(t, "hello", string(echo))
	}
	require.Zero(t, tw.Advance(start.Add(4*timeout-time.Millisecond)))
	require.Equal(t, 1, tw.Advance(start.Add(4*timeout)))
	require.Equal(t, 1, tw.Advance(start.Add(4*timeout+timeout/4)))
	_, _, err = conn.Read(t.Context())
	require.Error(t, err)
}

func TestServerRefusesOtherRequests(t *testing.T) {
	t.Parallel()
	tw, err := timingwheel.New(timingwheel.Options{})
	require.NoError(t, err)
	defer tw.Stop()
	w := httptest.NewRecorder()
	(&server{wheel: tw, ping: time.Minute, timeout: time.Hour}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	assert.Equal(t, http.StatusUpgradeRequired, w.Code)
	assert.Zero(t, tw.Len())
}

// brokenListener fails in Accept.
type brokenListener struct{ programtest.Listener }

func (brokenListener) Accept() (net.Conn, error) { return nil, assert.AnError }

func TestServerReportsErrorOfListener(t *testing.T) {
	t.Parallel()
	l := brokenListener{programtest.NewListener()}
	_, err := serve(t.Context(), defaults(), l, transport(l.Listener))
	assert.ErrorIs(t, err, assert.AnError)
}

// On a busy machine a client that is not silent may be closed, so the test checks only the end of
// the silent client.
func TestRunPrintsWhichConnectionsWereClosed(t *testing.T) {
	t.Parallel()
	cfg := config{clients: 1, ping: 50 * time.Millisecond, timeout: 200 * time.Millisecond, length: time.Second}
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), cfg, &out))
	assert.Regexp(t, `talking .*\n.*listening .*\n.*silent +│ +333ms │ +[0-9.]+m?s │ +│`, out.String())
}

func TestInterruptedRunEndsAtOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	cfg := defaults()
	cfg.ping, cfg.timeout, cfg.length = time.Minute, time.Hour, 24*time.Hour
	var out bytes.Buffer
	require.NoError(t, run(ctx, cfg, &out))
	assert.Contains(t, out.String(), "interrupted")
}

func TestOptions(t *testing.T) {
	t.Parallel()
	programtest.Helps(t, webSocket, []string{"clients", "ping", "timeout", "for"})
	programtest.Refuses(t, webSocket, option.ExitUsage, []programtest.Refusal{
		{Args: []string{"-clients", "0"}, Want: []string{`"0"`, "-clients", "from 1 to 1000"}},
		{Args: []string{"-ping", "500ms"}, Want: []string{"-timeout is 800ms", "at least 1s", "twice -ping"}},
		{Args: []string{"-for", "2s"}, Want: []string{"-for is 2s", "at least 2.4s", "three times -timeout"}},
		{Args: []string{"now"}, Want: []string{`"now"`, "the program takes only options"}},
	})
}
