package main

import (
	"context"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"github.com/timingwheel-go/timingwheel"
)

// server is a WebSocket server that echoes messages. It pings each client, and closes connections
// over which no frame arrives for a timeout. A client that answers pings stays connected, even if
// it sends no messages.
type server struct {
	wheel   *timingwheel.TimingWheel
	ping    time.Duration // from one ping to the next
	timeout time.Duration // several times ping, so that one late pong does not end a connection
}

// ServeHTTP implements [http.Handler]. It returns when the connection has ended.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	var idle timingwheel.FuncTimer
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		OnPingReceived: func(context.Context, []byte) bool { idle.Touch(); return true },
		OnPongReceived: func(context.Context, []byte) { idle.Touch() },
	})
	if err != nil {
		return // Accept has answered the request
	}
	defer conn.CloseNow()
	// Close would wait for an answer of the client.
	idle.Init(s.wheel, s.timeout, func() { conn.CloseNow() })
	defer idle.Stop()
	// Ping waits for the pong or the end of the connection. Meanwhile the plan skips runs.
	pings := s.wheel.ScheduleFunc(timingwheel.Every(s.ping), func() { conn.Ping(ctx) })
	defer pings.Stop()
	for {
		kind, message, err := conn.Read(ctx)
		if err != nil {
			return
		}
		idle.Touch()
		if conn.Write(ctx, kind, message) != nil {
			return
		}
	}
}
