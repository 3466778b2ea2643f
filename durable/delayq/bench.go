package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v3"

	"github.com/timingwheel-go/timingwheel/durable"
)

type benchOptions struct {
	n, size, producers, concurrency int
	spread                          time.Duration
}

func (a *app) benchCommand() *cli.Command {
	o := benchOptions{n: 10_000, size: 128, producers: 4, concurrency: 64, spread: 5 * time.Second}
	return &cli.Command{
		Name: "bench", Usage: "measure how fast the store enqueues and delivers, and how late", Description: benchHelp,
		Flags: []cli.Flag{
			option("n", "send `N` messages, twice", number(&o.n, 1, 10_000_000)),
			option("size", "give them bodies of `N` bytes", number(&o.size, 0, maxBody)),
			option("producers", "let `N` goroutines enqueue", number(&o.producers, 1, 4096)),
			option("concurrency", "let `N` handlers run at the same time", number(&o.concurrency, 1, 4096)),
			option("spread", "let the messages of the second part be due over this `time`",
				within(&o.spread, parseSpan, time.Millisecond, time.Hour, "a duration")),
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if err := noArguments(cmd); err != nil {
				return err
			}
			return a.bench(ctx, o)
		},
	}
}

// benchQueue is the name of the queue that is measured: never the one that is worked with, as all of its messages are consumed.
func benchQueue(queue string) string { return queue + ".bench" }

// benchResult is what was measured.
type benchResult struct {
	messages         int
	enqueue, consume time.Duration
	lateness         durable.Lateness
}

// bench measures the rates first, with messages that are due at once, then the lateness.
func (a *app) bench(ctx context.Context, o benchOptions) error {
	r := benchResult{messages: o.n}
	err := a.withStore(ctx, func(store durable.Store) error {
		return a.use(ctx, store, benchQueue(a.queue), func(s *session) error {
			return a.marked(ctx, s, func(ctx context.Context) error { return a.measure(ctx, s, o, &r) })
		})
	})
	if err != nil {
		return err
	}
	return a.printBench(o, r)
}

func (a *app) measure(ctx context.Context, s *session, o benchOptions, r *benchResult) error {
	fmt.Fprintf(a.stderr, "delayq: %d messages that are due at once\n", o.n)
	if err := newBench(s, o).rates(ctx, r); err != nil {
		return err
	}
	return a.use(ctx, s.store, s.name, func(s *session) error { // opened anew, as a queue sums up its lateness
		fmt.Fprintf(a.stderr, "delayq: %d messages that are due over %v\n", o.n, o.spread)
		return newBench(s, o).lateness(ctx, r)
	})
}

type benchJSON struct {
	Messages   int     `json:"messages"`
	Bytes      int     `json:"bytes"`
	EnqueueSec float64 `json:"enqueuePerSecond"`
	ConsumeSec float64 `json:"consumePerSecond"`
	P50        float64 `json:"latenessP50Ms"`
	P99        float64 `json:"latenessP99Ms"`
	P999       float64 `json:"latenessP999Ms"`
	Max        float64 `json:"latenessMaxMs"`
}

func (a *app) printBench(o benchOptions, r benchResult) error {
	perSecond := func(d time.Duration) float64 { return float64(r.messages) / d.Seconds() }
	l := r.lateness
	if a.json {
		ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
		return a.printJSON(benchJSON{r.messages, o.size, perSecond(r.enqueue), perSecond(r.consume), ms(l.P50), ms(l.P99), ms(l.P999), ms(l.Max)})
	}
	return a.print(pairs(
		table.Row{"messages", fmt.Sprintf("%d of %d bytes, twice", r.messages, o.size)},
		table.Row{"enqueued", fmt.Sprintf("%.0f/s by %d producers", perSecond(r.enqueue), o.producers)},
		table.Row{"delivered and acked", fmt.Sprintf("%.0f/s by %d handlers", perSecond(r.consume), o.concurrency)},
		table.Row{"due in the second part", fmt.Sprintf("%.0f/s", perSecond(o.spread))},
		table.Row{"late, half of them", rounded(l.P50) + " or less"},
		table.Row{"late, 99%", rounded(l.P99) + " or less"},
		table.Row{"late, 99.9%", rounded(l.P999) + " or less"},
		table.Row{"late, the worst", rounded(l.Max)},
	))
}
