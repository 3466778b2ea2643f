// Orders-durable cancels the orders of a shop that are not paid in time, and keeps the deadlines in a file. The program
// runs itself twice: the first run places orders, takes some payments and is killed, and the second run cancels the
// orders that are still unpaid when their time is up. Example orders does the same in memory.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/boltstore"
)

const timeToPay = time.Second // half an hour in a real shop

func main() {
	var err error
	if len(os.Args) == 2 {
		err = withQueue(os.Args[1], sell)
	} else {
		err = runTwice(os.Stdout)
	}
	if err != nil {
		log.Fatalln("WRONG:", err)
	}
}

func runTwice(w io.Writer) error {
	dir, err := os.MkdirTemp("", "orders")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "orders.db")
	fmt.Fprintln(w, "first run:", exec.Command(os.Args[0], file).Run())
	return withQueue(file, func(ctx context.Context, q *durable.Queue) error { return cancelUnpaid(ctx, q, w) })
}

func withQueue(file string, use func(ctx context.Context, q *durable.Queue) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	store, err := boltstore.Open(file, boltstore.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	q, err := durable.Open(ctx, store, durable.Options{Queue: "orders"})
	if err != nil {
		return err
	}
	return use(ctx, q)
}

// sell places orders 0 to 9, of which 0 to 2 are paid, and kills its own process before any order is due.
func sell(ctx context.Context, q *durable.Queue) error {
	for i := range 10 {
		id, err := q.Enqueue(ctx, durable.Message{ID: fmt.Sprint("order-", i), Delay: timeToPay})
		if err == nil && i < 3 {
			_, err = q.Cancel(ctx, id)
		}
		if err != nil {
			return err
		}
	}
	self, _ := os.FindProcess(os.Getpid()) // which exists
	return self.Kill()
}

// cancelUnpaid cancels what the queue delivers. A message may be delivered twice, which changes nothing here.
func cancelUnpaid(ctx context.Context, q *durable.Queue, w io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cancelled := map[string]bool{}
	early := 0
	err := q.Consume(ctx, func(_ context.Context, d *durable.Delivery) error {
		after := time.Since(d.Enqueued)
		fmt.Fprintf(w, "%s is cancelled after %v\n", d.ID, after.Round(time.Millisecond))
		cancelled[d.ID] = true
		if after < timeToPay {
			early++
		}
		if len(cancelled) == 7 {
			stop()
		}
		return nil
	}, durable.ConsumerOptions{Concurrency: 1})
	ids := slices.Sorted(maps.Keys(cancelled))
	if err != nil || early > 0 || len(ids) != 7 || ids[0] != "order-3" {
		return fmt.Errorf("cancelled %v, %d early, error %v; orders 3 to 9 are unpaid", ids, early, err)
	}
	fmt.Fprintln(w, "RIGHT: the 7 unpaid orders are cancelled, and the 3 paid ones are not")
	return nil
}
