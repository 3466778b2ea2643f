// Orders-durable cancels the orders of a shop that are not paid in time. The deadlines are in the
// directory "orders", so each command is its own process and may be killed at any moment:
//
//	go run ./examples/orders-durable place order-1 order-2 order-3
//	go run ./examples/orders-durable pay order-2
//	go run ./examples/orders-durable              # cancels the others 10 s after they were placed
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/pebblestore"
)

var timeToPay = 10 * time.Second // half an hour in a real shop

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]...); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args ...string) error {
	store, err := open(len(args) == 0)
	if err != nil {
		return err
	}
	defer store.Close()
	q, err := durable.Open(ctx, store, durable.Options{Queue: "orders"})
	if err != nil {
		return err
	}
	defer q.Close()
	if len(args) == 0 {
		return q.Consume(ctx, func(_ context.Context, d *durable.Delivery) error {
			fmt.Println(d.ID, "is cancelled") // again if the process is killed before the return
			return nil
		}, durable.ConsumerOptions{})
	}
	for _, id := range args[1:] {
		switch args[0] {
		case "place":
			_, err = q.Enqueue(ctx, durable.Message{ID: id, Delay: timeToPay})
		case "pay":
			var result durable.Result
			if result, err = q.Cancel(ctx, id); err == nil && result != durable.ResultCancelled { // the deadline, not the order
				err = fmt.Errorf("%s is not waiting for its payment: %v", id, result)
			}
		default:
			err = fmt.Errorf("%q is neither place nor pay", args[0])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// open connects to the process that cancels orders. If none is running, or this is that process,
// open opens the directory itself.
func open(consume bool) (durable.Store, error) {
	if !consume {
		if store, err := pebblestore.Connect("orders"); err == nil {
			return store, nil
		}
	}
	store, err := pebblestore.Open("orders", pebblestore.Options{Socket: consume})
	if !consume && errors.Is(err, durable.ErrLocked) { // that process has just started
		return pebblestore.Connect("orders")
	}
	return store, err
}
