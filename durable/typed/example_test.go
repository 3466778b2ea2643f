package typed_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
	"github.com/timingwheel-go/timingwheel/durable/typed"
)

// Order is the body of the messages of the examples.
type Order struct {
	Number int
	Items  []string
}

// exampleQueue returns a queue in memory. A program opens pebblestore or redisstore.
func exampleQueue() *durable.Queue {
	q, err := durable.Open(context.Background(), memstore.New(memstore.Options{}), durable.Options{Queue: "orders", Partitions: 1})
	if err != nil {
		panic(err)
	}
	return q
}

// Bodies are JSON by default.
func ExampleQueue() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	q := exampleQueue()
	defer q.Close()

	orders := typed.New[Order](q, nil)
	_, err := orders.Enqueue(ctx, typed.Message[Order]{ID: "order-42", Body: Order{42, []string{"ticket"}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = orders.Consume(ctx, func(_ context.Context, d *typed.Delivery[Order]) error {
		fmt.Println(d.ID, d.Body.Number, d.Body.Items)
		fmt.Printf("%s\n", d.Delivery.Body)
		stop()
		return nil
	}, durable.ConsumerOptions{})
	fmt.Println("ended:", err)
	// Output:
	// order-42 42 [ticket]
	// {"Number":42,"Items":["ticket"]}
	// ended: <nil>
}

// Take returns one value at a time.
func ExampleQueue_Take() {
	ctx := context.Background()
	q := exampleQueue()
	defer q.Close()
	orders := typed.New[Order](q, nil)
	if _, err := orders.Enqueue(ctx, typed.Message[Order]{Body: Order{Number: 7}}); err != nil {
		fmt.Println(err)
		return
	}

	d, err := orders.Take(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(d.Body.Number, d.Ack(ctx))
	// Output:
	// 7 <nil>
}

// number encodes a number as eight bytes.
type number struct{}

func (number) Encode(n uint64) ([]byte, error) { return binary.BigEndian.AppendUint64(nil, n), nil }

func (number) Decode(body []byte) (uint64, error) {
	if len(body) != 8 {
		return 0, errors.New("not eight bytes")
	}
	return binary.BigEndian.Uint64(body), nil
}

// A message whose body the codec cannot decode is declined: another version may decode it.
func ExampleCodec() {
	ctx := context.Background()
	q := exampleQueue()
	defer q.Close()
	if _, err := q.Enqueue(ctx, durable.Message{ID: "text", Body: []byte("seven")}); err != nil {
		fmt.Println(err)
		return
	}
	var codec typed.Codec[uint64] = number{}
	numbers := typed.New(q, codec)
	m, err := numbers.Encode(typed.Message[uint64]{ID: "number", Body: 7, Delay: 20 * time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := q.Enqueue(ctx, m); err != nil {
		fmt.Println(err)
		return
	}

	d, err := numbers.Take(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(d.ID, d.Body, d.Ack(ctx))
	for r, err := range q.List(ctx, durable.StateScheduled) {
		fmt.Println(r.ID, r.Reason, err)
	}
	// Output:
	// number 7 <nil>
	// text typed: the body of message "text" cannot be decoded as uint64: not eight bytes <nil>
}
