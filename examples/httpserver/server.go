package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"go.uber.org/atomic"
)

// kind is the behaviour of a handler.
type kind int

const (
	quick    kind = iota // answers immediately
	waiting              // waits for its context
	ignoring             // ignores its context
	upstream             // calls a second server, which waits
	kinds
)

func (k kind) path() string { return [kinds]string{"/quick", "/waiting", "/ignoring", "/upstream"}[k] }

func (k kind) String() string { return k.path()[1:] }

const refusal = "not done in time"

// server is the server under test and the second server that it calls. The handlers count their
// calls.
type server struct {
	begun     [kinds]atomic.Int64
	expired   atomic.Int64 // handlers that saw their deadline
	upstreams atomic.Int64 // requests whose end the second server saw

	timeout time.Duration
	maxWait time.Duration   // longest wait of a handler
	over    <-chan struct{} // closed by Ctrl-C: handlers return
	first   *http.Server
	second  *http.Server
	client  *http.Client // of the first server
	url     string
	next    string // URL of the second server
}

// start starts both servers on the loopback interface. limit wraps the handlers of the first one.
// The handlers return when ctx is done.
func start(ctx context.Context, cfg config, limit func(http.Handler) http.Handler) (*server, error) {
	s := &server{timeout: cfg.timeout, maxWait: cfg.timeout + cfg.maxWait, over: ctx.Done(), client: newClient(cfg.clients)}
	first, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	second, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, first.Close())
	}
	s.url, s.next = "http://"+first.Addr().String(), "http://"+second.Addr().String()
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+quick.path(), s.quick)
	mux.HandleFunc("GET "+waiting.path(), s.waiting)
	mux.HandleFunc("GET "+ignoring.path(), s.ignoring)
	mux.HandleFunc("GET "+upstream.path(), s.upstream)
	s.first = &http.Server{Handler: limit(mux), ReadHeaderTimeout: time.Minute}
	s.second = &http.Server{Handler: http.HandlerFunc(s.wait), ReadHeaderTimeout: time.Minute}
	// Serve returns after close. If it fails earlier, the requests fail too.
	go func() { _ = s.first.Serve(first) }()
	go func() { _ = s.second.Serve(second) }()
	return s, nil
}

// close waits for running handlers.
func (s *server) close(ctx context.Context) error {
	err := s.first.Shutdown(ctx)
	s.client.CloseIdleConnections()
	return errors.Join(err, s.second.Shutdown(ctx))
}

func (s *server) quick(w http.ResponseWriter, r *http.Request) {
	s.begun[quick].Inc()
	answerTo(w, r)
}

// waiting stands for a call that watches the context: a query, a lock, a queue.
func (s *server) waiting(w http.ResponseWriter, r *http.Request) {
	s.begun[waiting].Inc()
	s.waitFor(r)
	answerTo(w, r) // fails: the deadline has passed
}

// waitFor waits for the end of the request, but at most for s.maxWait, so that nothing hangs
// without a deadline.
func (s *server) waitFor(r *http.Request) {
	select {
	case <-r.Context().Done():
		if errors.Is(r.Context().Err(), context.DeadlineExceeded) {
			s.expired.Inc()
		}
	case <-time.After(s.maxWait):
	}
}

// ignoring ignores its context, as a computation or a call without a context does.
func (s *server) ignoring(w http.ResponseWriter, r *http.Request) {
	s.begun[ignoring].Inc()
	select { // without the context of the request
	case <-time.After(s.timeout + s.timeout/4):
	case <-s.over:
	}
	answerTo(w, r)
}

// upstream passes its context and so the deadline to the second server.
func (s *server) upstream(w http.ResponseWriter, r *http.Request) {
	s.begun[upstream].Inc()
	out, err := http.NewRequestWithContext(r.Context(), http.MethodGet, s.next, nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	response, err := s.client.Do(out)
	if err != nil { // the deadline, or a fault
		if errors.Is(err, context.DeadlineExceeded) {
			s.expired.Inc()
		}
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	_ = response.Body.Close()
	http.Error(w, "the second server answered: "+response.Status, http.StatusBadGateway)
}

// wait is the handler of the second server. Its context has no deadline; it is done when the first
// server closes the connection.
func (s *server) wait(w http.ResponseWriter, r *http.Request) {
	select {
	case <-r.Context().Done():
		s.upstreams.Inc()
	case <-time.After(s.maxWait):
		w.WriteHeader(http.StatusNoContent)
	}
}

// answerTo answers with the id of the request, so that a client detects the answer to another
// request.
func answerTo(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "done: %s %s", r.URL.Path, r.URL.Query().Get("id"))
}

// newClient returns a client that keeps conns idle connections.
func newClient(conns int) *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConns: conns, MaxIdleConnsPerHost: conns, DisableCompression: true}}
}
