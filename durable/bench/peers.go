package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hibiken/asynq"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	_ "modernc.org/sqlite" // the driver "sqlite"
)

// measurePeer measures another queue. It returns how many tasks per second are enqueued and
// delivered. The load of steadyLateness has a rate that the other queue keeps up with.
func measurePeer(ctx context.Context, s settings, r *results, name string, q queue, n, goroutines, perSec int) (enqueue, deliver float64, err error) {
	enqueue, err = rate(n, func() error { return enqueueEach(ctx, q, n, goroutines, 0) })
	if err == nil {
		deliver, err = rate(n, func() error { return drain(ctx, q, n, nil) })
	}
	if err != nil {
		return 0, 0, err
	}
	r.note(fmt.Sprintf("%s: enqueue, %d callers, one by one", name, goroutines), perSecond(enqueue))
	r.note(name+": deliver and acknowledge", perSecond(deliver))
	l, err := steadyLateness(ctx, q, perSec, s.seconds)
	r.note(fmt.Sprintf("%s: lateness at %.4gk/s, p50, p99, p99.9", name, float64(perSec)/1000),
		fmt.Sprintf("%.0f, %.0f, %.0f ms", l.ms(0.5), l.ms(0.99), l.ms(0.999)))
	r.note(name+": early, and by how much", fmt.Sprintf("%d, %v", l.early, l.worst.Round(time.Millisecond)))
	return enqueue, deliver, err
}

// asynqQueue is asynq as in its documentation, with 64 workers.
type asynqQueue struct {
	addr   string
	client *asynq.Client
}

func newAsynq(addr string) asynqQueue {
	return asynqQueue{addr, asynq.NewClient(asynq.RedisClientOpt{Addr: addr, PoolSize: callers})}
}

func (a asynqQueue) enqueue(ctx context.Context, delay time.Duration) error {
	due := time.Now().Add(delay)
	_, err := a.client.EnqueueContext(ctx, asynq.NewTask("task", bodyDue(due)), asynq.ProcessAt(due))
	return err
}

func (a asynqQueue) consume(ctx context.Context, handle func(due time.Time)) error {
	server := asynq.NewServer(asynq.RedisClientOpt{Addr: a.addr, PoolSize: 2 * callers}, asynq.Config{
		Concurrency: callers, LogLevel: asynq.FatalLevel,
	})
	err := server.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		handle(dueOf(t.Payload()))
		return nil
	}))
	if err != nil {
		return err
	}
	<-ctx.Done()
	server.Shutdown()
	return nil
}

// riverQueue is River on SQLite with one connection, as its documentation recommends. SQLite has a
// write-ahead log and syncs it in each transaction, as pebblestore does. The intervals and the
// number of workers delivered most per second of several that we have tried.
type riverQueue struct {
	db     *sql.DB
	client *river.Client[*sql.Tx]
	handle func(due time.Time)
}

// riverTask is the arguments of a job.
type riverTask struct{ Body []byte }

func (riverTask) Kind() string { return "task" }

func newRiver(ctx context.Context, path string) (q *riverQueue, err error) {
	q = &riverQueue{}
	if q.db, err = sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"); err != nil {
		return nil, err
	}
	q.db.SetMaxOpenConns(1)
	driver := riversqlite.New(q.db)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, job *river.Job[riverTask]) error {
		q.handle(dueOf(job.Args.Body))
		return nil
	}))
	if err == nil {
		q.client, err = river.NewClient(driver, &river.Config{
			FetchCooldown: time.Millisecond, FetchPollInterval: 10 * time.Millisecond,
			Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1000}}, Workers: workers,
			Logger: slog.New(slog.DiscardHandler),
		})
	}
	if err != nil {
		return nil, errors.Join(err, q.db.Close())
	}
	return q, nil
}

func (q *riverQueue) enqueue(ctx context.Context, delay time.Duration) error {
	due, opts := time.Now().Add(delay), &river.InsertOpts{}
	if delay > 0 { // otherwise the job is available without the scheduler
		opts.ScheduledAt = due
	}
	_, err := q.client.Insert(ctx, riverTask{bodyDue(due)}, opts)
	return err
}

// enqueueBatches enqueues n jobs that are due later, 1,000 in each call.
func (q *riverQueue) enqueueBatches(ctx context.Context, n int) error {
	due := time.Now().Add(far)
	for done := 0; done < n; done += 1000 {
		jobs := make([]river.InsertManyParams, min(1000, n-done))
		for i := range jobs {
			jobs[i] = river.InsertManyParams{Args: riverTask{bodyDue(due)}, InsertOpts: &river.InsertOpts{ScheduledAt: due}}
		}
		if _, err := q.client.InsertManyFast(ctx, jobs); err != nil {
			return err
		}
	}
	return nil
}

func (q *riverQueue) consume(ctx context.Context, handle func(due time.Time)) error {
	q.handle = handle
	if err := q.client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	return q.client.Stop(context.WithoutCancel(ctx))
}
