package main

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
)

// redisPart measures the queue and asynq on a server without persistence.
func redisPart(ctx context.Context, s settings, r *results) error {
	return withServer(ctx, s.redis, nil, func(srv *server, store durable.Store) error {
		for _, step := range []func(context.Context, settings, *results, *server, durable.Store) error{
			memory, enqueueAndDeliver, redisLateness, idle,
		} {
			if err := srv.client.FlushAll(ctx).Err(); err != nil {
				return err
			}
			if err := step(ctx, s, r, srv, store); err != nil {
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
func memory(ctx context.Context, s settings, r *results, srv *server, store durable.Store) error {
	before, err := srv.info(ctx, "memory", "used_memory")
	if err != nil {
		return err
	}
	if _, err := batchRate(ctx, s, r, "Redis: enqueue, in batches", store, 120_000); err != nil {
		return err
	}
	after, err := srv.info(ctx, "memory", "used_memory")
	if err != nil {
		return err
	}
	r.add("Redis: memory of a message with a body of 128 bytes", (after-before)/float64(s.messages), 400, true, bytesOf)
	return nil
}

// enqueueAndDeliver measures enqueuing by many callers and delivery with acknowledgement, and the
// same with asynq.
func enqueueAndDeliver(ctx context.Context, s settings, r *results, srv *server, store durable.Store) error {
	if _, err := eachRate(ctx, s, r, "Redis: enqueue, 64 callers, one by one", store, 60_000, callers); err != nil {
		return err
	}
	delivered, err := deliverRate(ctx, s, r, "Redis: deliver and acknowledge", store, 60_000)
	if err != nil || s.skip["asynq"] {
		return err
	}
	if err := srv.client.FlushAll(ctx).Err(); err != nil {
		return err
	}
	theirs := newAsynq(srv.addr)
	defer theirs.client.Close()
	_, deliver, err := measurePeer(ctx, s, r, "asynq", theirs, s.messages/4, callers, 5_000)
	if err == nil {
		r.add("Redis: deliver and acknowledge, ratio to asynq", delivered/deliver, 4, false, plain)
	}
	return err
}

func redisLateness(ctx context.Context, s settings, r *results, _ *server, store durable.Store) error {
	return latenessOf(ctx, s, r, "Redis", store, 5, 20)
}

// idle measures the commands of a consumer whose messages are due much later.
func idle(ctx context.Context, s settings, r *results, srv *server, store durable.Store) error {
	var calls float64
	err := withQueue(ctx, store, "idle", func(q *durable.Queue) error {
		if err := enqueueBatches(ctx, q, 1000, far); err != nil {
			return err
		}
		both, ctx := errgroup.WithContext(ctx)
		consuming, stop := context.WithCancel(ctx)
		both.Go(func() error { return ours{q}.consume(consuming, func(time.Time) {}) })
		both.Go(func() (err error) {
			defer stop()
			if err := sleep(ctx, 3*time.Second); err != nil { // until the consumer owns its partitions
				return err
			}
			calls, err = srv.callRate(ctx, time.Duration(s.seconds)*time.Second)
			return err
		})
		return both.Wait()
	})
	if err == nil {
		r.add("Redis: idle, calls a second for each partition", calls/partitions, 2, true, plain)
	}
	return err
}

// aofPart measures a server with an append-only file that is synced every second.
func aofPart(ctx context.Context, s settings, r *results) error {
	if s.redis != "" {
		r.note("Redis everysec: not measured with -redis", "–")
		return nil
	}
	return withServer(ctx, "", []string{"--appendonly", "yes", "--appendfsync", "everysec"}, func(_ *server, store durable.Store) error {
		if _, err := batchRate(ctx, s, r, "Redis everysec: enqueue, in batches", store, 80_000); err != nil {
			return err
		}
		_, err := deliverRate(ctx, s, r, "Redis everysec: deliver and acknowledge", store, 40_000)
		return err
	})
}
