package pgstore_test

import (
	"context"
	"database/sql"
	"log"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/pgstore"
)

// The timeout of an order commits with the order, and the cancellation of the order with the
// acknowledgement of the timeout.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres:///shop")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if err := pgstore.Migrate(ctx, pool); err != nil {
		log.Fatal(err)
	}
	store, err := pgstore.New(pool, pgstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	q, err := durable.Open(ctx, store, durable.Options{Queue: "orders"})
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()

	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO orders (id, state) VALUES ('order-42', 'unpaid')`); err != nil {
			return err
		}
		_, err := pgstore.EnqueueTx(ctx, tx, q, durable.Message{ID: "order-42", Delay: 30 * time.Minute})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}

	err = q.Consume(ctx, func(ctx context.Context, d *durable.Delivery) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `UPDATE orders SET state = 'cancelled' WHERE id = $1 AND state = 'unpaid'`, d.ID); err != nil {
				return err
			}
			return pgstore.AckTx(ctx, tx, d)
		})
	}, durable.ConsumerOptions{})
	if err != nil {
		log.Fatal(err)
	}
}

// A transaction of database/sql.
func ExampleSQL() {
	var db *sql.DB       // of any driver for PostgreSQL
	var q *durable.Queue // in the same database
	pay := func(ctx context.Context, order string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, `UPDATE orders SET state = 'paid' WHERE id = $1`, order); err != nil {
			return err
		}
		if _, err := pgstore.CancelTx(ctx, pgstore.SQL(tx), q, order); err != nil {
			return err
		}
		return tx.Commit()
	}
	_ = pay
}
