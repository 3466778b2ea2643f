package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/timingwheel-go/timingwheel"
)

// Errors of [Store.Request].
var (
	ErrNoSession = errors.New("sessions: no such session")
	ErrTooMany   = errors.New("sessions: too many requests")
)

// Ending is why a session ended.
type Ending int

// Each session ends for exactly one of these reasons.
const (
	Idle     Ending = iota // no request for too long
	Lifetime               // even if it is in use: a stolen session must not live for ever
	Logout                 // by the user or by Close
	Endings                // number of reasons
)

func (e Ending) String() string { return [...]string{"idle", "lifetime", "logout"}[e] }

// Limits of each session. All must be positive.
type Limits struct {
	Idle     time.Duration // longest time between two requests
	Lifetime time.Duration // from login; at least Idle
	Rate     rate.Limit    // requests per second, in the long run
	Burst    int           // requests in a burst
}

func (l Limits) validate() error {
	switch {
	case l.Idle <= 0:
		return fmt.Errorf("sessions: Limits.Idle is %v; it must be a positive duration", l.Idle)
	case l.Lifetime < l.Idle:
		return fmt.Errorf("sessions: Limits.Lifetime is %v; it must be at least Idle, %v", l.Lifetime, l.Idle)
	case !(l.Rate > 0):
		return fmt.Errorf("sessions: Limits.Rate is %v; it must be a positive rate", l.Rate)
	case l.Burst <= 0:
		return fmt.Errorf("sessions: Limits.Burst is %d; it must be a positive number", l.Burst)
	}
	return nil
}

// Store holds the sessions of a server. Each session has one timer. A request postpones the timer,
// which only writes the new deadline. Create a Store with [NewStore]. All methods are safe for
// concurrent use.
//
// If sessions only need an idle timeout, use package keyed: Set at login, Touch for each request,
// and a function that is called with the keys of ended sessions.
//
// The store uses the clock of the wheel. Do not stop the wheel before Close: its timers would be
// lost, and sessions would keep their memory. With a wheel in Manual mode a test controls the time,
// also for the rate limit.
type Store struct {
	tw     *timingwheel.TimingWheel
	limits Limits
	onEnd  func(id, user string, e Ending)

	mu       sync.RWMutex
	sessions map[string]*session
}

// session is a session from login to its end. On a busy machine its timer may fire late, so
// requests check the deadline. The timer frees the memory of the session.
type session struct {
	id, user string
	end      time.Time // end of the lifetime

	mu       sync.Mutex
	limiter  *rate.Limiter
	deadline time.Time
	ended    bool
	timer    timingwheel.FuncTimer
}

// NewStore returns a store without sessions. The store calls onEnd once for each session that ends,
// without holding a lock. onEnd may be nil. The error names the first invalid limit.
func NewStore(tw *timingwheel.TimingWheel, l Limits, onEnd func(id, user string, e Ending)) (*Store, error) {
	if err := l.validate(); err != nil {
		return nil, err
	}
	return &Store{tw: tw, limits: l, onEnd: onEnd, sessions: make(map[string]*session)}, nil
}

// Login begins a session and returns its random, secret id.
func (st *Store) Login(user string) (id string) {
	now := st.tw.Now()
	s := &session{
		id: rand.Text(), user: user, limiter: rate.NewLimiter(st.limits.Rate, st.limits.Burst),
		deadline: now.Add(st.limits.Idle), end: now.Add(st.limits.Lifetime),
	}
	s.mu.Lock() // until s is complete: the timer and a lookup in the map wait
	defer s.mu.Unlock()
	s.timer.Init(st.tw, st.limits.Idle, func() { st.expire(s) })
	st.mu.Lock()
	defer st.mu.Unlock()
	st.sessions[s.id] = s
	return s.id
}

// Request records a request of a session and returns its user. It returns [ErrNoSession] if the
// session has ended, and [ErrTooMany] if it exceeds its rate. A request over the rate does not keep
// the session alive, so a flood of requests with a stolen id does not either.
func (st *Store) Request(id string) (user string, err error) {
	s := st.lookup(id)
	if s == nil {
		return "", ErrNoSession
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := st.tw.Now() // with the lock, so that concurrent requests do not move the deadline back
	if s.ended || !now.Before(s.deadline) {
		return "", ErrNoSession // the timer is about to fire
	}
	if !s.limiter.AllowN(now, 1) {
		return "", ErrTooMany
	}
	s.deadline = now.Add(st.limits.Idle)
	if s.deadline.After(s.end) {
		s.deadline = s.end
	}
	s.timer.Reset(s.deadline.Sub(now))
	return s.user, nil
}

// Logout ends a session, and reports whether this call ended it. Exactly one of concurrent calls,
// or the timer, ends a session.
func (st *Store) Logout(id string) bool {
	s := st.lookup(id)
	if s == nil {
		return false
	}
	s.mu.Lock()
	if s.ended || !st.tw.Now().Before(s.deadline) {
		s.mu.Unlock()
		return false
	}
	s.ended = true
	s.timer.Stop()
	s.mu.Unlock()
	st.remove(s, Logout)
	return true
}

// expire is the callback of the timer. If a request has moved the deadline before expire has the
// lock, the session continues.
func (st *Store) expire(s *session) {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return
	}
	if left := s.deadline.Sub(st.tw.Now()); left > 0 {
		s.timer.Reset(left)
		s.mu.Unlock()
		return
	}
	s.ended = true
	how := Idle
	if s.deadline.Equal(s.end) {
		how = Lifetime
	}
	s.mu.Unlock()
	st.remove(s, how)
}

func (st *Store) lookup(id string) *session {
	st.mu.RLock()
	defer st.mu.RUnlock()
	return st.sessions[id]
}

// remove deletes the session. Only the goroutine that set s.ended calls remove.
func (st *Store) remove(s *session, how Ending) {
	st.mu.Lock()
	delete(st.sessions, s.id)
	st.mu.Unlock()
	if st.onEnd != nil {
		st.onEnd(s.id, s.user, how)
	}
}

// Len returns the number of sessions, including expired ones whose timers have not fired yet.
func (st *Store) Len() int {
	st.mu.RLock()
	defer st.mu.RUnlock()
	return len(st.sessions)
}

// Close ends all sessions as by Logout and returns their number.
func (st *Store) Close() (n int) {
	st.mu.RLock()
	ids := make([]string, 0, len(st.sessions))
	for id := range st.sessions {
		ids = append(ids, id)
	}
	st.mu.RUnlock()
	for _, id := range ids {
		if st.Logout(id) {
			n++
		}
	}
	return n
}
