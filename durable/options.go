package durable

import (
	"fmt"
	"math"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// The numbers of partitions of a queue.
const (
	DefaultPartitions = driver.DefaultPartitions // of a new queue if Options.Partitions is 0
	MaxPartitions     = driver.MaxPartitions
)

// Options are those of [Open]. The zero value of each field stands for its default.
type Options struct {
	// Queue is the name, 1 to 128 letters, digits, '.', '_' or '-'. Defaults to "default".
	Queue string

	// Partitions is how many parts the queue has, 1 to [MaxPartitions], fixed when it is made. Each is claimed by one consumer at a time, and on
	// a Redis Cluster each lies on one node. 0: those of the existing queue, or [DefaultPartitions].
	Partitions int

	// MaxBody is the largest body in bytes. Defaults to 1 MiB, up to 64 MiB.
	MaxBody int

	// MaxAttempts is the number of deliveries that may end in an error, for messages that do not say so themselves. Defaults to 25.
	MaxAttempts int

	// DeadLimit is the number of dead letters that each partition keeps. The oldest go first. Defaults to 100,000.
	DeadLimit int

	// DeadBytes is the number of bytes that the bodies of the dead letters of each partition may take. The oldest go first, and the newest stays
	// however large it is. Defaults to 64 MiB.
	DeadBytes int64

	// DeadAge is how long a dead letter is kept. Defaults to 30 days.
	DeadAge time.Duration

	// RetryFor is how long a call that changes something goes on trying if the store cannot be reached and its context lets it. Calls that
	// only read, such as Get, List, Stats and Audit, fail at once. Defaults to one minute, at most one hour.
	RetryFor time.Duration

	// MaxWaiting is the number of calls of Enqueue, EnqueueBatch (each of its messages), Cancel, Reschedule, Replay and Purge that wait for
	// the store or are under way at a time. Further calls wait for room until their context ends or RetryFor is over, and are
	// [ErrBusy] then. While the store has not been reached for a second they are ErrBusy at once. Defaults to 65,536.
	MaxWaiting int

	// MaxWaitingBytes is the sum of the bodies in these calls; one larger message is accepted if it is alone. Defaults to 64 MiB.
	MaxWaitingBytes int

	// OnError is told of what goes wrong in the background: the store cannot be reached, a lease was lost. It is called from several goroutines at
	// the same time, on which other calls wait. So it must not block, nor wait for a call that changes something in this queue: that may
	// wait for the one whose failure is told. Nil: nobody is told.
	OnError func(error)
}

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
		return o, fmt.Errorf("%w DeadBytes %d: 1 or more is accepted, and 0 for the default", ErrInvalid, o.DeadBytes)
	}
	if err := setDuration("DeadAge", &o.DeadAge, 30*24*time.Hour, time.Millisecond); err != nil {
		return o, err
	}
	if err := setDuration("RetryFor", &o.RetryFor, time.Minute, time.Millisecond); err != nil {
		return o, err
	}
	if o.RetryFor > maxRetryFor {
		return o, fmt.Errorf("%w RetryFor %v: up to %v is accepted", ErrInvalid, o.RetryFor, maxRetryFor)
	}
	if o.OnError == nil {
		o.OnError = func(error) {}
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
		return fmt.Errorf("%w %s %d: 1 to %d are accepted, and 0 for the default", ErrInvalid, name, *value, most)
	}
	return nil
}

func setDuration(name string, value *time.Duration, standard, least time.Duration) error {
	if *value == 0 {
		*value = standard
	}
	if *value < least {
		return fmt.Errorf("%w %s %v: %v or more is accepted, and 0 for the default (%v)", ErrInvalid, name, *value, least, standard)
	}
	return nil
}

// ConsumerOptions are those of [Queue.Consume] and of [Queue.Receiver]. The zero value of each field stands for its default.
type ConsumerOptions struct {
	// Concurrency is the number of handlers at the same time. Defaults to 64.
	Concurrency int

	// Visibility is how long a message that was begun is kept from others without a sign of life. The lease is extended while the handler runs,
	// so this is not the time that a handler may take, but the time after which what a crashed process had begun is
	// delivered again. Defaults to 30 s, at least 100 ms.
	Visibility time.Duration

	// Horizon is how far ahead of their due times messages are claimed into the wheel of this process. Defaults to 500 ms, at least 10 ms.
	Horizon time.Duration

	// Prefetch is the number of messages that are claimed and not begun, at most, shared by the partitions that the consumer owns; each of them
	// may have one at least. Defaults to 16,384.
	Prefetch int

	// PrefetchBytes is the sum of their bodies at which claiming stops, shared likewise. Defaults to 64 MiB.
	PrefetchBytes int

	// Fallback is how often an owned partition is looked at where no hint comes. Defaults to one second, at least 500 ms.
	Fallback time.Duration

	// Membership is how long a consumer that gives no sign of life keeps its partitions, and the messages that it has claimed ahead and not
	// begun, if Visibility is not shorter. Defaults to half of Visibility, but 500 ms to 5 s. At least 500 ms.
	Membership time.Duration

	// MaxCrashes is the number of deliveries that may end with the lease, as the process that had begun them has crashed or hung, before
	// the message is a dead letter. Defaults to 10.
	MaxCrashes int

	// HandlerTimeout is how long a handler may take. Then its context ends. If the handler has not
	// returned a second later, its lease is not extended any more, Options.OnError is told, and another
	// message is handled in its place; its message comes again when the lease ends, which counts a
	// crash. 0: handlers may take as long as they like.
	HandlerTimeout time.Duration

	// Grace is how long Consume waits for running handlers when it ends, before it cancels their
	// contexts. Defaults to 20 s, which leaves Kubernetes' default of 30 s enough for the rest. At
	// least 1 ms.
	Grace time.Duration

	// Backoff returns the pause after a failed delivery, from the delivery and the handler's error, or
	// a [*PanicError] after a panic. The number of failed deliveries is d.Attempts+1. A negative pause
	// counts as 0. It is called on the goroutine of the handler. Defaults to [Exponential] of one second
	// and one hour.
	Backoff func(d *Delivery, err error) time.Duration
}

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
		return o, fmt.Errorf("%w HandlerTimeout %v: 0 or more is accepted, and 0 for no limit", ErrInvalid, o.HandlerTimeout)
	}
	if o.Backoff == nil {
		o.Backoff = Exponential(time.Second, time.Hour)
	}
	return o, nil
}
