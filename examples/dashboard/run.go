package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"go.uber.org/atomic"

	"github.com/timingwheel-go/timingwheel/wheeldebug"
)

// load keeps a wheel busy.
type load interface {
	step(seconds float64) // does the work of this time
	stop()                // stops the wheel
}

// stepInterval is the time between two steps.
const stepInterval = 20 * time.Millisecond

// run keeps the wheels busy and serves the page until ctx is done or the duration has passed.
func run(ctx context.Context, cfg config, stdout io.Writer) (err error) {
	if cfg.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cfg.duration)
		defer cancel()
	}
	j, err := newJobs()
	if err != nil {
		return err
	}
	defer j.stop()
	s, err := newServer(cfg, j)
	if err != nil {
		return err
	}
	defer s.stop()
	c, err := newCache(cfg)
	if err != nil {
		return err
	}
	defer c.stop()

	wheels := &wheeldebug.Handler{}
	err = errors.Join(wheels.Add("connections", s.wheel), wheels.Add("cache", c.wheel), wheels.Add("jobs", j.wheel))
	if err != nil {
		return err
	}
	p, err := serve(cfg.addr, wheels)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	fmt.Fprintf(stdout, "serving %s\n", p.url)

	drive(ctx, s, c, j)
	checked, err := check(p.url, map[string]*atomic.Uint64{"connections": &s.armed, "cache": &c.armed})
	for _, line := range checked {
		fmt.Fprintln(stdout, line)
	}
	return err
}

// drive advances the loads in small steps, until ctx is done.
func drive(ctx context.Context, loads ...load) {
	ticker := time.NewTicker(stepInterval)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			for _, l := range loads {
				// No catching up after a stall of the machine.
				l.step(min(now.Sub(last), time.Second).Seconds())
			}
			last = now
		}
	}
}

// quota turns a rate into whole numbers and carries the fraction over.
type quota struct{ fraction float64 }

func (q *quota) take(rate, seconds float64) int {
	q.fraction += rate * seconds
	n := int(q.fraction)
	q.fraction -= float64(n)
	return n
}
