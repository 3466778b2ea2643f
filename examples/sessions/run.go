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

// run lets users loose on a store until all sessions have ended, prints what has happened, and
// returns an error if something was wrong.
func run(ctx context.Context, cfg config, w io.Writer) error {
	tw, err := timingwheel.New(timingwheel.Options{})
	if err != nil {
		return err
	}
	defer tw.Stop()
	c := newCrowd(cfg)
	c.store, err = NewStore(tw, cfg.limits, c.noteEnd)
	if err != nil {
		return err
	}
	c.play(ctx)
	closed := 0
	if ctx.Err() != nil {
		closed = c.store.Close()
	}
	for end := time.Now().Add(cfg.patience); c.store.Len() > 0 && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	if err := tw.Shutdown(context.Background()); err != nil { // waits for ends that are being noted
		return err
	}
	c.faults.Check(c.store.Len() == 0, "%d sessions have not ended", c.store.Len())
	if closed == 0 { // else not all have ended as their users know it
		for _, u := range c.users {
			c.judge(u)
		}
	}
	c.print(w, tw.Stats())
	if ctx.Err() != nil {
		fmt.Fprintln(w, "interrupted: what had happened by then is judged")
	}
	if err := c.faults.Err(); err != nil {
		return err
	}
	fmt.Fprintln(w, "RIGHT: each session has ended once, none before its time, and none has answered after it")
	return nil
}

func (c *crowd) print(w io.Writer, s timingwheel.Stats) {
	t := figures.Table(w, 2, 9, "users", "sessions", "accepted", "too many", "ended: idle", "lifetime", "logout", "late p50", "most")
	for k := range kinds {
		sessions, accepted, refused := 0, 0, 0
		var ended [Endings]int
		late := latency.New()
		for _, u := range c.users {
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
	fmt.Fprintf(w, "timers: %s armed, %s stopped, %s moved, %s run\n",
		figures.Comma(int(s.Armed)), figures.Comma(int(s.Stopped)), figures.Comma(int(s.Postponed)), figures.Comma(int(s.Fired)))
}
