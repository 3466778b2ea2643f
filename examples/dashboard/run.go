package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"go.uber.org/atomic"

	"github.com/timingwheel-go/timingwheel/debug"
)

// load is something that keeps a wheel busy.
type load interface {
	step(seconds float64) // does what is to be done in this time
	stop()                // the wheel
}

// pace is the time from one step to the next.
const pace = 20 * time.Millisecond

// run keeps the wheels busy and serves the page until ctx ends or the time is up.
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

	wheels := &debug.Handler{}
	err = errors.Join(wheels.Add("connections", s.wheel), wheels.Add("cache", c.wheel), wheels.Add("jobs", j.wheel))
	if err != nil {
		return err
	}
	p, err := serve(cfg.addr, wheels)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	fmt.Fprintf(stdout, "look at %s\n", p.url)

	drive(ctx, s, c, j)
	checked, err := check(p.url, map[string]*atomic.Uint64{"connections": &s.armed, "cache": &c.armed})
	for _, line := range checked {
		fmt.Fprintln(stdout, line)
	}
	return err
}

// drive lets the loads do what a second asks of them, in small steps, until ctx ends.
func drive(ctx context.Context, loads ...load) {
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			for _, l := range loads {
				l.step(min(now.Sub(last), time.Second).Seconds()) // a machine that stood still is not to catch up
			}
			last = now
		}
	}
}

// quota turns a rate into whole numbers, step by step, without losing the rest.
type quota struct{ rest float64 }

func (q *quota) take(rate, seconds float64) int {
	q.rest += rate * seconds
	n := int(q.rest)
	q.rest -= float64(n)
	return n
}
