package main

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
)

const asynqTask = "task"

type asynqSpeeds struct{ enqueue, deliver float64 }

// asynqRates measures asynq as in its documentation: 64 callers enqueue, and a server with 64
// workers handles the tasks.
func asynqRates(ctx context.Context, addr string, n int) (asynqSpeeds, error) {
	client := asynq.NewClient(asynq.RedisClientOpt{Addr: addr, PoolSize: callers})
	defer client.Close()
	var speeds asynqSpeeds
	var err error
	var next atomic.Int64
	speeds.enqueue, err = rate(n, func() error {
		return inParallel(callers, func(int) error {
			for next.Add(1) <= int64(n) {
				if _, err := client.EnqueueContext(ctx, asynq.NewTask(asynqTask, body())); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return speeds, err
	}
	speeds.deliver, err = rate(n, func() error {
		var left atomic.Int64
		left.Store(int64(n))
		return asynqServe(ctx, addr, func(done func()) {
			if left.Add(-1) == 0 {
				done()
			}
		}, nil)
	})
	return speeds, err
}

// asynqServe runs a server until handle calls done.
func asynqServe(ctx context.Context, addr string, handle func(done func()), task func(*asynq.Task)) error {
	server := asynq.NewServer(asynq.RedisClientOpt{Addr: addr, PoolSize: 2 * callers}, asynq.Config{
		Concurrency: callers, Logger: noLogger{}, LogLevel: asynq.FatalLevel,
	})
	finished := make(chan struct{})
	var once atomic.Bool
	done := func() {
		if !once.Swap(true) {
			close(finished)
		}
	}
	mux := asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		if task != nil {
			task(t)
		}
		handle(done)
		return nil
	})
	if err := server.Start(mux); err != nil {
		return err
	}
	defer server.Shutdown()
	select {
	case <-finished:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(10 * time.Minute):
		return fmt.Errorf("asynq has not handled all tasks within 10 minutes")
	}
}

// asynqLateness measures asynq with the load of steadyLateness, at half the rate.
func asynqLateness(ctx context.Context, srv *server, s settings, r *results) error {
	if err := srv.client.FlushAll(ctx).Err(); err != nil {
		return err
	}
	const perSec = 5_000
	client := asynq.NewClient(asynq.RedisClientOpt{Addr: srv.addr, PoolSize: callers})
	defer client.Close()
	l := new(lateness)
	var left atomic.Int64
	left.Store(int64(perSec * s.seconds))
	err := concurrently(ctx, func(ctx context.Context) error {
		return asynqServe(ctx, srv.addr, func(done func()) {
			if left.Add(-1) == 0 {
				done()
			}
		}, func(t *asynq.Task) {
			var due time.Time
			if due.UnmarshalBinary(t.Payload()) == nil {
				l.add(time.Since(due))
			}
		})
	}, func(ctx context.Context) error {
		return steady(ctx, perSec, s.seconds, func(at time.Time) error {
			payload, err := at.MarshalBinary()
			if err != nil {
				return err
			}
			_, err = client.EnqueueContext(ctx, asynq.NewTask(asynqTask, payload), asynq.ProcessAt(at))
			return err
		})
	})
	if err != nil {
		return err
	}
	r.note(fmt.Sprintf("asynq: lateness at %dk/s, p50, p99, p99.9", perSec/1000), fmt.Sprintf("%.0f, %.0f, %.0f ms", l.ms(0.5), l.ms(0.99), l.ms(0.999)))
	r.note("asynq: early, and by how much", fmt.Sprintf("%d, %v", l.early, l.worst.Round(time.Millisecond)))
	return nil
}

type noLogger struct{}

func (noLogger) Debug(...any) {}
func (noLogger) Info(...any)  {}
func (noLogger) Warn(...any)  {}
func (noLogger) Error(...any) {}
func (noLogger) Fatal(v ...any) {
	_, _ = fmt.Fprintln(io.Discard, v...)
}
