// Reminder stores reminders in a directory, so that they survive a crash. It is the first program
// of docs/durable.md:
//
//	go run ./examples/reminder
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/pebblestore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	store, err := pebblestore.Open("reminders", pebblestore.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	q, err := durable.Open(ctx, store, durable.Options{Queue: "reminders"})
	if err != nil {
		return err
	}
	defer q.Close()

	id, err := q.Enqueue(ctx, durable.Message{Body: []byte("meeting"), Delay: 2 * time.Second})
	if err != nil {
		return err
	}
	fmt.Println(id, "is stored") // it survives a crash from here on

	return q.Consume(ctx, func(_ context.Context, d *durable.Delivery) error {
		fmt.Printf("%s: %s\n", d.ID, d.Body)
		return nil // acknowledges the message; an error retries it later
	}, durable.ConsumerOptions{})
}
