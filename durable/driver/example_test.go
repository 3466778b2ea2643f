package driver_test

import (
	"context"
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

// A message is stored, claimed, begun and acknowledged. Package durable makes these calls.
func ExampleBackend() {
	ctx := context.Background()
	var store driver.Store = memstore.New(memstore.Options{})
	defer store.Close()
	backend, err := store.Open(ctx, driver.Config{
		Queue: "orders", Partitions: 1, DeadLimit: 100, DeadBytes: 1 << 20, DeadAge: time.Hour,
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	statuses, err := backend.Put(ctx, driver.Put{Items: []driver.PutItem{{ID: "m", Body: []byte("body"), MaxAttempts: 3}}})
	fmt.Println("put:", statuses, err)
	claimed, err := backend.Claim(ctx, driver.Claim{Max: 10, MaxBytes: 1 << 20, Visibility: time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	var changes []driver.Change
	for _, r := range claimed.Records {
		fmt.Printf("claimed: %s %s\n", r.ID, r.State)
		changes = append(changes, driver.Change{ID: r.ID, Token: r.Token})
	}
	for _, op := range []driver.Op{driver.OpBegin, driver.OpAck, driver.OpAck} {
		outcomes, err := backend.Apply(ctx, driver.Batch{Op: op, Visibility: time.Minute, Changes: changes})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(op, outcomes[0].Status)
	}
	// Output:
	// put: [Done] <nil>
	// claimed: m Leased
	// Begin Done
	// Ack Done
	// Ack NotFound
}

// Delays are rounded up to milliseconds, so that no message is early.
func ExampleInstant() {
	i := driver.InstantOf(time.UnixMilli(1000))
	fmt.Println(i.Add(time.Nanosecond), i.Add(time.Millisecond), i.Add(-time.Hour))
	fmt.Println(driver.Never.Add(time.Hour) == driver.Never)
	// Output:
	// 1001 1001 1000
	// true
}
