//go:build unix

package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/pebblestore"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
)

// envRole is an environment variable with a role in JSON, which the test binary performs instead of
// running tests.
const envRole = "TIMINGWHEEL_CHAOS_ROLE"

// role is the work of a child process. The process ends when its standard input is closed.
type role struct {
	Target target
	Events string // the file of its events
	Name   string // the prefix of ids, different for each producer

	// A producer.
	Messages int           // to enqueue; 0: not a producer
	Batch    int           // messages in a call
	MaxDelay time.Duration // delays are spread from 0 to this
	Pace     time.Duration // the pause after each call

	// CancelEvery makes the producer cancel each CancelEvery-th message at about its due time; 0:
	// none. Consumers of these messages have the same Visibility.
	CancelEvery int

	Series int // recurring messages, which the producer enqueues, changes and cancels meanwhile

	// A consumer.
	Consume     bool
	Concurrency int           // 0: 16
	Handle      time.Duration // how long a handler takes
	FailEvery   int           // each FailEvery-th first delivery fails; 0: none
	Visibility  time.Duration
	Membership  time.Duration // 0: the default for the visibility
	CrashAt     string        // "started" or "handled": the point at which the process kills itself, after CrashAfter messages
	CrashAfter  int
	Killer      bool // the message "killer" ends the process, and the message n takes n times Handle
	UntilEmpty  bool // the process ends when the queue is empty and no messages are left to enqueue
}

// target is a store that processes open. One of the first fields is set.
type target struct {
	Redis    string   // address of a server
	Sentinel []string // addresses of sentinels
	Master   string   // the name of the master
	Cluster  []string // addresses of nodes
	Dir      string   // path of a directory

	Queue       string        // its name; empty: "chaos"
	Reload      time.Duration // how often a client of a cluster reloads slots; 0: its default
	ReadTimeout time.Duration // how long a client waits for a reply; 0: two seconds
}

func (tg target) open() (durable.Store, error) {
	var client redis.UniversalClient
	timeout := cmp.Or(tg.ReadTimeout, 2*time.Second)
	switch {
	case tg.Dir != "":
		return pebblestore.Open(tg.Dir, pebblestore.Options{Logger: slog.New(slog.DiscardHandler)})
	case tg.Redis != "":
		client = redis.NewClient(&redis.Options{Addr: tg.Redis, ReadTimeout: timeout})
	case tg.Sentinel != nil:
		client = redis.NewFailoverClient(&redis.FailoverOptions{
			SentinelAddrs: tg.Sentinel, MasterName: tg.Master, DialTimeout: time.Second, ReadTimeout: timeout,
		})
	default:
		client = redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: tg.Cluster, DialTimeout: time.Second, ReadTimeout: timeout, ClusterStateReloadInterval: tg.Reload,
		})
	}
	return redisstore.New(client, redisstore.Options{AllowLossOnCrash: true})
}

// partitions is the number of partitions of the queues of these tests.
const partitions = 4

func (tg target) openQueue(ctx context.Context, onError func(error)) (*durable.Queue, durable.Store, error) {
	store, err := tg.open()
	if err != nil {
		return nil, nil, err
	}
	q, err := durable.Open(ctx, store, durable.Options{Queue: cmp.Or(tg.Queue, "chaos"), Partitions: partitions, MaxAttempts: 5, OnError: onError, Logger: slog.New(slog.DiscardHandler)})
	return q, store, err
}

func TestMain(m *testing.M) {
	text := os.Getenv(envRole)
	if text == "" {
		os.Exit(runTests(m))
	}
	var r role
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		panic(err)
	}
	if err := r.perform(); err != nil {
		fmt.Fprintln(os.Stderr, "chaos: role", r.Name, "has failed:", err)
		os.Exit(1)
	}
}

// runTests runs several tests in parallel, because most tests wait, unless -parallel is given. With
// TIMINGWHEEL_CHAOS=full tests also measure, so they run one after the other.
func runTests(m *testing.M) int {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", scaled("6", "1")); err != nil {
			panic(err)
		}
	}
	return m.Run()
}

// perform performs the role until its work is done or a signal ends it.
func (r *role) perform() error {
	ctx, end := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer end()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3) // the parent process has ended
	}()
	events, err := OpenFile(r.Events)
	if err != nil {
		return err
	}
	q, store, err := r.target(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	fmt.Println("open")
	consumed := make(chan error, 1)
	go func() {
		if !r.Consume {
			consumed <- nil
			return
		}
		consumed <- r.consume(ctx, q, events)
	}()
	if err := r.produce(ctx, q, events); err != nil {
		return err
	}
	fmt.Println("produced")
	if r.UntilEmpty {
		err = pollUntilEmpty(ctx, q, events)
		end()
	}
	err = errors.Join(err, <-consumed)
	ending, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err == nil {
		err = q.Shutdown(ending)
	}
	return err
}

// target opens the queue, and retries while the store cannot be reached.
func (r *role) target(ctx context.Context) (q *durable.Queue, s durable.Store, err error) {
	for range 100 {
		q, s, err = r.Target.openQueue(ctx, func(err error) { fmt.Fprintln(os.Stderr, r.Name, err) })
		if err == nil || ctx.Err() != nil {
			return q, s, err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil, nil, err
}

// pollUntilEmpty waits until the queue has no messages to deliver, or ctx ends. If events is not
// nil, it cancels recurring messages.
func pollUntilEmpty(ctx context.Context, q *durable.Queue, events Recorder) error {
	for ctx.Err() == nil {
		s, err := q.Stats(ctx)
		switch {
		case err == nil && s.Scheduled == 0 && s.InFlight == 0:
			return nil
		case err != nil && !errors.Is(err, durable.ErrUnavailable):
			return err
		}
		if events != nil {
			if err := endSeries(ctx, q, events); err != nil {
				return err
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	return context.Cause(ctx)
}
