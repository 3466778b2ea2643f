// Package payment is the code under test in docs/testing.md: orders that are cancelled if they are
// not paid in half an hour.
package payment

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// Timers is the part of a wheel that the service needs. A *timingwheel.TimingWheel implements it.
// The caller chooses the wheel.
type Timers interface {
	AfterFunc(d time.Duration, f func()) timingwheel.Timer
	Now() time.Time
}

// Customers are reminded after Reminder, and orders are cancelled after Timeout.
const (
	Reminder = 20 * time.Minute
	Timeout  = 30 * time.Minute
)

// State is the state of an order.
type State string

// The states of an order. The zero State belongs to an order that does not exist.
const (
	Waiting   State = "waiting"
	Reminded  State = "reminded"
	Paid      State = "paid"
	Cancelled State = "cancelled"
)

// ErrTooLate is returned if an order can no longer be paid.
var ErrTooLate = errors.New("payment: too late")

// Event is a change of an order.
type Event struct {
	Order string
	State State
	At    time.Time // by the clock of the timers
}

// Service holds orders. Create one with [New]. All methods are safe for concurrent use.
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

// New returns a service without orders. The timers call notify for each reminder and each
// cancellation, unless notify is nil.
func New(timers Timers, notify func(Event)) *Service {
	if notify == nil {
		notify = func(Event) {}
	}
	return &Service{timers: timers, notify: notify, orders: make(map[string]*order)}
}

// Place creates an order. It returns an error if the order exists.
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

// Pay pays an order. If Pay races with the timeout, exactly one of them takes effect.
func (s *Service) Pay(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.orders[id]
	switch {
	case o == nil:
		return fmt.Errorf("payment: no order %q", id)
	case !o.timeout.Stop(): // cancelled, about to be cancelled, or already paid
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

// change is the callback of the timers. It does nothing if the order was paid or cancelled after
// the callback had started.
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
