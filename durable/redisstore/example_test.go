package redisstore_test

import (
	"context"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
)

// A queue on a single server. The clients of go-redis for Sentinel and Cluster are used in the same
// way.
func ExampleNew() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer client.Close()
	store, err := redisstore.New(client, redisstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	q, err := durable.Open(ctx, store, durable.Options{Queue: "orders"})
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()
}
