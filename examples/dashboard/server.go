package main

import (
	"math/rand/v2"
	"sync"
	"time"

	"go.uber.org/atomic"

	"github.com/timingwheel-go/timingwheel"
)

const (
	idleTimeout    = 30 * time.Second
	beatEvery      = 10 * time.Second // mean interval
	goesSilent     = 0.0005           // share of beats that are not sent
	maxAge         = 48 * time.Hour   // of a connection, which must then reconnect
	hedge          = 150 * time.Millisecond
	requestTimeout = 2 * time.Second
	neverAnswered  = 0.01 // share of requests
)

// server has two timers for each connection: an idle timeout, which heartbeats postpone, and a
// maximum age. Each request in flight has a timeout and a timer for a hedged second request.
type server struct {
	armed atomic.Uint64 // first field: aligned on 32-bit systems
	cfg   config
	wheel *timingwheel.TimingWheel
	jobs  *jobs

	beats, begins, ends quota
	inFlight            []call // requests that will be answered

	mu    sync.Mutex
	conns []connection
}

type connection struct{ idle, age timingwheel.Timer }

type call struct{ hedge, timeout timingwheel.Timer }

func newServer(cfg config, j *jobs) (*server, error) {
	tw, err := timingwheel.New(timingwheel.Options{ProfileRate: 512})
	if err != nil {
		return nil, err
	}
	s := &server{cfg: cfg, wheel: tw, jobs: j, conns: make([]connection, cfg.conns)}
	for i := range s.conns {
		// As if their last beats were spread over time.
		s.connect(i, rand.N(idleTimeout)+time.Second)
	}
	return s, nil
}

// connect replaces connection i, which was cut.
func (s *server) connect(i int, idle time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	again := func() { s.connect(i, idleTimeout) }
	s.conns[i].idle.Stop()
	s.conns[i].age.Stop()
	s.conns[i] = connection{idle: s.arm(idle, again), age: s.arm(rand.N(maxAge)+time.Minute, again)}
}

// arm arms a timer and counts it for the comparison with the page. It counts first, so that the
// page never has more timers than the counter.
func (s *server) arm(d time.Duration, f func()) timingwheel.Timer {
	s.armed.Inc()
	t := s.wheel.AfterFunc(d, f)
	if t == (timingwheel.Timer{}) { // the wheel was stopped
		s.armed.Dec()
	}
	return t
}

func (s *server) step(seconds float64) {
	for range s.beats.take(float64(len(s.conns))/beatEvery.Seconds(), seconds) {
		s.beat(rand.IntN(len(s.conns)))
	}
	for range s.begins.take(float64(s.cfg.requests), seconds) {
		s.begin()
	}
	// Requests take 0.1 s on average, which determines how many are answered in this step.
	for range min(len(s.inFlight), s.ends.take(float64(len(s.inFlight))/0.1, seconds)) {
		s.answer(rand.IntN(len(s.inFlight)))
	}
}

// beat postpones an idle timeout. It has no effect if the timeout is firing: the connection is cut.
func (s *server) beat(i int) {
	if rand.Float64() < goesSilent {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[i].idle.Reschedule(idleTimeout)
}

// begin starts a request. A request that times out is retried as a job.
func (s *server) begin() {
	c := call{
		hedge:   s.arm(hedge, func() {}),
		timeout: s.arm(requestTimeout, func() { s.jobs.retry(1) }),
	}
	if rand.Float64() >= neverAnswered {
		s.inFlight = append(s.inFlight, c)
	}
}

func (s *server) answer(k int) {
	last := len(s.inFlight) - 1
	s.inFlight[k].hedge.Stop()
	s.inFlight[k].timeout.Stop()
	s.inFlight[k] = s.inFlight[last]
	s.inFlight = s.inFlight[:last]
}

func (s *server) stop() { s.wheel.Stop() }
