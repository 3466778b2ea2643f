// Eventloop simulates a day at a coffee bar without waiting for it. In Manual mode the wheel starts
// no goroutine and reads no clock: the loop asks it when the next timer is due and advances its
// clock to that moment. All callbacks run inside Advance, one after the other, so that nothing here
// needs a lock; an event loop or a game would do the same with its own clock.
package main

import (
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

const (
	opens    = 9 * time.Hour
	closes   = 17 * time.Hour
	arrivals = 90 * time.Second // between two guests, on average
	making   = 85 * time.Second // of one coffee, on average
	patience = 3 * time.Minute  // of a guest in the queue
)

func main() {
	if err := run(os.Stdout, 1); err != nil {
		log.Fatal(err)
	}
}

// bar is one day. Its queue holds the timers of waiting guests: they leave when these fire.
type bar struct {
	tw    *timingwheel.TimingWheel
	rng   *rand.Rand
	queue []timingwheel.Timer
	busy  bool

	arrived, served, left, longestQueue int
	unstoppable                         int // timers of waiting guests that could not be stopped: none
}

func run(w io.Writer, seed uint64) error {
	midnight := time.Date(2030, time.March, 1, 0, 0, 0, 0, time.UTC)
	tw, err := timingwheel.New(timingwheel.Options{
		Manual: true,
		Start:  midnight.Add(opens),
		Tick:   time.Second,
	})
	if err != nil {
		return err
	}
	defer tw.Stop()
	b := &bar{tw: tw, rng: rand.New(rand.NewPCG(seed, 0))}
	b.nextArrival()
	tw.AtFunc(midnight.Add(12*time.Hour), func() { b.report(w, "at noon") })

	for next, ok := tw.Next(); ok; next, ok = tw.Next() { // until nothing is pending
		tw.Advance(next)
	}
	b.report(w, "at the end")
	if b.arrived != b.served+b.left || len(b.queue) > 0 || b.unstoppable > 0 {
		return fmt.Errorf("%d guests arrived, %d were served, %d left, %d are waiting; %d timers could not be stopped",
			b.arrived, b.served, b.left, len(b.queue), b.unstoppable)
	}
	return nil
}

// around draws a time from half of d to one and a half, in whole seconds: the clock ticks no finer.
func (b *bar) around(d time.Duration) time.Duration {
	return (d/2 + time.Duration(b.rng.Int64N(int64(d)))).Truncate(time.Second)
}

func (b *bar) nextArrival() {
	b.tw.AfterFunc(b.around(arrivals), func() {
		if b.tw.Now().Hour() >= int(closes.Hours()) {
			return // closed: those in the queue are served still
		}
		b.arrive()
		b.nextArrival()
	})
}

func (b *bar) arrive() {
	b.arrived++
	// The guest at the head waits longest, so it is always the head whose patience ends.
	b.queue = append(b.queue, b.tw.AfterFunc(patience, func() {
		b.left++
		b.queue = b.queue[1:]
	}))
	b.longestQueue = max(b.longestQueue, len(b.queue))
	b.serve()
}

// serve makes the next coffee if there is someone to drink it.
func (b *bar) serve() {
	if b.busy || len(b.queue) == 0 {
		return
	}
	// The guest's patience may end at this very moment. It is pending nevertheless until its
	// callback begins, and Stop prevents that; else the callback would take another guest out of
	// the queue.
	if !b.queue[0].Stop() {
		b.unstoppable++
	}
	b.queue = b.queue[1:]
	b.busy = true
	b.tw.AfterFunc(b.around(making), func() {
		b.served++
		b.busy = false
		b.serve()
	})
}

func (b *bar) report(w io.Writer, when string) {
	fmt.Fprintf(w, "%s, %v: %d guests, %d served, %d left, longest queue %d\n",
		when, b.tw.Now().Format(time.TimeOnly), b.arrived, b.served, b.left, b.longestQueue)
}
