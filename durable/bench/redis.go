package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/bench/internal/load"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest/proctest"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
)

// redisPart measures the queue and asynq on a server without persistence.
func redisPart(ctx context.Context, b *load.Bench) error {
	return withServer(ctx, b.Server, nil, func(srv *server, store durable.Store) error {
		for _, step := range []func(context.Context, *load.Bench, *server, durable.Store) error{memory, enqueueAndDeliver, redisLateness, idle} {
			if err := srv.client.FlushAll(ctx).Err(); err != nil {
				return err
			}
			if err := step(ctx, b, srv, store); err != nil {
				return err
			}
		}
		return nil
	})
}

// withServer runs f with a server, see startServer, and a store on it.
func withServer(ctx context.Context, named string, options []string, f func(srv *server, store durable.Store) error) error {
	srv, err := startServer(ctx, named, options...)
	if err != nil {
		return err
	}
	defer srv.close()
	store, err := redisstore.New(srv.client, redisstore.Options{AllowLossOnCrash: true})
	if err != nil {
		return err
	}
	defer store.Close()
	return f(srv, store)
}

// memory measures how much memory of the server each message uses.
func memory(ctx context.Context, b *load.Bench, srv *server, store durable.Store) error {
	before, err := srv.info(ctx, "memory", "used_memory")
	if err != nil {
		return err
	}
	if _, err := b.BatchRate(ctx, "Redis: enqueue, in batches", store, 120_000); err != nil {
		return err
	}
	after, err := srv.info(ctx, "memory", "used_memory")
	if err != nil {
		return err
	}
	b.Add("Redis: memory of a message with a body of 128 bytes", (after-before)/float64(b.Messages), 400, true, bytesOf)
	return nil
}

// enqueueAndDeliver measures enqueuing by many callers and delivery with acknowledgement, and the
// same with asynq.
func enqueueAndDeliver(ctx context.Context, b *load.Bench, srv *server, store durable.Store) error {
	if _, err := b.EachRate(ctx, "Redis: enqueue, 64 callers, one by one", store, 60_000, load.Callers); err != nil {
		return err
	}
	delivered, err := b.DeliverRate(ctx, "Redis: deliver and acknowledge", store, 60_000)
	if err != nil || b.Skip["asynq"] {
		return err
	}
	if err := srv.client.FlushAll(ctx).Err(); err != nil {
		return err
	}
	theirs := asynqQueue{srv.addr, asynq.NewClient(asynq.RedisClientOpt{Addr: srv.addr, PoolSize: load.Callers})}
	defer theirs.client.Close()
	_, deliver, err := b.Peer(ctx, "asynq", theirs, b.Messages/4, load.Callers, 5_000)
	if err == nil {
		b.Add("Redis: deliver and acknowledge, ratio to asynq", delivered/deliver, 4, false, load.Plain)
	}
	return err
}

func redisLateness(ctx context.Context, b *load.Bench, _ *server, store durable.Store) error {
	return b.Lateness(ctx, "Redis", store, 10_000, [3]float64{1, 5, 20})
}

// idle measures the commands of a consumer whose messages are due much later.
func idle(ctx context.Context, b *load.Bench, srv *server, store durable.Store) error {
	var calls float64
	err := load.WithQueue(ctx, store, "idle", func(q *durable.Queue) error {
		if err := load.EnqueueBatches(ctx, q, 1000, load.Far); err != nil {
			return err
		}
		both, ctx := errgroup.WithContext(ctx)
		consuming, stop := context.WithCancel(ctx)
		both.Go(func() error { return load.Ours(q).Consume(consuming, func(time.Time) {}) })
		both.Go(func() (err error) {
			defer stop()
			if err := load.Sleep(ctx, 3*time.Second); err != nil { // until the consumer owns its partitions
				return err
			}
			calls, err = srv.callRate(ctx, time.Duration(b.Seconds)*time.Second)
			return err
		})
		return both.Wait()
	})
	if err == nil {
		b.Add("Redis: idle, calls per second per partition", calls/load.Partitions, 2, true, load.Plain)
	}
	return err
}

