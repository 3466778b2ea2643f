// Command postgres measures the durable queue on PostgreSQL, and River on the same server. The
// server syncs each commit. The output is a table of the figures and their targets.
//
//	go -C durable/bench/postgres run .
//
// postgres starts a private server. With -postgres it uses a database of another server instead,
// and deletes the schemas bench, bench_river and bench_rows of that database.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"golang.org/x/sync/errgroup"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/bench/internal/load"
	"github.com/timingwheel-go/timingwheel/durable/pgstore"
)

func main() { load.Main(run) }

// bench measures one server.
type bench struct {
	*load.Bench
	private bool
	pool    *pgxpool.Pool
	store   durable.Store
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	b := &bench{Bench: load.New(stderr, 50_000, "river")}
	b.Flags.StringVar(&b.Server, "postgres", "", "use the database at this `URL`, and delete the schemas bench, bench_river and bench_rows in it; by default start a server")
	if err := b.Parse(args); err != nil {
		return err
	}
	if b.private = b.Server == ""; b.private {
		url, stop, err := startServer(ctx)
		if err != nil {
			return err
		}
		defer stop()
		b.Server = url
	}
	var err error
	if b.pool, err = newPool(ctx, b.Server); err != nil {
		return err
	}
	defer b.pool.Close()
	for _, step := range []func(context.Context) error{b.rates, b.lateness, b.pending, b.rounds, b.commits} {
		if err := b.withSchemas(ctx, pgstore.Options{}, step); err != nil {
			return err
		}
	}
	return b.Write(stdout)
}

// newPool returns a pool that has all its connections, so that no measurement waits for them.
func newPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = load.Callers + 16
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	var conns []*pgxpool.Conn
	for range config.MaxConns {
		var conn *pgxpool.Conn
		if conn, err = pool.Acquire(ctx); err != nil {
			break
		}
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		conn.Release()
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// withSchemas runs f with a store in empty schemas.
func (b *bench) withSchemas(ctx context.Context, o pgstore.Options, f func(context.Context) error) error {
	_, err := b.pool.Exec(ctx, `
DROP SCHEMA IF EXISTS bench, bench_river, bench_rows CASCADE;
CREATE SCHEMA bench_river;
CREATE SCHEMA bench_rows;
CREATE TABLE bench_rows.orders (id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, body bytea NOT NULL)`, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return err
	}
	o.Schema = "bench"
	if err := pgstore.Migrate(ctx, b.pool, o); err != nil {
		return err
	}
	store, err := pgstore.New(b.pool, o)
	if err != nil {
		return err
	}
	b.store = store
	return errors.Join(f(ctx), store.Close())
}

// insertOrder inserts a row into the program's own table.
const insertOrder = "INSERT INTO bench_rows.orders (body) VALUES ($1)"

// inTx returns a function that calls enqueue in a transaction with a row of the program's own
// table.
func inTx(pool *pgxpool.Pool, enqueue func(ctx context.Context, tx pgx.Tx, delay time.Duration) error) func(context.Context, time.Duration) error {
	return func(ctx context.Context, delay time.Duration) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, insertOrder, load.BodyDue(time.Time{})); err != nil {
				return err
			}
			return enqueue(ctx, tx, delay)
		})
	}
}

// enqueueTx returns a function that enqueues a message in a transaction.
func enqueueTx(q *durable.Queue) func(context.Context, pgx.Tx, time.Duration) error {
	return func(ctx context.Context, tx pgx.Tx, delay time.Duration) error {
		_, err := pgstore.EnqueueTx(ctx, tx, q, durable.Message{Body: load.BodyDue(time.Time{}), Delay: delay})
		return err
	}
}

