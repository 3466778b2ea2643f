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

// kind is what a handler does.
type kind int

const (
	quick    kind = iota // answers at once
	patient              // waits for its context
	deaf                 // ignores its context
	upstream             // calls another server, which is patient
	kinds
)

func (k kind) path() string { return [kinds]string{"/quick", "/patient", "/deaf", "/upstream"}[k] }

func (k kind) String() string { return k.path()[1:] }

const refusal = "not done in time"

// server is the server under test and the one that it calls. Its handlers count what they did.
type server struct {
	begun     [kinds]atomic.Int64
	told      atomic.Int64 // handlers whose context had ended with its deadline
	upstreams atomic.Int64 // requests that the second server saw end because of the deadline of the first

	timeout time.Duration
	enough  time.Duration   // handlers wait no longer than this
	over    <-chan struct{} // Ctrl-C: no handler waits any more
	first   *http.Server
	second  *http.Server
	client  *http.Client // of the first for the second
	url     string
	next    string // the second's
}

// start serves both on the loopback interface. limit wraps the handlers of the first. Where ctx
// ends, handlers end as well.
func start(ctx context.Context, cfg config, limit func(http.Handler) http.Handler) (*server, error) {
	s := &server{timeout: cfg.timeout, enough: cfg.timeout + cfg.enough, over: ctx.Done(), client: newClient(cfg.clients)}
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
	mux.HandleFunc("GET "+patient.path(), s.patient)
	mux.HandleFunc("GET "+deaf.path(), s.deaf)
	mux.HandleFunc("GET "+upstream.path(), s.upstream)
	s.first = &http.Server{Handler: limit(mux), ReadHeaderTimeout: time.Minute}
	s.second = &http.Server{Handler: http.HandlerFunc(s.unhurried), ReadHeaderTimeout: time.Minute}
	// Serve returns when close is called. If it fails before that, requests fail, and the clients
	// say so.
	go func() { _ = s.first.Serve(first) }()
	go func() { _ = s.second.Serve(second) }()
	return s, nil
}

// close waits for the handlers that are under way.
func (s *server) close(ctx context.Context) error {
	err := s.first.Shutdown(ctx)
	s.client.CloseIdleConnections()
	return errors.Join(err, s.second.Shutdown(ctx))
}

func (s *server) quick(w http.ResponseWriter, r *http.Request) {
	s.begun[quick].Inc()
	answerTo(w, r)
}

// patient stands for whatever watches the context: a query, a lock, a queue.
func (s *server) patient(w http.ResponseWriter, r *http.Request) {
	s.begun[patient].Inc()
	s.waitFor(r)
	answerTo(w, r) // in vain: the deadline has passed
}

// waitFor waits for the end of the request, and for so long at most that nothing hangs where no
// deadline comes.
func (s *server) waitFor(r *http.Request) {
	enough := time.NewTimer(s.enough)
	defer enough.Stop()
	select {
	case <-r.Context().Done():
		if errors.Is(r.Context().Err(), context.DeadlineExceeded) {
			s.told.Inc()
		}
	case <-enough.C:
	}
}

// deaf does what a handler should not: compute, or call something that knows no context.
func (s *server) deaf(w http.ResponseWriter, r *http.Request) {
	s.begun[deaf].Inc()
	select { // not on the request's context, that is
	case <-time.After(s.timeout + s.timeout/4):
	case <-s.over:
	}
	answerTo(w, r)
}

// upstream passes its context on, and with it the deadline.
func (s *server) upstream(w http.ResponseWriter, r *http.Request) {
	s.begun[upstream].Inc()
	out, err := http.NewRequestWithContext(r.Context(), http.MethodGet, s.next, nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	response, err := s.client.Do(out)
	if err != nil { // the deadline, or else something that must not be
		if errors.Is(err, context.DeadlineExceeded) {
			s.told.Inc()
		}
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	_ = response.Body.Close()
	http.Error(w, "the second server answered: "+response.Status, http.StatusBadGateway)
}

// unhurried is the second server's handler. Its context has no deadline: it ends when the first one
// hangs up.
func (s *server) unhurried(w http.ResponseWriter, r *http.Request) {
	enough := time.NewTimer(s.enough)
	defer enough.Stop()
	select {
	case <-r.Context().Done():
		s.upstreams.Inc()
	case <-enough.C:
		w.WriteHeader(http.StatusNoContent)
	}
}

// answerTo says which request it answers, so that a client notices another's.
func answerTo(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "done: %s %s", r.URL.Path, r.URL.Query().Get("id"))
}

// newClient keeps a connection for each goroutine that uses it.
func newClient(conns int) *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConns: conns, MaxIdleConnsPerHost: conns, DisableCompression: true}}
}
