package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/urfave/cli/v3"

	"github.com/timingwheel-go/timingwheel/durable"
)

type watchOptions struct {
	interval   time.Duration
	n          int
	partitions bool
}

func (a *app) watchCommand() *cli.Command {
	o := watchOptions{interval: time.Second}
	return a.command(command{
		name: "watch", usage: "show a live table of the queue until Ctrl-C", need: watches,
		flags: []cli.Flag{
			duration("interval", "update once in this `duration`", &o.interval, 10*time.Millisecond),
			number("n", "end after `N` updates; 0 continues until Ctrl-C", &o.n, 0, math.MaxInt32),
			flag("partitions", "show each partition too", &o.partitions),
		},
		run: func(ctx context.Context, s *session, _ []string) error { return a.watch(ctx, s, o) },
	})
}

// watch reads the counts of the queue once in each interval. If the store cannot be reached, watch
// skips the update, because the next one may succeed.
func (a *app) watch(ctx context.Context, s *session, o watchOptions) error {
	show := a.viewer(o)
	tick := time.NewTicker(o.interval)
	defer tick.Stop()
	var before durable.Stats
	for updates := 1; ; updates++ {
		stats, err := s.Stats(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, durable.ErrUnavailable) && !before.Now.IsZero():
			a.faults.add(err)
		case err != nil:
			return err
		default:
			if err := show(&sample{s.Name(), stats, before}); err != nil {
				return err
			}
			before = stats
		}
		if updates == o.n {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// viewer returns a function that shows samples: as a table that is redrawn on a terminal, as JSON,
// or as lines.
func (a *app) viewer(o watchOptions) func(*sample) error {
	switch {
	case a.json:
		return func(s *sample) error { return a.printJSON(s.json(o.partitions)) }
	case a.screen != nil:
		p := &painter{w: a.stdout, size: a.screen}
		return func(s *sample) error { return p.paint(s.table(o.partitions)) }
	default:
		return func(s *sample) error { return a.print(s.lines(o.partitions)) }
	}
}

// painter redraws a block of lines.
type painter struct {
	w     io.Writer
	size  func() (columns, rows int)
	drawn int
}

// paint draws a block over the previous one. The block is cut to the screen, because lines that
// have scrolled away cannot be redrawn, and the terminal wraps long lines.
func (p *painter) paint(block string) error {
	lines := strings.Split(block, "\n")
	columns, rows := p.size()
	if most := max(rows-1, 1); len(lines) > most {
		cut := len(lines) - most + 1
		lines = append(lines[:most-1:most-1], fmt.Sprintf("… %d more lines do not fit in the window", cut))
	}
	for i, line := range lines {
		lines[i] = text.Trim(line, columns)
	}
	up := ""
	if p.drawn > 0 {
		up = fmt.Sprintf("\x1b[%dA", p.drawn)
	}
	p.drawn = len(lines)
	_, err := io.WriteString(p.w, up+"\r\x1b[J"+strings.Join(lines, "\n")+"\n")
	return err
}
