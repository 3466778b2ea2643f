// Orders cancels the orders of a shop that are not paid in time. Placing an order arms a timer,
// paying it stops the timer, and the callback of the timer cancels the order. The result of Stop is
// exact: it is true if and only if the callback will not run. So no order is both paid and
// cancelled, and the shop needs no lock.
//
// In a real shop the time to pay would be half an hour; here it is half a second.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"go.uber.org/atomic"
)

const (
	timeToPay = 500 * time.Millisecond
	orders    = 10_000
)

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// order has no lock. pay writes to it if pay stopped the timer; otherwise the callback does.
type order struct {
	placed    time.Time
	timer     timingwheel.Timer
	paid      bool
	cancelled time.Time
}

type shop struct {
	refused atomic.Int64 // first field: aligned on 32-bit systems
	tw      *timingwheel.TimingWheel
}

func (s *shop) place() *order {
	o := &order{placed: time.Now()}
	o.timer = s.tw.AfterFunc(timeToPay, func() { o.cancelled = time.Now() })
	return o
}

func (s *shop) pay(o *order) {
	if !o.timer.Stop() {
		s.refused.Inc() // too late: the callback cancels the order
		return
	}
	o.paid = true
}

func run(w io.Writer) error {
	tw, err := timingwheel.New(timingwheel.Options{})
	if err != nil {
		return err
	}
	s := &shop{tw: tw}
	all := trade(s)
	for tw.Len() > 0 { // orders that are never paid
		time.Sleep(10 * time.Millisecond)
	}
	if err := tw.Shutdown(context.Background()); err != nil { // waits for running callbacks
		return err
	}
	return check(w, all, int(s.refused.Load()))
}

// trade places the orders and returns when all customers have acted. Six customers in ten pay in
// time, one at the last moment, one too late, and two never.
func trade(s *shop) []*order {
	var customers sync.WaitGroup
	all := make([]*order, orders)
	for i := range all {
		o := s.place()
		all[i] = o
		var after time.Duration
		switch i % 10 {
		case 0, 1:
			continue
		case 2:
			after = timeToPay + timeToPay/4
		case 3:
			after = timeToPay
		default:
			after = rand.N(timeToPay / 2)
		}
		customers.Go(func() {
			time.Sleep(after)
			s.pay(o)
		})
	}
	customers.Wait()
	return all
}

// check checks that each order is either paid or cancelled, and prints how many are.
func check(w io.Writer, all []*order, refused int) error {
	var errs []error
	paid, cancelled := 0, 0
	for i, o := range all {
		switch {
		case o.paid == !o.cancelled.IsZero():
			errs = append(errs, fmt.Errorf("order %d: paid %t, cancelled at %v", i, o.paid, o.cancelled))
		case o.paid:
			paid++
		case o.cancelled.Sub(o.placed) < timeToPay:
			errs = append(errs, fmt.Errorf("order %d: cancelled after %v", i, o.cancelled.Sub(o.placed)))
		default:
			cancelled++
		}
	}
	if never := orders / 10 * 2; cancelled != never+refused {
		errs = append(errs, fmt.Errorf("%d cancelled, but %d never paid and %d payments refused", cancelled, never, refused))
	}
	fmt.Fprintf(w, "%d orders: %d paid, %d cancelled; %d payments were too late\n", len(all), paid, cancelled, refused)
	return errors.Join(errs...)
}
