package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
)

// simulatedClient returns a client of a simulated server, so that the examples need no Redis. A
// program connects to its server, for example with Addr: "localhost:6379".
func simulatedClient() (client *redis.Client, stop func()) {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	client = redis.NewClient(&redis.Options{Addr: server.Addr()})
	return client, func() {
		_ = client.Close()
		for server.CurrentConnectionCount() > 0 { // a call in progress would find a closed server
			time.Sleep(time.Millisecond)
		}
		server.Close()
	}
}

// A queue on a single server. The clients of go-redis for Sentinel and Cluster are used in the same
// way.
func ExampleNew() {
	ctx := context.Background()
	client, stop := simulatedClient()
	defer stop()
	store, err := redisstore.New(client, redisstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close() // after the queue, and before the client
	q, err := durable.Open(ctx, store, durable.Options{Queue: "orders"})
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()

	if _, err := q.Enqueue(ctx, durable.Message{ID: "order-42", Body: []byte("2 tickets")}); err != nil {
		log.Fatal(err)
	}
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

// Connect to a server. This example is compiled and not run.
func ExampleNew_server() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer client.Close()
	store, err := redisstore.New(client, redisstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
}

// A partition accepts a limited number of messages, so that a Cluster can move it quickly. The keys
// of the program begin with its own prefix.
func ExampleOptions() {
	ctx := context.Background()
	client, stop := simulatedClient()
	defer stop()
	store, err := redisstore.New(client, redisstore.Options{Prefix: "shop", PartitionMessages: 1})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	q, err := durable.Open(ctx, store, durable.Options{Queue: "orders", Partitions: 1})
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()

	for _, id := range []string{"order-42", "order-43"} {
		_, err := q.Enqueue(ctx, durable.Message{ID: id, Delay: time.Hour})
		fmt.Println(id, "partition full:", errors.Is(err, durable.ErrFull))
	}
	fmt.Println("key of the records:", client.Exists(ctx, "shop:{orders:0}:m").Val() == 1)
	// Output:
	// order-42 partition full: false
	// order-43 partition full: true
	// key of the records: true
}

// The store does not close the client, which other parts of the program may use.
func ExampleStore_Close() {
	ctx := context.Background()
	client, stop := simulatedClient()
	defer stop()
	store, err := redisstore.New(client, redisstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := store.Close(); err != nil {
		log.Fatal(err)
	}
	_, err = durable.Open(ctx, store, durable.Options{Queue: "orders"})
	fmt.Println("closed:", errors.Is(err, durable.ErrClosed))
	fmt.Println(client.Ping(ctx).Val())
	// Output:
	// closed: true
	// PONG
}
