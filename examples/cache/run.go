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

// run works with a cache until everything has expired, prints what has happened, and returns an
// error if something was wrong.
func run(ctx context.Context, cfg config, w io.Writer) error {
	atFirst := heap()
	l := newLoad()
	c, err := New(cfg.size, l.noteEnd)
	if err != nil {
		return err
	}
	defer c.Close()
	l.work(ctx, cfg, c)
	entries, atMost := c.Len(), heap()
	room := (cfg.size + shards - 1) / shards * shards
	l.faults.Check(entries <= room, "%d values in a cache for %d", entries, room)
	emptied := ctx.Err() == nil && settle(ctx, c, cfg.patience)
	if ctx.Err() == nil {
		l.faults.Check(emptied, "%d values, and %d timers, are left", c.Len(), c.Pending())
	}
	c.Close() // so that nothing moves while it is counted
	l.checkSums(c.Len())
	atLast := heap()
	if emptied {
		l.checkMemory(atFirst, atMost, atLast)
	}
	runtime.KeepAlive(c)

	l.print(w, entries, atFirst, atMost, atLast)
	if ctx.Err() != nil {
		fmt.Fprintln(w, "interrupted: what had happened by then is judged")
	}
	if err := l.faults.Err(); err != nil {
		return err
	}
	fmt.Fprintln(w, "RIGHT: no value was found after its time or missed before, and each has ended in one way")
	return nil
}

// settle waits until all has expired, and reports whether it has.
func settle[K comparable, V any](ctx context.Context, c *Cache[K, V], patience time.Duration) bool {
	for end := time.Now().Add(patience); time.Now().Before(end) && ctx.Err() == nil; {
		if c.Len() == 0 && c.Pending() == 0 {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

// checkSums checks that each value that was set has ended, or is there still.
func (l *load) checkSums(left int) {
	ended := int64(0)
	for r := range l.ended {
		ended += l.ended[r].Load()
	}
	l.faults.Check(ended+int64(left) == l.set.Load(), "%d values were set, %d have ended and %d are left", l.set.Load(), ended, left)
	l.faults.Check(l.deleted.Load() == l.ended[Deleted].Load(), "%d deleted, %d ended so", l.deleted.Load(), l.ended[Deleted].Load())
}

// checkMemory checks that what the values held has been given back. What is left over is the
// runtime's, and of no fixed size.
func (l *load) checkMemory(atFirst, atMost, atLast uint64) {
	const slack = 2 << 20
	limit := atFirst + slack
	if atMost > atFirst {
		limit += (atMost - atFirst) / 10
	}
	l.faults.Check(atLast <= limit, "of a heap of %s, %s are left, after %s at first", humanize.IBytes(atMost), humanize.IBytes(atLast), humanize.IBytes(atFirst))
}

// heap returns how many bytes are in use.
func heap() uint64 {
	runtime.GC()
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

func (l *load) print(w io.Writer, entries int, atFirst, atMost, atLast uint64) {
	t := figures.Table(w, 2, 5, "values", "count", "p50", "p99", "most")
	count := func(name string, n int64) { t.AppendRow(table.Row{name, figures.Comma(int(n))}) }
	count("set", l.set.Load())
	count("found", l.hits.Load())
	count("not found", l.misses.Load())
	t.AppendSeparator()
	count("replaced", l.ended[Replaced].Load())
	count("deleted", l.ended[Deleted].Load())
	count("evicted", l.ended[Evicted].Load())
	count("expired", l.ended[Expired].Load())
	t.AppendRow(table.Row{"removed after they had expired", figures.Comma(l.late.Count()), figures.Millis(l.late.At(50)), figures.Millis(l.late.At(99)), figures.Millis(l.late.At(100))})
	t.Render()
	fmt.Fprintf(w, "heap: %s at first, %s with %s, %s at the end\n",
		humanize.IBytes(atFirst), humanize.IBytes(atMost), figures.Plural(entries, "value"), humanize.IBytes(atLast))
}
