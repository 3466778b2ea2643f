package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"github.com/timingwheel-go/timingwheel"
)

// kind says how a client behaves.
type kind int

const (
	talking   kind = iota // sends messages and answers pings
	listening             // answers pings
	silent                // answers pings at first, and then sends nothing
	kinds
)

func (k kind) String() string { return [kinds]string{"talking", "listening", "silent"}[k] }

// client is one client of the server. Its clock starts when it is connected.
type client struct {
	kind  kind
	speak time.Duration // until a silent client falls silent

	// Set by run.
	open   time.Duration // from the connection to its end
	closed bool          // by the server
}

// run connects to url and stays connected until ctx ends or the server closes the connection. A
// talking client sends a message after each pause.
func (c *client) run(
	ctx context.Context, tw *timingwheel.TimingWheel, url string, transport http.RoundTripper, pause time.Duration,
) error {
	start := time.Now()
	conn, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: transport},
		OnPingReceived: func(context.Context, []byte) bool {
			return c.kind != silent || time.Since(start) < c.speak
		},
	})
	if err != nil {
		if ctx.Err() != nil {
			return nil // interrupted
		}
		return fmt.Errorf("%v client: %w", c.kind, err)
	}
	defer conn.CloseNow()
	if c.kind == talking {
		messages := tw.ScheduleFunc(timingwheel.Every(pause), func() {
			_ = conn.Write(ctx, websocket.MessageText, []byte("hello")) // after an error, Read fails as well
		})
		defer messages.Stop()
	}
	for err == nil {
		_, _, err = conn.Read(ctx) // an echo, or the end
	}
	c.open, c.closed = time.Since(start), ctx.Err() == nil
	return nil
}