// rates measures enqueuing and delivery, and the same with River.
func (b *bench) rates(ctx context.Context) error {
	each, err := b.EachRate(ctx, "PostgreSQL: enqueue, 64 callers, one by one", b.store, load.NoTarget, load.Callers)
	if err != nil {
		return err
	}
	batches, err := b.BatchRate(ctx, "PostgreSQL: enqueue, in batches", b.store, load.NoTarget)
	if err != nil {
		return err
	}
	together, err := b.Rate(ctx, "PostgreSQL: enqueue, 64 callers, each in its own transaction", b.store, load.NoTarget, func(q *durable.Queue) error {
		return load.EnqueueEach(ctx, inTx(b.pool, enqueueTx(q)), b.Messages, load.Callers, load.Far)
	})
	if err != nil {
		return err
	}
	delivered, err := b.DeliverRate(ctx, "PostgreSQL: deliver and acknowledge", b.store, 5_000)
	if err != nil || b.Skip["river"] {
		return err
	}
	return b.compareRiver(ctx, each, batches, together, delivered)
}

// compareRiver measures River, and the ratios of the rates of a queue to its rates.
func (b *bench) compareRiver(ctx context.Context, ours ...float64) error {
	q, err := load.NewRiver(ctx, riverpgxv5.New(b.pool), "bench_river")
	if err != nil {
		return err
	}
	if err := q.EnqueueBatches(ctx, b.Messages, 2, 0); err != nil {
		return err
	}
	for i, step := range []struct {
		name string
		run  func() error
	}{
		{"enqueue, 64 callers, one by one", func() error { return load.EnqueueEach(ctx, q.Enqueue, b.Messages, load.Callers, load.Far) }},
		{"enqueue, in batches", func() error { return q.EnqueueBatches(ctx, b.Messages, 2, load.Far) }},
		{"enqueue, 64 callers, each in its own transaction", func() error {
			return load.EnqueueEach(ctx, inTx(b.pool, q.EnqueueTx), b.Messages, load.Callers, load.Far)
		}},
		{"deliver and acknowledge", func() error { return load.Drain(ctx, q, b.Messages, nil) }},
	} {
		theirs, err := load.Rate(b.Messages, step.run)
		if err != nil {
			return err
		}
		b.Note("River on PostgreSQL: "+step.name, load.PerSecond(theirs))
		b.Note("PostgreSQL: "+step.name+", ratio to River", load.Plain(ours[i]/theirs))
	}
	return b.PeerLateness(ctx, "River on PostgreSQL", q, 1000)
}

func (b *bench) lateness(ctx context.Context) error {
	if b.private { // otherwise the server still writes what the rates have changed
		if _, err := b.pool.Exec(ctx, "CHECKPOINT"); err != nil {
			return err
		}
	}
	return b.Lateness(ctx, "PostgreSQL", b.store, 1000, [3]float64{load.NoTarget, 20, load.NoTarget})
}

// pending measures how much slower delivery is with many messages that are due later.
func (b *bench) pending(ctx context.Context) error {
	few := b.Pending / 100
	var rates []float64
	for _, more := range []int{few, b.Pending - few} {
		err := load.WithQueue(ctx, b.store, "rate", func(q *durable.Queue) error { return load.EnqueueBatches(ctx, q, more, load.Far) })
		if err == nil {
			_, err = b.pool.Exec(ctx, "VACUUM ANALYZE bench.messages") // as autovacuum does soon
		}
		if err != nil {
			return err
		}
		name := fmt.Sprintf("PostgreSQL: deliver and acknowledge, %d others pending", few+len(rates)*more)
		speed, err := b.DeliverRate(ctx, name, b.store, load.NoTarget)
		if err != nil {
			return err
		}
		rates = append(rates, speed)
	}
	b.Add(fmt.Sprintf("PostgreSQL: deliver and acknowledge, ratio of %d to %d pending", few, b.Pending), rates[0]/rates[1], 1.2, true, load.Plain)
	return nil
}

