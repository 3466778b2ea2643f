// Orders is an order service that cancels orders that are not paid in time. An order is a row of
// the service's own table, and its timeout a message of a queue in the same database. One
// transaction changes both, so no crash leaves one of them without the other:
//
//	go run ./durable/pgstore/examples/orders -database postgres:///shop
//	curl -X POST localhost:8080/orders/order-1
//	curl -X POST localhost:8080/orders/order-1/pay
//	curl localhost:8080/orders/order-1
//
// Requests are idempotent: a client that gets no answer, or status 503, repeats its request.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/pgstore"
)

func main() {
	database := flag.String("database", os.Getenv("DATABASE_URL"), "connection `URL`")
	listen := flag.String("listen", "localhost:8080", "`address` of the service")
	timeout := flag.Duration("timeout", 30*time.Minute, "`time` after which an unpaid order is cancelled")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *database, *listen, *timeout); err != nil {
		log.Fatal(err)
	}
}

// An order is unpaid until it is paid or cancelled. While it is unpaid, the queue has its timeout.
const createTable = `
CREATE TABLE IF NOT EXISTS orders (
	id text PRIMARY KEY,
	state text NOT NULL CHECK (state IN ('unpaid', 'paid', 'cancelled')),
	created timestamptz NOT NULL DEFAULT now()
)`

func run(ctx context.Context, database, listen string, timeout time.Duration) error {
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := pgstore.Migrate(ctx, pool); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, createTable); err != nil {
		return fmt.Errorf("create the table: %w", err)
	}
	store, err := pgstore.New(pool, pgstore.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	q, err := durable.Open(ctx, store, durable.Options{Queue: "order-timeouts"})
	if err != nil {
		return err
	}
	defer q.Close()
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	s := &service{pool: pool, timeouts: q, timeout: timeout}
	return s.serve(ctx, l)
}

type service struct {
	pool     *pgxpool.Pool
	timeouts *durable.Queue // the id of a message is the id of its order
	timeout  time.Duration
}

var consumer durable.ConsumerOptions // tests shorten the leases of killed processes

// serve answers requests and cancels orders until ctx ends. It returns when those under way are
// done.
func (s *service) serve(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", handler(s.place))
	mux.Handle("POST /orders/{id}/pay", handler(s.pay))
	mux.Handle("GET /orders/{id}", handler(s.state))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		return server.Shutdown(end)
	})
	group.Go(func() error { return s.timeouts.Consume(ctx, s.cancel, consumer) })
	fmt.Println("listening on", l.Addr())
	return group.Wait()
}

// place creates an unpaid order with its timeout, unless the order exists. It returns the state.
func (s *service) place(ctx context.Context, id string) (state string, err error) {
	err = s.transact(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `INSERT INTO orders (id, state) VALUES ($1, 'unpaid') ON CONFLICT DO NOTHING`, id)
		if err == nil && tag.RowsAffected() == 1 {
			_, err = pgstore.EnqueueTx(ctx, tx, s.timeouts, durable.Message{ID: id, Delay: s.timeout})
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return s.state(ctx, id)
}

var (
	errNoOrder = errors.New("there is no such order")
	errTooLate = errors.New("the order was not paid in time")
)

// pay marks an unpaid order as paid and cancels its timeout. It returns errTooLate if the order is
// cancelled, or if its timeout has begun to cancel it.
func (s *service) pay(ctx context.Context, id string) (state string, err error) {
	err = s.transact(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `UPDATE orders SET state = 'paid' WHERE id = $1 AND state = 'unpaid'`, id)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		result, err := pgstore.CancelTx(ctx, tx, s.timeouts, id)
		if err == nil && result == durable.ResultFiring {
			err = errTooLate
		}
		return err
	})
	if err != nil {
		return "", err
	}
	if state, err = s.state(ctx, id); state == "cancelled" {
		err = errTooLate
	}
	return state, err
}

// cancel handles a timeout: it cancels the order and acknowledges the message.
func (s *service) cancel(ctx context.Context, d *durable.Delivery) error {
	return s.transact(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE orders SET state = 'cancelled' WHERE id = $1 AND state = 'unpaid'`, d.ID)
		if err != nil {
			return err
		}
		return pgstore.AckTx(ctx, tx, d)
	})
}

func (s *service) state(ctx context.Context, id string) (state string, err error) {
	err = s.pool.QueryRow(ctx, `SELECT state FROM orders WHERE id = $1`, id).Scan(&state)
	if errors.Is(err, pgx.ErrNoRows) {
		err = errNoOrder
	}
	return state, err
}

// transact calls f in a transaction. It repeats the transaction if the server has rolled it back
// because of a concurrent one.
func (s *service) transact(ctx context.Context, f func(tx pgx.Tx) error) error {
	for {
		err := pgx.BeginFunc(ctx, s.pool, f)
		var server *pgconn.PgError
		if !errors.As(err, &server) || server.Code != "40001" && server.Code != "40P01" { // serialization failure, deadlock
			return err
		}
	}
}

// handler returns a handler that does something with an order and answers with its state.
func handler(do func(ctx context.Context, id string) (state string, err error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
		defer cancel()
		state, err := do(ctx, r.PathValue("id"))
		var status int
		switch {
		case err == nil:
			fmt.Fprintln(w, state) // an error means that the client has gone
			return
		case errors.Is(err, errNoOrder):
			status = http.StatusNotFound
		case errors.Is(err, errTooLate):
			status = http.StatusConflict
		case errors.Is(err, durable.ErrInvalid): // the id
			status = http.StatusBadRequest
		default:
			log.Printf("%s %s: %v", r.Method, r.URL.Path, err)
			err, status = errors.New("try again"), http.StatusServiceUnavailable
		}
		http.Error(w, err.Error(), status)
	})
}
