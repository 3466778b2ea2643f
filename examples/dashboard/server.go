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
	beatEvery      = 10 * time.Second // on average
	goesSilent     = 0.0005           // of the beats: the last ones of their connections
	oldest         = 48 * time.Hour   // of a connection: then it has to come again, with new credentials
	hedge          = 150 * time.Millisecond
	requestTimeout = 2 * time.Second
	neverAnswered  = 0.01
)

// server has an idle timeout for each of its connections, which heartbeats postpone, and a greatest
// age, which they do not. Each request that is under way has a timeout, and a timer for a second
// try beside the first.
type server struct {
	armed atomic.Uint64 // first, where 32-bit systems align it
	cfg   config
	wheel *timingwheel.TimingWheel
	jobs  *jobs

	beats, begins, ends quota
	underWay            []call // requests that will be answered

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
		s.connect(i, rand.N(idleTimeout)+time.Second) // as if they had beaten at different times
	}
	return s, nil
}

// connect begins the life of connection i, whose predecessor was cut.
func (s *server) connect(i int, idle time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	again := func() { s.connect(i, idleTimeout) }
	s.conns[i].idle.Stop()
	s.conns[i].age.Stop()
	s.conns[i] = connection{idle: s.arm(idle, again), age: s.arm(rand.N(oldest)+time.Minute, again)}
}

// arm counts what it arms, to be compared with the page: before, or the page might know of a timer
// that is not counted yet.
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
	// Requests take a tenth of a second on average: of those under way so many are answered now.
	for range min(len(s.underWay), s.ends.take(float64(len(s.underWay))/0.1, seconds)) {
		s.answer(rand.IntN(len(s.underWay)))
	}
}

// beat postpones an idle timeout. One that is due at this moment cannot be postponed: the
// connection is cut.
func (s *server) beat(i int) {
	if rand.Float64() < goesSilent {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[i].idle.Reschedule(idleTimeout)
}

// begin is a request that is answered, or is tried again as a job when it has timed out.
func (s *server) begin() {
	c := call{
		hedge:   s.arm(hedge, func() {}),
		timeout: s.arm(requestTimeout, func() { s.jobs.retry(1) }),
	}
	if rand.Float64() >= neverAnswered {
		s.underWay = append(s.underWay, c)
	}
}

func (s *server) answer(k int) {
	last := len(s.underWay) - 1
	s.underWay[k].hedge.Stop()
	s.underWay[k].timeout.Stop()
	s.underWay[k] = s.underWay[last]
	s.underWay = s.underWay[:last]
}

func (s *server) stop() { s.wheel.Stop() }
