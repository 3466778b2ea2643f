// Hundredmillion-durable keeps a million delayed messages in a directory, or a hundred million. The
// messages are on the disk, so the memory of the process hardly depends on their number.
//
// The program enqueues the messages, opens the directory again, cancels and reschedules random
// messages, and delivers messages that become due meanwhile. Each change is synced to the disk
// before its call returns. The number of messages at the end must be right.
//
//	go run ./examples/hundredmillion-durable
//	go run ./examples/hundredmillion-durable -n 100000000 -dir messages
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/sync/errgroup"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/pebblestore"
	"github.com/timingwheel-go/timingwheel/examples/internal/figures"
	"github.com/timingwheel-go/timingwheel/examples/internal/latency"
)

const (
	day       = 24 * time.Hour
	bodySize  = 128
	batchSize = 500
	producers = 16      // goroutines that enqueue
	callers   = 64      // goroutines that cancel and reschedule
	maxCalls  = 200_000 // to cancel and reschedule
	dueRate   = 20_000  // messages that become due per second
)

func main() {
	n := flag.Int("n", 1_000_000, "number of messages")
	dir := flag.String("dir", "", "new `directory` for the messages; by default a temporary one")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *n, *dir); err != nil {
		log.Fatal(cmp.Or(context.Cause(ctx), err)) // the cause is Ctrl-C
	}
}

