// Orders-durable cancels the orders of a shop that are not paid in time, and loses none of them however often the process that does it
// is killed. In a real shop the time to pay would be half an hour; here it is a few seconds.
//
// The shop enqueues a message with a delay for each order. Who pays cancels the message. A process of its own, the consumer, gets
// the messages that are due and cancels their orders; the shop kills it with SIGKILL at random moments and starts it again. At the end the
// program compares what was done with what the customers know. It exits with 1 if anything was wrong, with 2 for options
// that it does not accept, and with 130 if it was interrupted.
//
//	go run ./durable/examples/orders-durable
//	go run ./durable/examples/orders-durable -store redis://localhost:6379 -kills 10
//
// A file can be open in one process only. So on a file the consumer has the queue, and the shop asks it over a pipe to enqueue and to
// cancel; what was under way when it was killed is asked again of the next one. On Redis both open the queue, which is all there is to
// it; there what a consumer had claimed when it was killed comes again when its lease ends, some two seconds late.
//
// Delivery is at least once: a consumer that is killed between an effect and its acknowledgement leaves a message that is delivered
// again. So the consumer is idempotent. Read consumer.go for the handler, journal.go for the rule that makes an effect count once,
// pay in shop.go for what each answer of Cancel means, and check.go for what counts as right.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/timingwheel-go/timingwheel/durable"
)

const (
	exitRight       = 0
	exitWrong       = 1
	exitUsage       = 2
	exitInterrupted = 130
)

func main() {
	if isConsumer() {
		os.Exit(consumerMain())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	os.Exit(ordersDurable(ctx, os.Args, os.Stdout, os.Stderr))
}

// ordersDurable is the program without its process: it returns the exit code.
func ordersDurable(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, ok, err := parse(args, stdout)
	if err != nil {
		return usage(stderr, err)
	}
	if !ok { // The help was asked for and printed.
		return exitRight
	}
	out, err := run(ctx, cfg, stderr)
	switch {
	case errors.Is(err, durable.ErrInvalid):
		return usage(stderr, err)
	case err != nil:
		fmt.Fprintf(stderr, "orders-durable: %v\n", err)
		return exitWrong
	case out.interrupted:
		fmt.Fprintf(stdout, "interrupted after %d of %d orders; what had happened by then is not judged\n", out.verdict.placed, cfg.orders)
		return exitInterrupted
	}
	out.print(stdout)
	if len(out.verdict.faults) > 0 {
		return exitWrong
	}
	return exitRight
}

func usage(stderr io.Writer, err error) int {
	fmt.Fprintf(stderr, "orders-durable: %v\nSee orders-durable -help.\n", err)
	return exitUsage
}
