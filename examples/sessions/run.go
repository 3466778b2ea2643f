package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/examples/internal/figures"
	"github.com/timingwheel-go/timingwheel/examples/internal/latency"
)

// run runs the users until all sessions have ended, prints the figures and returns an error with
// the faults.
func run(ctx context.Context, cfg config, w io.Writer) error {
	tw, err := timingwheel.New(timingwheel.Options{})
	if err != nil {
		return err
	}
	defer tw.Stop()
	c := newUsers(cfg)
	c.store, err = NewStore(tw, cfg.limits, c.recordEnd)
	if err != nil {
		return err
	}
	c.run(ctx)
	closed := 0
	if ctx.Err() != nil {
		closed = c.store.Close()
	}
	for end := time.Now().Add(cfg.maxWait); c.store.Len() > 0 && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	if err := tw.Shutdown(context.Background()); err != nil { // waits for running callbacks
		return err
	}
	c.faults.Check(c.store.Len() == 0, "%d sessions have not ended", c.store.Len())
	if closed == 0 { // otherwise Close has ended some sessions
		for _, u := range c.all {
			c.check(u)
		}
	}
	c.print(w, tw.Stats())
	if ctx.Err() != nil {
		fmt.Fprintln(w, "interrupted: the check covers the run until then")
	}
	if err := c.faults.Err(); err != nil {
		return err
	}
	fmt.Fprintln(w, "PASS: each session has ended once, none early, and none has accepted a request after its end")
	return nil
}

func (c *users) print(w io.Writer, s timingwheel.Stats) {
	t := figures.Table(w, 2, 9, "users", "sessions", "accepted", "rate-limited", "ended: idle", "lifetime", "logout", "lateness p50", "max")
	for k := range kinds {
		sessions, accepted, refused := 0, 0, 0
		var ended [Endings]int
		late := latency.New()
		for _, u := range c.all {
			if u.kind != k || u.ends.Load() == 0 {
				continue
			}
			sessions++
			accepted += u.accepted
			refused += u.refused
			ending := Ending(u.ending.Load())
			ended[ending]++
			switch ending {
			case Idle:
				late.Record(u.endedAt.Load().Sub(u.lastAfter) - c.cfg.limits.Idle)
			case Lifetime:
				late.Record(u.endedAt.Load().Sub(u.after) - c.cfg.limits.Lifetime)
			}
		}
		row := table.Row{k.String()}
		for _, n := range []int{sessions, accepted, refused, ended[Idle], ended[Lifetime], ended[Logout]} {
			row = append(row, figures.Comma(n))
		}
		t.AppendRow(append(row, figures.Millis(late.At(50)), figures.Millis(late.At(100))))
	}
	t.Render()
	fmt.Fprintf(w, "timers: %s armed, %s stopped, %s postponed, %s fired\n",
		figures.Comma(int(s.Armed)), figures.Comma(int(s.Stopped)), figures.Comma(int(s.Postponed)), figures.Comma(int(s.Fired)))
}