func run(ctx context.Context, out io.Writer, n int, dir string) (err error) {
	if dir == "" {
		if dir, err = os.MkdirTemp("", "hundredmillion"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	}
	d := demo{print: log.New(out, "", 0).Printf, n: n, dir: dir}
	if err = d.use(ctx, d.fill); err == nil {
		err = d.use(ctx, d.change, d.deliver, d.check) // as after a restart
	}
	return err
}

// demo is a run of the program.
type demo struct {
	print     func(format string, args ...any)
	n         int
	dir       string
	q         *durable.Queue
	cancelled atomic.Int64
}

// use opens the directory, calls the steps and closes it.
func (d *demo) use(ctx context.Context, steps ...func(context.Context) error) error {
	start := time.Now()
	store, err := pebblestore.Open(d.dir, pebblestore.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	if d.q, err = durable.Open(ctx, store, durable.Options{Queue: "messages"}); err != nil {
		return err
	}
	defer d.q.Close()
	d.print("opened in %s", figures.Millis(time.Since(start)))
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// enqueue enqueues n messages that are due between two times. It calls added after each batch.
func (d *demo) enqueue(ctx context.Context, prefix string, n int, from, to time.Time, added func(int, time.Duration)) error {
	var next atomic.Int64
	return inParallel(ctx, producers, func(ctx context.Context, p int) error {
		random := rand.NewChaCha8([32]byte{byte(p)})
		for {
			first := int(next.Add(batchSize)) - batchSize
			if first >= n {
				return nil
			}
			batch := make([]durable.Message, min(batchSize, n-first))
			for i := range batch {
				body := make([]byte, bodySize)
				_, _ = random.Read(body) // never fails
				batch[i] = durable.Message{ID: id(prefix, first+i), Body: body, At: between(from, to)}
			}
			before := time.Now()
			if _, err := d.q.EnqueueBatch(ctx, batch); err != nil {
				return err
			}
			added(len(batch), time.Since(before))
		}
	})
}

// fill enqueues the messages and prints a line after each tenth.
func (d *demo) fill(ctx context.Context) error {
	var done, last atomic.Int64
	start, calls, tenth := time.Now(), latency.New(), int64(max(d.n/10, 1))
	err := d.enqueue(ctx, "m", d.n, start.Add(day), start.Add(30*day), func(n int, length time.Duration) {
		calls.Record(length)
		now := done.Add(int64(n))
		if now/tenth == (now-int64(n))/tenth {
			return
		}
		took := time.Since(start)
		d.print("%11s messages: %s; %s resident; %d bytes of the disk per message", figures.Comma(int(now)),
			rate(int(tenth), took-time.Duration(last.Swap(int64(took)))), resident(), diskSize(d.dir)/now)
	})
	d.print("enqueued %s messages: %s; the slowest call took %s", figures.Comma(int(done.Load())),
		rate(int(done.Load()), time.Since(start)), figures.Millis(calls.At(100)))
	return err
}

// change cancels random messages and reschedules others.
func (d *demo) change(ctx context.Context) error {
	took, start, calls := latency.New(), time.Now(), min(d.n/10, maxCalls)/callers
	err := inParallel(ctx, callers, func(ctx context.Context, _ int) (err error) {
		var result durable.Result
		for i := 0; i < calls && err == nil; i++ {
			id, before := id("m", rand.IntN(d.n)), time.Now()
			if i%2 == 0 {
				result, err = d.q.Cancel(ctx, id)
			} else {
				result, err = d.q.RescheduleAt(ctx, id, between(start.Add(day), start.Add(30*day)))
			}
			took.Record(time.Since(before))
			if result == durable.ResultCancelled {
				d.cancelled.Add(1)
			}
		}
		return err
	})
	d.print("cancelled or rescheduled %s messages: %s; p50 %s, p99 %s; %s resident", figures.Comma(took.Count()),
		rate(took.Count(), time.Since(start)), figures.Millis(took.At(50)), figures.Millis(took.At(99)), resident())
	return err
}

// deliver enqueues one more percent, due within some seconds, and delivers it.
func (d *demo) deliver(ctx context.Context) error {
	var left, early atomic.Int64
	left.Store(int64(max(d.n/100, 1)))
	late, n, length := latency.New(), int(left.Load()), time.Second+time.Duration(d.n/100)*time.Second/dueRate
	from := time.Now().Add(time.Second + length) // when all are enqueued
	err := inParallel(ctx, 2, func(ctx context.Context, k int) error {
		if k == 0 {
			return d.enqueue(ctx, "soon", n, from, from.Add(length), func(int, time.Duration) {})
		}
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		return d.q.Consume(ctx, func(_ context.Context, m *durable.Delivery) error {
			lateness := time.Since(m.Due)
			late.Record(lateness)
			if lateness < 0 {
				early.Add(1)
			}
			if left.Add(-1) == 0 {
				stop()
			}
			return nil
		}, durable.ConsumerOptions{Concurrency: callers})
	})
	d.print("delivered and acknowledged %s messages: %s; lateness p50 %s, p99 %s; %d early; %s resident", figures.Comma(late.Count()),
		rate(late.Count(), time.Since(from)), figures.Millis(late.At(50)), figures.Millis(late.At(99)), early.Load(), resident())
	if early.Load() > 0 {
		err = cmp.Or(err, fmt.Errorf("%d messages were delivered before their due times", early.Load()))
	}
	return err
}

// check prints the numbers of messages and checks the number of scheduled ones.
func (d *demo) check(ctx context.Context) error {
	st, err := d.q.Stats(ctx)
	if err != nil {
		return err
	}
	d.print("at the end: %s scheduled, %s cancelled, %s acknowledged",
		figures.Comma(int(st.Scheduled)), figures.Comma(int(st.Cancelled)), figures.Comma(int(st.Acked)))
	if want := int64(d.n) - d.cancelled.Load(); st.Scheduled != want {
		return fmt.Errorf("%d messages are scheduled; it must be %d", st.Scheduled, want)
	}
	return nil
}

// inParallel calls f in n goroutines and returns the first error, which cancels the other calls.
func inParallel(ctx context.Context, n int, f func(ctx context.Context, k int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for k := range n {
		group.Go(func() error { return f(ctx, k) })
	}
	return group.Wait()
}

// id returns the id of message n, so that the program need not store the ids. Ids that rise, like
// those that a queue generates, are found fastest.
func id(prefix string, n int) string { return fmt.Sprintf("%s%09d", prefix, n) }

func between(from, to time.Time) time.Time { return from.Add(rand.N(to.Sub(from))) }

func rate(n int, d time.Duration) string {
	return figures.Comma(int(float64(n)/d.Seconds())) + " per second"
}

// resident returns the resident memory of this process, where the system has /proc.
func resident() string {
	statm, _ := os.ReadFile("/proc/self/statm")
	var total, pages uint64
	if _, err := fmt.Sscan(string(statm), &total, &pages); err != nil {
		return "unknown memory"
	}
	return humanize.IBytes(pages * uint64(os.Getpagesize()))
}

// diskSize returns the size of the files in a directory.
func diskSize(dir string) (size int64) {
	files, _ := os.ReadDir(dir)
	for _, file := range files {
		if info, err := file.Info(); err == nil { // otherwise it has just been removed
			size += info.Size()
		}
	}
	return size
}
