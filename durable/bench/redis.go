package main

import (
	"context"
	"time"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
)

// redisPart measures the queue and asynq on a server without persistence.
func redisPart(ctx context.Context, s settings, r *results) error {
	return withServer(ctx, s.redis, nil, func(srv *server, store durable.Store) error {
		for _, step := range []func(context.Context, settings, *results, *server, durable.Store) error{
			memory, enqueueAndDeliver, steadyLateness, idle,
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
	q, err := openQueue(ctx, store, "memory")
	if err != nil {
		return err
	}
	defer q.Close()
	before, err := srv.info(ctx, "memory", "used_memory")
	if err != nil {
		return err
	}
	speed, err := rate(s.messages, func() error { return enqueueBatches(ctx, q, s.messages, far) })
	if err != nil {
		return err
	}
	after, err := srv.info(ctx, "memory", "used_memory")
	if err != nil {
		return err
	}
	r.add("Redis: enqueue, in batches", speed, 120_000, false, perSecond)
	r.add("Redis: memory of a message with a body of 128 bytes", (after-before)/float64(s.messages), 400, true, bytesOf)
	return nil
}

// enqueueAndDeliver measures enqueuing by many callers and delivery with acknowledgement, and the
// same with asynq.
func enqueueAndDeliver(ctx context.Context, s settings, r *results, srv *server, store durable.Store) error {
	q, err := openQueue(ctx, store, "callers")
	if err != nil {
		return err
	}
	defer q.Close()
	enqueued, err := rate(s.messages, func() error { return enqueueOne(ctx, q, s.messages, callers) })
	if err != nil {
		return err
	}
	r.add("Redis: enqueue, 64 callers, one by one", enqueued, 60_000, false, perSecond)
	delivered, err := deliverRate(ctx, s, store)
	if err != nil {
		return err
	}
	r.add("Redis: deliver and acknowledge", delivered, 60_000, false, perSecond)
	if s.skip["asynq"] {
		return nil
	}
	if err := srv.client.FlushAll(ctx).Err(); err != nil {
		return err
	}
	theirs, err := asynqRates(ctx, srv.addr, s.messages/4)
	if err != nil {
		return err
	}
	r.note("asynq: enqueue, 64 callers, one by one", perSecond(theirs.enqueue))
	r.note("asynq: deliver and acknowledge", perSecond(theirs.deliver))
	r.add("Redis: deliver and acknowledge, ratio to asynq", delivered/theirs.deliver, 4, false, plain)
	return nil
}

// deliverRate enqueues messages that are already due, and returns how many are delivered
// per second.
func deliverRate(ctx context.Context, s settings, store durable.Store) (float64, error) {
	q, err := openQueue(ctx, store, "deliver")
	if err != nil {
		return 0, err
	}
	defer q.Close()
	if err := enqueueBatches(ctx, q, s.messages, 0); err != nil {
		return 0, err
	}
	return rate(s.messages, func() error { return drain(ctx, q, s.messages, nil) })
}

// steadyLateness measures lateness at 10,000 messages per second, on the clock of this machine,
// which the server also uses.
func steadyLateness(ctx context.Context, s settings, r *results, srv *server, store durable.Store) error {
	const perSec = 10_000
	q, err := openQueue(ctx, store, "late")
	if err != nil {
		return err
	}
	defer q.Close()
	l := new(lateness)
	err = concurrently(ctx, func(ctx context.Context) error {
		return drain(ctx, q, perSec*s.seconds, func(d *durable.Delivery) { l.add(time.Since(d.Due)) })
	}, func(ctx context.Context) error {
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
		return steady(ctx, perSec, s.seconds, func(at time.Time) error {
			_, err := q.Enqueue(ctx, durable.Message{Body: body(), At: at})
			return err
		})
	})
	if err != nil {
		return err
	}
	r.add("Redis: lateness at 10k/s, p50", l.ms(0.5), 1, true, millis)
	r.add("Redis: lateness at 10k/s, p99", l.ms(0.99), 5, true, millis)
	r.add("Redis: lateness at 10k/s, p99.9", l.ms(0.999), 20, true, millis)
	r.add("Redis: early", float64(l.early), 0, true, plain)
	if s.skip["asynq"] {
		return nil
	}
	return asynqLateness(ctx, srv, s, r)
}

// idle measures the commands of a consumer whose messages are due much later.
func idle(ctx context.Context, s settings, r *results, srv *server, store durable.Store) error {
	q, err := openQueue(ctx, store, "idle")
	if err != nil {
		return err
	}
	defer q.Close()
	if err := enqueueBatches(ctx, q, 1000, far); err != nil {
		return err
	}
	consuming, stop := context.WithCancel(ctx)
	var calls float64
	err = concurrently(ctx, func(context.Context) error {
		return q.Consume(consuming, func(context.Context, *durable.Delivery) error { return nil }, durable.ConsumerOptions{})
	}, func(ctx context.Context) (err error) {
		defer stop()
		if err := sleep(ctx, 3*time.Second); err != nil { // until the consumer owns its partitions
			return err
		}
		calls, err = srv.callRate(ctx, time.Duration(s.seconds)*time.Second)
		return err
	})
	if err != nil {
		return err
	}
	r.add("Redis: idle, calls a second for each partition", calls/partitions, 2, true, plain)
	return nil
}

// aofPart measures a server with an append-only file that is synced every second.
func aofPart(ctx context.Context, s settings, r *results) error {
	if s.redis != "" {
		r.note("Redis everysec: not measured with -redis", "–")
		return nil
	}
	return withServer(ctx, "", []string{"--appendonly", "yes", "--appendfsync", "everysec"}, func(_ *server, store durable.Store) error {
		q, err := openQueue(ctx, store, "aof")
		if err != nil {
			return err
		}
		defer q.Close()
		enqueued, err := rate(s.messages, func() error { return enqueueBatches(ctx, q, s.messages, far) })
		if err != nil {
			return err
		}
		r.add("Redis everysec: enqueue, in batches", enqueued, 80_000, false, perSecond)
		delivered, err := deliverRate(ctx, s, store)
		if err != nil {
			return err
		}
		r.add("Redis everysec: deliver and acknowledge", delivered, 40_000, false, perSecond)
		return nil
	})
}