// aofPart measures a server with an append-only file that is synced every second.
func aofPart(ctx context.Context, b *load.Bench) error {
	if b.Server != "" {
		b.Note("Redis everysec: not measured with -redis", "–")
		return nil
	}
	return withServer(ctx, "", []string{"--appendonly", "yes", "--appendfsync", "everysec"}, func(_ *server, store durable.Store) error {
		if _, err := b.BatchRate(ctx, "Redis everysec: enqueue, in batches", store, 80_000); err != nil {
			return err
		}
		_, err := b.DeliverRate(ctx, "Redis everysec: deliver and acknowledge", store, 40_000)
		return err
	})
}

// asynqQueue is asynq as in its documentation, with 64 workers.
type asynqQueue struct {
	addr   string
	client *asynq.Client
}

func (a asynqQueue) Enqueue(ctx context.Context, delay time.Duration) error {
	due := time.Now().Add(delay)
	_, err := a.client.EnqueueContext(ctx, asynq.NewTask("task", load.BodyDue(due)), asynq.ProcessAt(due))
	return err
}

func (a asynqQueue) Consume(ctx context.Context, handle func(due time.Time)) error {
	server := asynq.NewServer(asynq.RedisClientOpt{Addr: a.addr, PoolSize: 2 * load.Callers}, asynq.Config{Concurrency: load.Callers, LogLevel: asynq.FatalLevel})
	err := server.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		handle(load.DueOf(t.Payload()))
		return nil
	}))
	if err != nil {
		return err
	}
	<-ctx.Done()
	server.Shutdown()
	return nil
}

// server is a Redis server for measurements.
type server struct {
	client *redis.Client
	addr   string
	close  func()
}

// startServer starts a private server, or deletes all data of the named one.
func startServer(ctx context.Context, named string, options ...string) (*server, error) {
	if named != "" {
		s := &server{addr: named, client: redis.NewClient(&redis.Options{Addr: named, PoolSize: 64})}
		s.close = func() { _ = s.client.Close() }
		return s, s.client.FlushAll(ctx).Err()
	}
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("redis-server is not installed (%w); use -redis to name a server", err)
	}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	port, err := proctest.ReservePort()
	if err != nil {
		return nil, err
	}
	args := append([]string{"--port", strconv.Itoa(port.Number), "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--maxmemory-policy", "noeviction"}, options...)
	process, err := proctest.Start(exec.Command(path, args...), filepath.Join(dir, "log"), os.Kill)
	if err != nil {
		return nil, err
	}
	s := &server{addr: proctest.Loopback(port.Number)}
	s.client = redis.NewClient(&redis.Options{Addr: s.addr, PoolSize: 64})
	s.close = func() {
		_ = s.client.Close()
		_ = process.End(os.Kill)
		port.Release()
		_ = os.RemoveAll(dir)
	}
	err = proctest.Eventually(proctest.Timeout, func() error {
		answering, err := s.info(ctx, "server", "process_id")
		switch {
		case ctx.Err() != nil:
			return proctest.Fatal(ctx.Err())
		case process.Ended():
			return proctest.Fatal(errors.New("it has ended"))
		case err == nil && int(answering) != process.Pid:
			return errors.New("another server has the port")
		}
		return err
	})
	if err != nil {
		s.close()
		return nil, fmt.Errorf("redis-server does not answer: %w", err)
	}
	return s, nil
}

// info reads a number from a section of INFO.
func (s *server) info(ctx context.Context, section, field string) (float64, error) {
	text, err := s.client.Info(ctx, section).Result()
	if err != nil {
		return 0, err
	}
	found := regexp.MustCompile(`(?m)^` + field + `:([0-9.]+)`).FindStringSubmatch(text)
	if found == nil {
		return 0, fmt.Errorf("INFO %s has no %s", section, field)
	}
	return strconv.ParseFloat(found[1], 64)
}

var clientCalls = regexp.MustCompile(`cmdstat_(?:eval|evalsha|subscribe|ssubscribe|ping):calls=(\d+)`)

// callRate returns how many commands per second clients send during over. Commands within scripts
// do not count.
func (s *server) callRate(ctx context.Context, over time.Duration) (sum float64, err error) {
	if err := s.client.ConfigResetStat(ctx).Err(); err != nil {
		return 0, err
	}
	if err := load.Sleep(ctx, over); err != nil {
		return 0, err
	}
	text, err := s.client.Info(ctx, "commandstats").Result()
	for _, found := range clientCalls.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.ParseFloat(found[1], 64) // digits
		sum += n
	}
	return sum / over.Seconds(), err
}