// rounds measures how the table of messages grows while a queue is filled and emptied 20 times. A
// private server then looks every second for tables to vacuum. With its default of a minute, it
// would hardly do so during the first round.
func (b *bench) rounds(ctx context.Context) error {
	if b.private {
		for _, text := range []string{"ALTER SYSTEM SET autovacuum_naptime = '1s'", "SELECT pg_reload_conf()"} {
			if _, err := b.pool.Exec(ctx, text); err != nil {
				return err
			}
		}
	}
	return load.WithQueue(ctx, b.store, "rate", func(q *durable.Queue) error {
		var first, size float64
		for round := 1; round <= 20; round++ {
			err := load.EnqueueBatches(ctx, q, b.Messages, 0)
			if err == nil {
				err = load.Drain(ctx, load.Ours(q), b.Messages, nil)
			}
			if err == nil && (round == 1 || round == 20) {
				var dead int
				first = size
				size, dead, err = tableSize(ctx, b.pool)
				b.Note(fmt.Sprintf("PostgreSQL: table of messages after round %d of %d", round, b.Messages), fmt.Sprintf("%.1f MB, %d dead rows", size/1e6, dead))
			}
			if err != nil {
				return err
			}
		}
		b.Add("PostgreSQL: table of messages, ratio of the last to the first round", size/first, 2, true, load.Plain)
		return nil
	})
}

// tableSize returns the size of the table of messages with its indexes in bytes, and the number of
// its dead rows.
func tableSize(ctx context.Context, pool *pgxpool.Pool) (size float64, dead int, err error) {
	if err := load.Sleep(ctx, 2*time.Second); err != nil { // until the sessions have reported what they did
		return 0, 0, err
	}
	err = pool.QueryRow(ctx, `SELECT pg_total_relation_size(relid), n_dead_tup FROM pg_stat_user_tables
WHERE relid = 'bench.messages'::regclass`).Scan(&size, &dead)
	return size, dead, err
}

// commits measures the commits of another table by 8 connections, alone and beside transactions
// that enqueue a message which is due before all others.
func (b *bench) commits(ctx context.Context) error {
	alone, _, err := b.commitRate(ctx, nil)
	if err != nil {
		return err
	}
	b.Note("PostgreSQL: commits of another table, 8 connections", load.PerSecond(alone))
	for _, notify := range []bool{false, true} {
		err := b.withSchemas(ctx, pgstore.Options{NotifyTx: notify}, func(ctx context.Context) error {
			return load.WithQueue(ctx, b.store, "tx", func(q *durable.Queue) error {
				commits, enqueued, err := b.commitRate(ctx, q)
				b.Note(fmt.Sprintf("PostgreSQL: the same beside 8 with EnqueueTx, NotifyTx %t", notify), load.PerSecond(commits))
				b.Note(fmt.Sprintf("PostgreSQL: these 8, NotifyTx %t", notify), load.PerSecond(enqueued))
				return err
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// commitRate returns the commits per second of another table. If q is not nil, it also returns the
// transactions per second that enqueue a message there. A consumer runs meanwhile.
func (b *bench) commitRate(ctx context.Context, q *durable.Queue) (commits, enqueued float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(b.Seconds)*time.Second)
	defer cancel()
	var others, mine atomic.Int64
	until := func(n *atomic.Int64, f func() error) func() error {
		return func() error {
			return load.InParallel(8, func(int) error {
				for ctx.Err() == nil {
					if err := f(); err == nil {
						n.Add(1)
					} else if ctx.Err() == nil {
						return err
					}
				}
				return nil
			})
		}
	}
	var all errgroup.Group
	all.Go(until(&others, func() error {
		_, err := b.pool.Exec(ctx, insertOrder, load.BodyDue(time.Time{}))
		return err
	}))
	if q != nil {
		enqueue := inTx(b.pool, enqueueTx(q))
		all.Go(until(&mine, func() error { return enqueue(ctx, 1000*load.Far-time.Duration(mine.Load())*time.Second) }))
		all.Go(func() error { return load.Ours(q).Consume(ctx, func(time.Time) {}) })
	}
	err = all.Wait()
	return float64(others.Load()) / float64(b.Seconds), float64(mine.Load()) / float64(b.Seconds), err
}
