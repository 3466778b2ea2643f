package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/timingwheel-go/timingwheel/debug"
)

const path = "/debug/timingwheel/"

// site is the page while it is served.
type site struct {
	url    string
	server *http.Server
	ended  chan error
}

// serve serves the page. A service has other things beside it, and mounts it where only those come
// who run the service.
func serve(addr string, wheels *debug.Handler) (*site, error) {
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

// reachable is an address at which this machine's browser finds what listens at addr: of all
// addresses it takes one.
func reachable(addr net.Addr) string {
	if tcp, ok := addr.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return net.JoinHostPort("localhost", strconv.Itoa(tcp.Port))
	}
	return addr.String()
}

// close ends the page, and gives browsers a moment to get their last answers.
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
