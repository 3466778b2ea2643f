package main

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/timingwheel-go/timingwheel/benchmarks/internal/results"
	"golang.org/x/perf/benchfmt"
)

// comparison is a comparison under way.
type comparison struct {
	cfg      config
	out      io.Writer
	writer   *benchfmt.Writer
	config   []benchfmt.Config
	progress *progress
	verdicts *verdicts
	written  int // results
}

var errNothing = errors.New("nothing was measured")

// run measures everything and writes it to cfg.output.
func run(ctx context.Context, cfg config, stdout, stderr io.Writer) (err error) {
	config := circumstances(cfg, time.Now()) // first: a file that is tracked makes the checkout dirty
	out := stdout
	if cfg.output != "-" {
		file, err := os.Create(cfg.output)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		out = file
	}
	jobs := plan(cfg)
	c := &comparison{cfg: cfg, out: out, writer: benchfmt.NewWriter(out), config: config,
		progress: newProgress(stderr, len(jobs), cfg.count), verdicts: newVerdicts()}
	err = c.all(ctx, jobs)
	interrupted := errors.Is(err, context.Canceled)
	if err != nil && !interrupted {
		return err
	}
	c.progress.end(c.written, cfg.output, interrupted)
	if c.written == 0 {
		return errNothing
	}
	return nil
}

// all does the jobs, cfg.count times in turn.
func (c *comparison) all(ctx context.Context, jobs []job) error {
	for turn := range c.cfg.count {
		for _, j := range jobs {
			c.progress.begin(turn)
			if err := c.one(ctx, turn, j); err != nil {
				return err
			}
		}
	}
	return nil
}

// one does a job, or says why not; in later turns it is silent about what it has said before.
func (c *comparison) one(ctx context.Context, turn int, j job) error {
	if why := j.missing(); why != "" {
		return c.skip(turn, j, why)
	}
	if _, failed := c.verdicts.failed[j.name()]; failed {
		return nil
	}
	if why := c.verdicts.foregone(j); why != "" {
		c.verdicts.failed[j.name()] = why
		return c.fail(j, why)
	}
	measured, err := measure(ctx, c.cfg, j)
	for _, r := range measured {
		r.Config = c.config
		if err := c.writer.Write(r); err != nil {
			return err
		}
		c.written++
		c.progress.result(r)
	}
	var f *failure
	if errors.As(err, &f) {
		c.verdicts.note(j, f)
		return c.fail(j, f.Error())
	}
	return err
}

func (c *comparison) skip(turn int, j job, why string) error {
	if turn > 0 {
		return nil
	}
	c.progress.say(j, why)
	return results.WriteOutcome(c.out, j.name(), false, why)
}

func (c *comparison) fail(j job, why string) error {
	c.progress.say(j, why)
	return results.WriteOutcome(c.out, j.name(), true, why)
}
