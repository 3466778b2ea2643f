package durable

import (
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// The numbers of partitions of a queue.
const (
	DefaultPartitions = driver.DefaultPartitions // of a new queue if Options.Partitions is 0
	MaxPartitions     = driver.MaxPartitions
)

// Options are those of [Open]. The zero value of each field stands for its default. A negative
// value is [ErrInvalid].
type Options struct {
	// Queue is the name, 1 to 128 letters, digits, '.', '_' or '-'. Defaults to "default".
	Queue string

	// Partitions is the number of partitions, 1 to [MaxPartitions]. It is fixed when the queue is
	// made. One consumer at a time claims from a partition, so it bounds the consumers that share
	// the work. On a Redis Cluster each partition lies on one node. 0: the number of the existing
	// queue, or [DefaultPartitions].
	Partitions int

	// Existing makes Open return [ErrNoQueue] if the queue does not exist, instead of making it.
	// Tools use it, so that a misspelt name is no new queue.
	Existing bool

	// MaxBody is the largest body in bytes. Defaults to 1 MiB, up to 64 MiB.
	MaxBody int

	// MaxAttempts is the number of deliveries that may end in an error before a message is a dead
	// letter, for messages without a MaxAttempts of their own. Defaults to 25.
	MaxAttempts int

	// DeadLimit is the number of dead letters that each partition keeps. The oldest are dropped
	// first. Defaults to 100,000.
	DeadLimit int

	// DeadBytes is the number of bytes that the bodies of the dead letters of each partition may
	// take. The oldest are dropped first. The newest stays, however large it is. Defaults to 64
	// MiB.
	DeadBytes int64

	// DeadAge is how long a dead letter is kept, at least 1 ms. Defaults to 30 days.
	DeadAge time.Duration

	// RetryFor is how long a call that changes something tries again if the store cannot be
	// reached, unless its context ends before. Calls that only read, such as Get, List, Stats and
	// Audit, fail at once. Defaults to one minute, at least 1 ms, at most one hour.
	RetryFor time.Duration

	// MaxWaiting is the number of calls of Enqueue, EnqueueBatch (each of its messages), Cancel,
	// Reschedule, Replay and Purge that wait for the store or are under way. Further calls wait for
	// room until their contexts end or RetryFor is over, and are [ErrBusy] then. If the store has
	// not been reached for a second they are ErrBusy at once. Defaults to 65,536.
	MaxWaiting int

	// MaxWaitingBytes is the sum of the bodies and headers in these calls. One larger message is
	// accepted if no other call waits. Defaults to 64 MiB.
	MaxWaitingBytes int

	// Logger gets a record of each fault in the background, with the attributes queue, partition,
	// id and err as far as they apply. The level is Warn if a lease was lost or the store cannot be
	// reached, and Error otherwise. While the store cannot be reached there is at most one such
	// record a second. Nil stands for [slog.Default] as of Open. Use [slog.DiscardHandler] for
	// silence.
	Logger *slog.Logger

	// OnEvent is called for each [Event], for tests, traces and other tools. It is called on
	// several goroutines at the same time, which other calls wait for. It must not block, or wait
	// for a call that changes something in this queue. Events of one delivery come in their order;
	// others may not. Nil costs nothing.
	OnEvent func(Event)

	// OnError is called with the Err of each EventError and EventLeaseLost, under the conditions of
	// OnEvent. OnEvent tells more than the error.
	OnError func(error)
}

// withDefaults returns the options with all defaults, or [ErrInvalid].
func (o Options) withDefaults() (Options, error) {
	if o.Queue == "" {
		o.Queue = "default"
	}
	if err := driver.CheckQueueName(o.Queue); err != nil {
		return o, err
	}
	for _, f := range []struct {
		name          string
		value         *int
		standard, max int
	}{
		{"Partitions", &o.Partitions, 0, MaxPartitions},
		{"MaxBody", &o.MaxBody, 1 << 20, 64 << 20},
		{"MaxAttempts", &o.MaxAttempts, 25, math.MaxInt32},
		{"DeadLimit", &o.DeadLimit, 100_000, math.MaxInt32},
		{"MaxWaiting", &o.MaxWaiting, 1 << 16, math.MaxInt32},
		{"MaxWaitingBytes", &o.MaxWaitingBytes, 64 << 20, math.MaxInt32},
	} {
		if err := setInt(f.name, f.value, f.standard, f.max); err != nil {
			return o, err
		}
	}
	if o.DeadBytes == 0 {
		o.DeadBytes = 64 << 20
	}
	if o.DeadBytes < 0 {
		return o, fmt.Errorf("%w DeadBytes %d: 1 or more is accepted, and 0 for the default",
			ErrInvalid, o.DeadBytes)
	}
	if err := setDuration("DeadAge", &o.DeadAge, 30*24*time.Hour, time.Millisecond); err != nil {
		return o, err
	}
	if err := setDuration("RetryFor", &o.RetryFor, time.Minute, time.Millisecond); err != nil {
		return o, err
	}
	if o.RetryFor > maxRetryFor {
		return o, fmt.Errorf("%w RetryFor %v: up to %v is accepted",
			ErrInvalid, o.RetryFor, maxRetryFor)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, nil
}

// setInt gives an option its default, and checks that it is from 1 to most.
func setInt(name string, value *int, standard, most int) error {
	if *value == 0 {
		*value = standard
		return nil
	}
	if *value < 1 || *value > most {
		return fmt.Errorf("%w %s %d: 1 to %d are accepted, and 0 for the default",
			ErrInvalid, name, *value, most)
	}
	return nil
}

// setDuration gives an option its default, and checks that it is not below the least value.
func setDuration(name string, value *time.Duration, standard, least time.Duration) error {
	if *value == 0 {
		*value = standard
	}
	if *value < least {
		return fmt.Errorf("%w %s %v: %v or more is accepted, and 0 for the default (%v)",
			ErrInvalid, name, *value, least, standard)
	}
	return nil
}

// ConsumerOptions are those of [Queue.Consume] and [Queue.Receiver]. The zero value of each field
// stands for its default. A negative value is [ErrInvalid].
type ConsumerOptions struct {
	// Concurrency is the number of handlers that run at the same time. Defaults to 64, at most
	// 1,048,576.
	Concurrency int

	// HandlerTimeout is how long a handler may run. Then its context ends. If the handler has not
	// returned a second later, its lease is not extended any more, Options.OnError is called, and
	// another message is handled in its place. The message is delivered again when the lease ends,
	// which counts a crash. 0: handlers may run as long as they like.
	HandlerTimeout time.Duration

	// Backoff returns the pause after a failed delivery. Its arguments are the delivery and the
	// error of the handler, or a [*PanicError] after a panic. The number of failed deliveries is
	// d.Attempts+1. A negative pause counts as 0. It is called on the goroutine of the handler.
	// Defaults to [Exponential] of one second and one hour.
	Backoff func(d *Delivery, err error) time.Duration

	// MaxCrashes is the number of deliveries that may end with the lease, because the process
	// crashed or hung, before the message is a dead letter. Defaults to 10.
	MaxCrashes int

	// Visibility is the lease of a message that has begun. The lease is extended while the handler
	// runs, so Visibility does not bound the handler. If a consumer crashes, its messages are
	// delivered again Visibility after their leases were extended last. Defaults to 30 s, at least
	// 100 ms.
	Visibility time.Duration

	// Grace is how long Consume waits for running handlers when it ends, before it cancels their
	// contexts. Defaults to 20 s, which leaves enough of the 30 s that Kubernetes waits by default.
	// At least 1 ms.
	Grace time.Duration

	// Horizon is how far ahead of their due times messages are claimed into the wheel of this
	// process. Defaults to 500 ms, at least 10 ms.
	Horizon time.Duration

	// Prefetch is the number of messages that are claimed and have not begun. The partitions that
	// the consumer owns share it; each may have at least one. Defaults to 16,384, at most
	// 16,777,216.
	Prefetch int

	// PrefetchBytes bounds the sum of the bodies of these messages in the same way. One message may
	// always be claimed. Defaults to 64 MiB.
	PrefetchBytes int

	// Fallback is the longest time between two claims from an owned partition. Claims between them
	// follow hints of the store. Defaults to one second, at least 500 ms.
	Fallback time.Duration

	// Membership is how long a consumer keeps its partitions after its last heartbeat. It also
	// keeps its messages that have not begun, but no longer than Visibility. Defaults to half of
	// Visibility, but at least 500 ms and at most 5 s. At least 500 ms.
	Membership time.Duration
}

// withDefaults returns the options with all defaults, or [ErrInvalid].
func (o ConsumerOptions) withDefaults() (ConsumerOptions, error) {
	for _, f := range []struct {
		name          string
		value         *int
		standard, max int
	}{
		{"Concurrency", &o.Concurrency, 64, 1 << 20},
		{"Prefetch", &o.Prefetch, 16_384, 1 << 24},
		{"PrefetchBytes", &o.PrefetchBytes, 64 << 20, math.MaxInt32},
		{"MaxCrashes", &o.MaxCrashes, 10, math.MaxInt32},
	} {
		if err := setInt(f.name, f.value, f.standard, f.max); err != nil {
			return o, err
		}
	}
	if err := setDuration("Visibility", &o.Visibility, 30*time.Second, 100*time.Millisecond); err != nil {
		return o, err
	}
	for _, f := range []struct {
		name            string
		value           *time.Duration
		standard, least time.Duration
	}{
		{"Horizon", &o.Horizon, 500 * time.Millisecond, 10 * time.Millisecond},
		{"Fallback", &o.Fallback, time.Second, 500 * time.Millisecond},
		{"Grace", &o.Grace, 20 * time.Second, time.Millisecond},
		{"Membership", &o.Membership, max(500*time.Millisecond, min(o.Visibility/2, 5*time.Second)), 500 * time.Millisecond},
	} {
		if err := setDuration(f.name, f.value, f.standard, f.least); err != nil {
			return o, err
		}
	}
	if o.HandlerTimeout < 0 {
		return o, fmt.Errorf("%w HandlerTimeout %v: 0 or more is accepted, and 0 for no limit",
			ErrInvalid, o.HandlerTimeout)
	}
	if o.Backoff == nil {
		o.Backoff = Exponential(time.Second, time.Hour)
	}
	return o, nil
}
