package durable

import (
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

// Options configures [Open]. A zero field selects its default. [Open] returns [ErrInvalid] for a
// negative value.
type Options struct {
	// Queue is the name of the queue: 1 to 128 letters, digits, '.', '_' or '-'. Defaults to
	// "default".
	Queue string

	// Partitions is the number of partitions, from 1 to 1024. It is fixed when the queue is
	// created. Any number of consumers can share them. On Redis Cluster each partition is on one
	// node. 0 means the existing queue's number of partitions, or 8 for a new queue.
	Partitions int

	// Existing makes Open return [ErrNoQueue] if the queue does not exist, instead of creating it.
	// Tools set it so that a misspelled name does not create a queue.
	Existing bool

	// The store keeps the limits MaxBody to DeadAge with the queue. 0 means the existing limit, or
	// the default for a new queue. Open returns [ErrOptions] for other values unless Update is set.

	// MaxBody is the maximum size of a body in bytes. Defaults to 1 MiB; must be at most 64 MiB.
	MaxBody int

	// MaxAttempts is the number of failed deliveries after which a message becomes a dead letter,
	// for messages without a MaxAttempts of their own. Defaults to 25.
	MaxAttempts int

	// DeadLimit is the maximum number of dead letters in each partition. The oldest are dropped
	// first. Defaults to 100,000.
	DeadLimit int

	// DeadBytes is the maximum total size of the bodies of the dead letters in each partition, in
	// bytes. The oldest are dropped first. The newest is kept regardless of its size. Defaults to
	// 64 MiB.
	DeadBytes int64

	// DeadAge is the time for which a dead letter is kept. Defaults to 30 days.
	DeadAge time.Duration

	// Update makes Open change an existing queue's limits to the limits in Options that are not 0.
	// The limits of dead letters apply immediately in a directory and in PostgreSQL. On Redis each
	// process applies them from its consumers' next heartbeat on. MaxBody and MaxAttempts apply to
	// a Queue that is opened afterwards.
	Update bool

	// RetryFor is how long a call that changes something is retried while the store is unreachable,
	// unless its context ends first. Calls that only read, and most calls to a directory, fail
	// immediately. If PostgreSQL or the process that serves a directory hangs, they fail after
	// RetryFor, clamped to 1 s to 30 s. Defaults to one minute; must be from 1 ms to one hour.
	RetryFor time.Duration

	// MaxWaiting is the maximum number of calls that wait for the store or are in progress:
	// Enqueue, Cancel, Reschedule, Replay, DeleteDead, Pause and Resume. EnqueueBatch,
	// CancelMatching, CancelAll, ReplayAll and DeleteAllDead count as one call per message, and
	// Pause and Resume as one per partition. Further calls block until there is room. They return
	// [ErrBusy] after RetryFor, or the cause of their context if it ends first. If the store has
	// been unreachable for a second, they return ErrBusy immediately. Defaults to 65,536.
	MaxWaiting int

	// MaxWaitingBytes is the maximum total size of the bodies and headers in these calls, in bytes.
	// A single larger message is accepted if no other call is waiting. Defaults to 64 MiB.
	MaxWaitingBytes int

	// Logger receives a record for each background error, with the attributes queue, partition, id
	// and err where they apply. The level is Warn if a lease was lost or the store is unreachable,
	// and Error otherwise. Failed deliveries are logged as Warn, with the attributes attempt and
	// delay too. At most one record per second is about failed deliveries, and one about failed
	// claims or an unreachable store. Each gives the number of records skipped before it. Defaults
	// to [slog.Default] at the time of Open. Use [slog.DiscardHandler] to disable logging.
	Logger *slog.Logger

	// OnEvent is called for each [Event], for tests, tracing and other tools. It is called
	// concurrently from several goroutines, and calls to the store wait for it. It must not block,
	// or wait for Consume, Healthy, Close or a call that changes something in this queue. The
	// events of one delivery are ordered, and OnEvent has received them when Consume or Close
	// returns. Other events are not ordered. A nil OnEvent costs nothing.
	OnEvent func(Event)

	// OnError is called with the Err of each EventError and EventLeaseLost. The rules for OnEvent
	// apply. OnEvent provides more detail than the error.
	OnError func(error)
}

// withDefaults returns the options with defaults filled in, or [ErrInvalid].
func (o Options) withDefaults() (Options, error) {
	if o.Queue == "" {
		o.Queue = "default"
	}
	for _, f := range []struct {
		name          string
		value         *int
		standard, max int
	}{
		{"MaxWaiting", &o.MaxWaiting, 1 << 16, math.MaxInt32},
		{"MaxWaitingBytes", &o.MaxWaitingBytes, 64 << 20, math.MaxInt32},
	} {
		if err := setInt(f.name, f.value, f.standard, f.max); err != nil {
			return o, err
		}
	}
	if err := setDuration("RetryFor", &o.RetryFor, time.Minute, time.Millisecond); err != nil {
		return o, err
	}
	if o.RetryFor > maxRetryFor {
		return o, fmt.Errorf("%w RetryFor %v; it must be at most %v",
			ErrInvalid, o.RetryFor, maxRetryFor)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, contract.CheckConfig(o.config())
}

func (o Options) config() driver.Config {
	return driver.Config{
		Queue: o.Queue, Partitions: o.Partitions, Existing: o.Existing, Update: o.Update, RetryFor: o.RetryFor,
		MaxBody: o.MaxBody, MaxAttempts: o.MaxAttempts, DeadLimit: o.DeadLimit, DeadBytes: o.DeadBytes, DeadAge: o.DeadAge,
	}
}

// setInt sets an option to its default if it is 0, and checks that it is from 1 to most.
func setInt(name string, value *int, standard, most int) error {
	if *value == 0 {
		*value = standard
		return nil
	}
	if *value < 1 || *value > most {
		return fmt.Errorf("%w %s %d; it must be from 1 to %d, or 0 for the default",
			ErrInvalid, name, *value, most)
	}
	return nil
}

// setDuration sets an option to its default if it is 0, and checks that it is at least least.
func setDuration(name string, value *time.Duration, standard, least time.Duration) error {
	if *value == 0 {
		*value = standard
	}
	if *value < least {
		return fmt.Errorf("%w %s %v; it must be at least %v, or 0 for the default (%v)",
			ErrInvalid, name, *value, least, standard)
	}
	return nil
}

// ConsumerOptions configures [Consume], [Queue.Consume] and [Queue.Receiver]. A zero field selects
// its default. These functions return [ErrInvalid] for a negative value.
type ConsumerOptions struct {
	// Concurrency is the maximum number of handlers that run concurrently. [Consume] applies it to
	// all sources together. Defaults to 64; must be at most 1,048,576.
	Concurrency int

	// HandlerTimeout is the time after which a handler's context ends. If the handler has not
	// returned one second later, the lease of its message is no longer extended, Options.OnError is
	// called, and another message is handled in its place. The message is redelivered when the
	// lease expires, which counts as a crash. 0 means no limit.
	HandlerTimeout time.Duration

	// SlowHandler is the time after which a message that is still in its handler, or was returned
	// by Take and is not settled, is reported once. The check runs several times per Membership.
	// Defaults to 30 minutes; must be at least 1 ms.
	SlowHandler time.Duration

	// Backoff returns the delay before the next attempt after a failed delivery. Its arguments are
	// the delivery and the error that the handler returned or [Delivery.Nack] received, or a
	// [*PanicError] after a panic. The number of failed deliveries is d.Attempts+1. A negative
	// delay counts as 0. Backoff is called on the goroutine that ran the handler or calls Nack. If
	// it panics, the delay is one second. Defaults to [Exponential](time.Second, time.Hour).
	Backoff func(d *Delivery, err error) time.Duration

	// MaxCrashes is the number of crashes after which a message becomes a dead letter, or a
	// recurring message stops. A crash is a delivery whose lease expires because the process has
	// crashed or hangs. The message is due again: see [driver.Backend]. From its second crash on it
	// is a suspect, which runs only while no other suspect, from any queue, runs in this process. A
	// message that brings down its process thus causes at most two crashes for each message that
	// runs beside it. Those messages become dead letters too if MaxCrashes is 1 or 2. Suspects that
	// are waiting for each other are released every ten seconds if another process has a free
	// handler. They count toward Prefetch, so a large number of them may delay other messages in
	// their partition by up to Fallback. Defaults to 10.
	MaxCrashes int

	// Visibility is the duration of the lease on a message that has begun. The lease is extended
	// while the handler runs, so Visibility does not limit the handler. If a consumer crashes, its
	// messages are redelivered when Visibility has passed since the last extension of their leases.
	// Defaults to 30 s; must be at least 100 ms.
	Visibility time.Duration

	// Grace is the time for which Consume waits for running handlers when it ends, before it
	// cancels their contexts. Defaults to 20 s, which fits within the 30 s that Kubernetes waits by
	// default. Must be at least 1 ms.
	Grace time.Duration

	// Horizon is how long before their due times messages are claimed into this process's timing
	// wheel. Defaults to 500 ms; must be at least 10 ms.
	Horizon time.Duration

	// Prefetch is the maximum number of messages that are claimed ahead and not begun. The
	// consumer's partitions share it, and each may always have at least one. With Source.Rate it is
	// at most the larger of Rate and Concurrency. Defaults to 16,384; must be at most 16,777,216.
	Prefetch int

	// PrefetchBytes is the maximum total size, in bytes, of prefetched messages' bodies, shared as
	// Prefetch is. Each partition may always have one message of any size. Defaults to 64 MiB.
	PrefetchBytes int

	// Fallback is the maximum time between two claims from an owned partition. Together, the other
	// consumers with free handlers claim from the partition about as often. Claims in between
	// follow hints from the store. Defaults to one second; must be at least 500 ms.
	Fallback time.Duration

	// Membership is how long a consumer keeps its partitions after its last heartbeat. For the same
	// time, but no longer than Visibility, it keeps messages that have not begun. Defaults to half
	// of Visibility, but at least 500 ms and at most 5 s. Values below 500 ms are invalid.
	Membership time.Duration

	// Tool marks a consumer that only looks at the queue or takes a few messages. It owns no
	// partitions unless all consumers are tools, and no consumer gives up messages for a tool.
	Tool bool
}

// withDefaults returns the options with defaults filled in, or [ErrInvalid].
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
		{"SlowHandler", &o.SlowHandler, 30 * time.Minute, time.Millisecond},
		{"Membership", &o.Membership, max(500*time.Millisecond, min(o.Visibility/2, 5*time.Second)), 500 * time.Millisecond},
	} {
		if err := setDuration(f.name, f.value, f.standard, f.least); err != nil {
			return o, err
		}
	}
	if o.HandlerTimeout < 0 {
		return o, fmt.Errorf("%w HandlerTimeout %v; it must be positive, or 0 for no limit",
			ErrInvalid, o.HandlerTimeout)
	}
	if o.Backoff == nil {
		o.Backoff = Exponential(time.Second, time.Hour)
	}
	return o, nil
}
