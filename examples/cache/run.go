package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/metrics"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/timingwheel-go/timingwheel/examples/internal/figures"
)

// run runs the workers, waits until all values have expired, prints the figures and returns an
// error with the faults.
func run(ctx context.Context, cfg config, w io.Writer) error {
	before := heap()
	l := newLoad()
	c, err := New(cfg.size, l.recordEnd)
	if err != nil {
		return err
	}
	defer c.Close()
	l.work(ctx, cfg, c)
	entries, during := c.Len(), heap()
	room := (cfg.size + shards - 1) / shards * shards
	l.faults.Check(entries <= room, "%d values in a cache for %d", entries, room)
	emptied := ctx.Err() == nil && waitUntilEmpty(ctx, c, cfg.maxWait)
	if ctx.Err() == nil {
		l.faults.Check(emptied, "%d values and %d timers are left", c.Len(), c.Pending())
	}
	c.Close() // before counting
	l.checkSums(c.Len())
	after := heap()
	if emptied {
		l.checkMemory(before, during, after)
	}
	runtime.KeepAlive(c)

	l.print(w, entries, before, during, after)
	if ctx.Err() != nil {
		fmt.Fprintln(w, "interrupted: the check covers the run until then")
	}
	if err := l.faults.Err(); err != nil {
		return err
	}
	fmt.Fprintln(w, "PASS: no value was found after its expiry or missing before it, and each has ended in one way")
	return nil
}

// waitUntilEmpty waits until all values have expired and reports whether they have.
func waitUntilEmpty[K comparable, V any](ctx context.Context, c *Cache[K, V], maxWait time.Duration) bool {
	for end := time.Now().Add(maxWait); time.Now().Before(end) && ctx.Err() == nil; {
		if c.Len() == 0 && c.Pending() == 0 {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

// checkSums checks that each value has ended or is still in the cache.
func (l *load) checkSums(left int) {
	ended := int64(0)
	for r := range l.ended {
		ended += l.ended[r].Load()
	}
	l.faults.Check(ended+int64(left) == l.set.Load(), "%d values set, %d ended and %d left", l.set.Load(), ended, left)
	l.faults.Check(l.deleted.Load() == l.ended[Deleted].Load(), "%d values deleted, but %d ended as deleted", l.deleted.Load(), l.ended[Deleted].Load())
}

// checkMemory checks that the memory of the values has been freed, except for some memory of the
// runtime.
func (l *load) checkMemory(before, during, after uint64) {
	const slack = 2 << 20
	limit := before + slack
	if during > before {
		limit += (during - before) / 10
	}
	l.faults.Check(after <= limit, "the heap had %s at most and has %s at the end; at the beginning %s", humanize.IBytes(during), humanize.IBytes(after), humanize.IBytes(before))
}

// heap returns the live heap in bytes.
func heap() uint64 {
	runtime.GC()
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

func (l *load) print(w io.Writer, entries int, before, during, after uint64) {
	t := figures.Table(w, 2, 5, "values", "count", "p50", "p99", "max")
	count := func(name string, n int64) { t.AppendRow(table.Row{name, figures.Comma(int(n))}) }
	count("set", l.set.Load())
	count("found", l.hits.Load())
	count("not found", l.misses.Load())
	t.AppendSeparator()
	count("replaced", l.ended[Replaced].Load())
	count("deleted", l.ended[Deleted].Load())
	count("evicted", l.ended[Evicted].Load())
	count("expired", l.ended[Expired].Load())
	t.AppendRow(table.Row{"delay of their removal", figures.Comma(l.late.Count()), figures.Millis(l.late.At(50)), figures.Millis(l.late.At(99)), figures.Millis(l.late.At(100))})
	t.Render()
	fmt.Fprintf(w, "heap: %s at the beginning, %s with %s, %s at the end\n",
		humanize.IBytes(before), humanize.IBytes(during), figures.Plural(entries, "value"), humanize.IBytes(after))
}
