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

// Ending is how a session has ended.
type Ending int

// Each session ends in exactly one of these ways.
const (
	Idle     Ending = iota // no request for too long
	Lifetime               // whatever it did: a stolen session must not live for ever
	Logout                 // by its user, or by Close
	Endings                // how many there are
)

func (e Ending) String() string { return [...]string{"idle", "lifetime", "logout"}[e] }

// Limits of each session. All must be positive.
type Limits struct {
	Idle     time.Duration // from one request to the next
	Lifetime time.Duration // from login; at least Idle
	Rate     rate.Limit    // requests in a second, in the long run
	Burst    int           // requests at once
}

func (l Limits) validate() error {
	switch {
	case l.Idle <= 0:
		return fmt.Errorf("sessions: Limits.Idle is %v; accepted is a positive duration", l.Idle)
	case l.Lifetime < l.Idle:
		return fmt.Errorf("sessions: Limits.Lifetime is %v; accepted is at least Idle, %v", l.Lifetime, l.Idle)
	case !(l.Rate > 0):
		return fmt.Errorf("sessions: Limits.Rate is %v; accepted is a positive rate", l.Rate)
	case l.Burst <= 0:
		return fmt.Errorf("sessions: Limits.Burst is %d; accepted is a positive number", l.Burst)
	}
	return nil
}

// Store holds the sessions of a server. Each has one timer, which every request moves: that writes
// the new deadline and does nothing else, so a session that is used costs no more than one that is
// not. Make one with [NewStore]; all methods may be called from any goroutine.
//
// Where it is enough that a session ends when it is idle, package keyed does all of this: Set at
// login, Touch for each request, and a function that is called with the names of those that have
// ended.
//
// The time is the wheel's, which must not be stopped before Close: its timers are lost then, and
// sessions keep their memory. With a wheel in Manual mode a test decides what time it is, for the
// limits of the rate as well.
type Store struct {
	tw     *timingwheel.TimingWheel
	limits Limits
	onEnd  func(id, user string, e Ending)

	mu       sync.RWMutex
	sessions map[string]*session
}

// session is a session from login to its end. Its timer may be late, on a busy machine, so the
// deadline counts and not whether the timer has fired: what the timer does in any case is that the
// session's memory is given back.
type session struct {
	id, user string
	end      time.Time // of its lifetime

	mu       sync.Mutex
	limiter  *rate.Limiter
	deadline time.Time
	ended    bool
	timer    timingwheel.FuncTimer
}

// NewStore returns a store without sessions. onEnd is called once for each session that ends,
// without a lock; it may be nil. It returns an error that names the limit that is not accepted.
func NewStore(tw *timingwheel.TimingWheel, l Limits, onEnd func(id, user string, e Ending)) (*Store, error) {
	if err := l.validate(); err != nil {
		return nil, err
	}
	return &Store{tw: tw, limits: l, onEnd: onEnd, sessions: make(map[string]*session)}, nil
}

// Login begins a session and returns its name, which nobody can guess.
func (st *Store) Login(user string) (id string) {
	now := st.tw.Now()
	s := &session{
		id: rand.Text(), user: user, limiter: rate.NewLimiter(st.limits.Rate, st.limits.Burst),
		deadline: now.Add(st.limits.Idle), end: now.Add(st.limits.Lifetime),
	}
	s.mu.Lock() // until it is complete: who finds it in the map, and a timer that is due at once, waits
	defer s.mu.Unlock()
	s.timer.Init(st.tw, st.limits.Idle, func() { st.expire(s) })
	st.mu.Lock()
	defer st.mu.Unlock()
	st.sessions[s.id] = s
	return s.id
}

// Request notes a request of a session and returns its user, or [ErrNoSession], or [ErrTooMany]
// where the session is over its rate. That it is so does not keep it alive: what hammers with a
// stolen name must not win time by it.
func (st *Store) Request(id string) (user string, err error) {
	s := st.lookup(id)
	if s == nil {
		return "", ErrNoSession
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := st.tw.Now() // with the lock held: two requests at once must not move the deadline back
	if s.ended || !now.Before(s.deadline) {
		return "", ErrNoSession // its timer is on its way
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

// Logout ends a session. Of several calls, and of a call and the session's own end, exactly one
// ends it; only then it returns true.
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

// expire is called by the timer. A request may have been faster to the lock: it came in time by the
// clock that it read, or the deadline is that of a moment ago. Then the session goes on.
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

// remove is called by whoever has ended the session.
func (st *Store) remove(s *session, how Ending) {
	st.mu.Lock()
	delete(st.sessions, s.id)
	st.mu.Unlock()
	if st.onEnd != nil {
		st.onEnd(s.id, s.user, how)
	}
}

// Len returns how many sessions there are, those included whose timers are on their way.
func (st *Store) Len() int {
	st.mu.RLock()
	defer st.mu.RUnlock()
	return len(st.sessions)
}

// Close ends all sessions as if their users had logged out, and returns how many.
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
