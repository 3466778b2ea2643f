// Websocket is a WebSocket server with pings and idle timeouts. One timing wheel has both: a plan
// that pings each connection, and a FuncTimer that closes the connection unless a frame arrives.
//
// Clients of three kinds connect to the server over loopback. Some send messages, some only answer
// pings, and some fall silent. The program prints which connections the server closed, and when.
//
//	go run ./examples/websocket
//	go run ./examples/websocket -clients 100 -timeout 500ms
//
// Read server.go, which is made to be copied. The tests show how to test it without waiting.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v3"
	"golang.org/x/sync/errgroup"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/examples/internal/figures"
	"github.com/timingwheel-go/timingwheel/examples/internal/option"
	"github.com/timingwheel-go/timingwheel/examples/internal/program"
)

// config has the options of a run.
type config struct {
	clients int // of each kind
	ping    time.Duration
	timeout time.Duration
	length  time.Duration // until the clients leave
}

func defaults() config {
	return config{clients: 3, ping: 200 * time.Millisecond, timeout: 800 * time.Millisecond, length: 3 * time.Second}
}

func main() { program.Main(webSocket) }

// webSocket is the program without its process. It returns the exit code.
func webSocket(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg := defaults()
	command := option.Command{
		Name:  "websocket",
		Usage: "a WebSocket server with pings and idle timeouts on the timing wheel",
		Flags: []cli.Flag{
			option.Count("clients", &cfg.clients, 1, 1000, "connect `n` clients of each kind"),
			option.Duration("ping", &cfg.ping, 10*time.Millisecond, time.Minute, "ping each client every `time`"),
			option.Duration("timeout", &cfg.timeout, 20*time.Millisecond, time.Hour, "close connections that are silent for this `time` and another quarter of it"),
			option.Duration("for", &cfg.length, 60*time.Millisecond, 24*time.Hour, "let the clients leave after this `time`"),
		},
	}
	return command.Run(args, stdout, stderr, cfg.validate, func() error { return run(ctx, cfg, stdout) })
}

// validate checks constraints between options.
func (cfg *config) validate() error {
	if least := 2 * cfg.ping; cfg.timeout < least {
		return fmt.Errorf("-timeout is %v; it must be at least %v, twice -ping", cfg.timeout, least)
	}
	if least := 3 * cfg.timeout; cfg.length < least {
		return fmt.Errorf("-for is %v; it must be at least %v, three times -timeout, so that silent clients are closed", cfg.length, least)
	}
	return nil
}

// run runs the server on loopback.
func run(ctx context.Context, cfg config, w io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	transport := new(http.Transport)
	clients, err := serve(ctx, cfg, l, transport)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "a ping every %v; closed after %v without a frame; the clients leave after %v\n", cfg.ping, cfg.timeout+cfg.timeout/4, cfg.length)
	rows := figures.Table(w, 2, 4, "clients", "silent after", "closed by server after", "left after")
	for _, c := range clients {
		row := table.Row{c.kind.String(), "", "", ""}
		if c.kind == silent {
			row[1] = c.speak.Round(time.Millisecond)
		}
		column := 3
		if c.closed {
			column = 2
		}
		row[column] = c.open.Round(time.Millisecond)
		rows.AppendRow(row)
	}
	rows.Render()
	if ctx.Err() != nil {
		fmt.Fprintln(w, "interrupted")
	}
	return nil
}

// serve runs a server on l, lets the clients connect, and returns the clients when all connections
// have ended.
func serve(ctx context.Context, cfg config, l net.Listener, transport *http.Transport) ([]*client, error) {
	tw, err := timingwheel.New(timingwheel.Options{})
	if err != nil {
		return nil, err
	}
	defer tw.Stop()
	httpServer := &http.Server{Handler: &server{wheel: tw, ping: cfg.ping, timeout: cfg.timeout}}
	defer transport.CloseIdleConnections()

	ctx, cancel := tw.WithTimeout(ctx, cfg.length)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		served <- httpServer.Serve(l)
		cancel() // of the clients, if Serve has failed
	}()
	var users errgroup.Group
	clients := make([]*client, 0, int(kinds)*cfg.clients)
	for k := range kinds {
		for i := range cfg.clients {
			// The last silent client still has time to be closed.
			c := &client{kind: k, speak: cfg.length / 3 * time.Duration(i+1) / time.Duration(cfg.clients)}
			clients = append(clients, c)
			users.Go(func() error { return c.run(ctx, tw, "ws://"+l.Addr().String(), transport, cfg.ping/2) })
		}
	}
	err = users.Wait()
	httpServer.Close()
	if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = serveErr
	}
	return clients, err
}
