// Package payment is the code that docs/testing.md tests: orders that are cancelled where they are
// not paid in half an hour.
package payment

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// Timers is the part of a wheel that the service needs. A *timingwheel.TimingWheel is one. The caller
// decides which.
type Timers interface {
	AfterFunc(d time.Duration, f func()) timingwheel.Timer
	Now() time.Time
}

// After so much time customers are reminded, and orders cancelled.
const (
	Reminder = 20 * time.Minute
	Timeout  = 30 * time.Minute
)

// State is how far an order has come.
type State string

// The states of an order. The zero State is that of an order that does not exist.
const (
	Waiting   State = "waiting"
	Reminded  State = "reminded"
	Paid      State = "paid"
	Cancelled State = "cancelled"
)

// ErrTooLate is returned where an order can no longer be paid.
var ErrTooLate = errors.New("payment: too late")

// Event is a change of an order.
type Event struct {
	Order string
	State State
	At    time.Time // by the clock of the timers
}

// Service holds orders. Make one with [New]; all methods may be called from any goroutine.
type Service struct {
	timers Timers
	notify func(Event)

	mu     sync.Mutex
	orders map[string]*order
}

type order struct {
	state    State
	reminder timingwheel.Timer
	timeout  timingwheel.Timer
}

// New returns a service without orders. notify is called for each change that time brings, on the
// goroutine of the timer, unless notify is nil.
func New(timers Timers, notify func(Event)) *Service {
	if notify == nil {
		notify = func(Event) {}
	}
	return &Service{timers: timers, notify: notify, orders: make(map[string]*order)}
}

// Place begins an order. Place returns an error if the order exists.
func (s *Service) Place(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.orders[id] != nil {
		return fmt.Errorf("payment: order %q exists", id)
	}
	o := &order{state: Waiting}
	s.orders[id] = o
	o.reminder = s.timers.AfterFunc(Reminder, func() { s.change(id, o, Reminded) })
	o.timeout = s.timers.AfterFunc(Timeout, func() { s.change(id, o, Cancelled) })
	return nil
}

// Pay pays an order. If Pay and the timeout come at the same time, exactly one of them wins.
func (s *Service) Pay(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.orders[id]
	switch {
	case o == nil:
		return fmt.Errorf("payment: no order %q", id)
	case !o.timeout.Stop(): // cancelled, just about to be, or paid before
		return ErrTooLate
	}
	o.reminder.Stop()
	o.state = Paid
	return nil
}

// State returns the state of an order.
func (s *Service) State(id string) State {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.orders[id]; o != nil {
		return o.state
	}
	return ""
}

// change is called by the timers. A reminder that has started when the order is paid, or cancelled,
// comes too late.
func (s *Service) change(id string, o *order, to State) {
	s.mu.Lock()
	late := o.state == Paid || o.state == Cancelled
	if !late {
		o.state = to
	}
	s.mu.Unlock()
	if !late {
		s.notify(Event{Order: id, State: to, At: s.timers.Now()})
	}
}
