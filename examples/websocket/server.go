package main

import (
	"context"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"github.com/timingwheel-go/timingwheel"
)

// server is a WebSocket server that echoes messages. It pings each client, and closes connections
// over which no frame, such as a pong, arrives for a timeout and another quarter of it.
type server struct {
	wheel   *timingwheel.TimingWheel
	ping    time.Duration // from one ping to the next
	timeout time.Duration // several times ping, so that one late pong does not end a connection
}

// ServeHTTP implements [http.Handler]. It returns when the connection has ended.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	var idle, last timingwheel.FuncTimer // last is armed while idle is not
	touch := func() {
		if !idle.Touch() {
			idle.StopWait(context.Background()) // its function may be about to arm last
			last.Stop()
			idle.Reset(s.timeout)
		}
	}
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		OnPingReceived: func(context.Context, []byte) bool { touch(); return true },
		OnPongReceived: func(context.Context, []byte) { touch() },
	})
	if err != nil {
		return // Accept has answered the request
	}
	defer conn.CloseNow()
	// After a stall of the process, a frame may wait in the socket, so idle closes nothing yet.
	// Close would wait for an answer of the client.
	last.InitStopped(s.wheel, func() { conn.CloseNow() })
	defer last.Stop()
	idle.Init(s.wheel, s.timeout, func() { last.Reset(s.timeout / 4) })
	defer idle.StopWait(context.Background())
	// Ping waits for the pong or the end of the connection. Meanwhile the plan skips runs.
	pings := s.wheel.ScheduleFunc(timingwheel.Every(s.ping), func() { conn.Ping(ctx) })
	defer pings.Stop()
	for {
		kind, message, err := conn.Read(ctx)
		if err != nil {
			return
		}
		touch()
		if conn.Write(ctx, kind, message) != nil {
			return
		}
	}
}
