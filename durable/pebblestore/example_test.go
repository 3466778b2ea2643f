package pebblestore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/pebblestore"
)

// A service has the directory open and consumes. A tool enqueues through its socket.
func ExampleConnect() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "orders")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	service, err := pebblestore.Open(dir, pebblestore.Options{Socket: true})
	if err != nil {
		panic(err)
	}
	defer service.Close()
	consumer, err := durable.Open(ctx, service, durable.Options{Queue: "orders"})
	if err != nil {
		panic(err)
	}
	defer consumer.Close()

	tool, err := pebblestore.Connect(dir)
	if err != nil {
		panic(err)
	}
	defer tool.Close()
	producer, err := durable.Open(ctx, tool, durable.Options{Queue: "orders"})
	if err != nil {
		panic(err)
	}
	defer producer.Close()
	if _, err := producer.Enqueue(ctx, durable.Message{ID: "order-42", Body: []byte("cancel it")}); err != nil {
		panic(err)
	}

	d, err := consumer.Take(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s: %s\n", d.ID, d.Body)
	if err := d.Ack(ctx); err != nil {
		panic(err)
	}
	// Output: order-42: cancel it
}

// A backup is a directory, which is opened like any other.
func ExampleStore_Backup() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "reminders")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	store, err := pebblestore.Open(filepath.Join(dir, "queue"), pebblestore.Options{})
	if err != nil {
		panic(err)
	}
	defer store.Close()
	q, err := durable.Open(ctx, store, durable.Options{})
	if err != nil {
		panic(err)
	}
	defer q.Close()
	if _, err := q.Enqueue(ctx, durable.Message{ID: "meeting", Delay: time.Hour}); err != nil {
		panic(err)
	}
	if err := store.Backup(ctx, filepath.Join(dir, "backup")); err != nil {
		panic(err)
	}

	backup, err := pebblestore.OpenSnapshot(ctx, filepath.Join(dir, "backup"), pebblestore.Options{})
	if err != nil {
		panic(err)
	}
	defer backup.Close()
	copied, err := durable.Open(ctx, backup, durable.Options{Existing: true})
	if err != nil {
		panic(err)
	}
	defer copied.Close()
	r, err := copied.Get(ctx, "meeting")
	fmt.Println(r.ID, r.State, err)
	// Output: meeting Scheduled <nil>
}
