package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/timingwheel-go/timingwheel/wheeldebug"
)

const path = "/debug/timingwheel/"

// site is a server of the page.
type site struct {
	url    string
	server *http.Server
	ended  chan error
}

// serve serves the page. A service mounts the page on an address that only its operators can reach.
func serve(addr string, wheels *wheeldebug.Handler) (*site, error) {
	mux := http.NewServeMux()
	mux.Handle(path, wheels)
	mux.Handle("/{$}", http.RedirectHandler(path, http.StatusFound))
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	p := &site{
		url:    "http://" + reachable(listener.Addr()) + path,
		server: &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second},
		ended:  make(chan error, 1),
	}
	go func() { p.ended <- p.server.Serve(listener) }()
	return p, nil
}

// reachable returns an address that a browser on this machine can open. If addr is all addresses,
// it is localhost.
func reachable(addr net.Addr) string {
	if tcp, ok := addr.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return net.JoinHostPort("localhost", strconv.Itoa(tcp.Port))
	}
	return addr.String()
}

// close stops the server and waits up to a second for requests in flight.
func (p *site) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := p.server.Shutdown(ctx); err != nil {
		_ = p.server.Close()
	}
	if err := <-p.ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
