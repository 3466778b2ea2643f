package boltstore_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/boltstore"
)

// temporaryFile returns the path of a file in a new directory, and a function that removes the
// directory.
func temporaryFile() (path string, remove func()) {
	dir, err := os.MkdirTemp("", "bolt")
	if err != nil {
		log.Fatal(err)
	}
	return filepath.Join(dir, "orders.db"), func() { _ = os.RemoveAll(dir) }
}

// openOrders opens the queue "orders" of a store.
func openOrders(store durable.Store) *durable.Queue {
	q, err := durable.Open(context.Background(), store, durable.Options{Queue: "orders"})
	if err != nil {
		log.Fatal(err)
	}
	return q
}

// A message is still scheduled after the process has ended and another one has opened the file.
func ExampleOpen() {
	ctx := context.Background()
	path, remove := temporaryFile()
	defer remove()

	store, err := boltstore.Open(path, boltstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	q := openOrders(store)
	if _, err := q.Enqueue(ctx, durable.Message{ID: "order-42", Body: []byte("2 tickets"), Delay: 10 * time.Millisecond}); err != nil {
		log.Fatal(err)
	}
	q.Close()
	if err := store.Close(); err != nil {
		log.Fatal(err)
	}

	store, err = boltstore.Open(path, boltstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	q = openOrders(store)
	defer q.Close()
	d, err := q.Take(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s: %s\n", d.ID, d.Body)
	if err := d.Ack(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: order-42: 2 tickets
}

// The clock of a test stands still until the test moves it, so a delay of an hour takes no time.
// The test leaves out fsync.
func ExampleOptions() {
	ctx := context.Background()
	path, remove := temporaryFile()
	defer remove()
	now := time.Date(2030, time.March, 1, 12, 0, 0, 0, time.UTC)

	store, err := boltstore.Open(path, boltstore.Options{Now: func() time.Time { return now }, NoSync: true})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	q := openOrders(store)
	defer q.Close()
	if _, err := q.Enqueue(ctx, durable.Message{ID: "order-42", Delay: time.Hour}); err != nil {
		log.Fatal(err)
	}
	m, err := q.Get(ctx, "order-42")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(m.Due.UTC().Format(time.TimeOnly))
	// Output: 13:00:00
}

// A backup is taken while the store is in use, and opened as a store of its own.
func ExampleStore_Backup() {
	ctx := context.Background()
	path, remove := temporaryFile()
	defer remove()
	store, err := boltstore.Open(path, boltstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	q := openOrders(store)
	defer q.Close()
	if _, err := q.Enqueue(ctx, durable.Message{ID: "order-42", Delay: time.Hour}); err != nil {
		log.Fatal(err)
	}

	var backup bytes.Buffer
	if _, err := store.Backup(ctx, &backup); err != nil {
		log.Fatal(err)
	}
	restored := path + ".restored"
	if err := os.WriteFile(restored, backup.Bytes(), 0o600); err != nil {
		log.Fatal(err)
	}
	second, err := boltstore.Open(restored, boltstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer second.Close()
	copied := openOrders(second)
	defer copied.Close()
	stats, err := copied.Stats(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("scheduled in the copy:", stats.Scheduled)
	// Output: scheduled in the copy: 1
}

// Another process, here the same one, uses the queues of a file that is in use.
func ExampleConnect() {
	ctx := context.Background()
	path, remove := temporaryFile()
	defer remove()
	owner, err := boltstore.Open(path, boltstore.Options{Socket: true})
	if err != nil {
		log.Fatal(err)
	}
	defer owner.Close()

	remote, err := boltstore.Connect(path)
	if err != nil {
		log.Fatal(err)
	}
	defer remote.Close()
	q := openOrders(remote)
	defer q.Close()
	if _, err := q.Enqueue(ctx, durable.Message{ID: "order-42", Delay: time.Hour}); err != nil {
		log.Fatal(err)
	}
	result, err := q.Cancel(ctx, "order-42")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result)
	// Output: Cancelled
}

// The copy of a file has no free pages.
func ExampleCompact() {
	path, remove := temporaryFile()
	defer remove()
	store, err := boltstore.Open(path, boltstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := store.Close(); err != nil { // Compact needs the lock of the file
		log.Fatal(err)
	}

	if err := boltstore.Compact(path, path+".compact"); err != nil {
		log.Fatal(err)
	}
	if err := os.Rename(path+".compact", path); err != nil {
		log.Fatal(err)
	}
	fmt.Println("compacted")
	// Output: compacted
}
