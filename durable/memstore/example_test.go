package memstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

// A test sets the store's clock instead of waiting.
func ExampleNew() {
	ctx := context.Background()
	now := time.Date(2030, time.March, 1, 12, 0, 0, 0, time.UTC)
	store := memstore.New(memstore.Options{Now: func() time.Time { return now }})
	defer store.Close()
	q, err := durable.Open(ctx, store, durable.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer q.Close()
	if _, err := q.Enqueue(ctx, durable.Message{ID: "m", Delay: time.Hour}); err != nil {
		fmt.Println(err)
		return
	}

	for range 2 {
		n, err := q.CountDue(ctx, 0)
		fmt.Println("due:", n, err)
		now = now.Add(time.Hour)
	}
	// Output:
	// due: [0] <nil>
	// due: [1] <nil>
}
