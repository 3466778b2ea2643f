package adopters

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// postgres is a minimal PostgreSQL server. It answers 42 to each query, but never answers pg_sleep,
// even if the client cancels the query.
type postgres struct {
	listener net.Listener
	conns    sync.WaitGroup
}

// newPostgres starts a server on loopback.
func newPostgres() (*postgres, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &postgres{listener: l}
	p.conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.conns.Go(func() {
				defer c.Close()
				serve(pgproto3.NewBackend(c, c)) //nolint:errcheck // the client has closed the connection, or its test fails
			})
		}
	})
	return p, nil
}

// serve answers queries until the client ends the connection.
func serve(client *pgproto3.Backend) error {
	first, err := client.ReceiveStartupMessage()
	if err != nil {
		return err
	}
	if _, ok := first.(*pgproto3.StartupMessage); !ok {
		return nil // a cancel request
	}
	client.Send(&pgproto3.AuthenticationOk{})
	client.Send(&pgproto3.ParameterStatus{Name: "client_encoding", Value: "UTF8"}) // pgx needs both
	client.Send(&pgproto3.ParameterStatus{Name: "standard_conforming_strings", Value: "on"})
	client.Send(&pgproto3.BackendKeyData{ProcessID: 1, SecretKey: []byte{0, 0, 0, 1}})
	for {
		client.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		if err := client.Flush(); err != nil {
			return err
		}
		query, err := receiveQuery(client)
		if err != nil {
			return err
		}
		if strings.Contains(query, "pg_sleep") {
			_, err = receiveQuery(client) // the client ends the connection
			return err
		}
		client.Send(&pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("answer"), DataTypeOID: 23, DataTypeSize: 4}}})
		client.Send(&pgproto3.DataRow{Values: [][]byte{[]byte("42")}})
		client.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
	}
}

// receiveQuery returns the next query, or an error if the client sends anything else.
func receiveQuery(client *pgproto3.Backend) (string, error) {
	message, err := client.Receive()
	if err != nil {
		return "", err
	}
	query, ok := message.(*pgproto3.Query)
	if !ok {
		return "", fmt.Errorf("message is %T; it must be a query of the simple protocol", message)
	}
	return query.String, nil
}

func (p *postgres) url() string {
	return "postgres://user@" + p.listener.Addr().String() + "/db?sslmode=disable&default_query_exec_mode=simple_protocol"
}

// close stops the server and waits until all clients have closed their connections.
func (p *postgres) close() {
	p.listener.Close()
	p.conns.Wait()
}

// newPgxConfig starts a server and returns the configuration of its clients.
func newPgxConfig(t testing.TB, tr transport) *pgx.ConnConfig {
	p, err := newPostgres()
	require.NoError(t, err)
	t.Cleanup(p.close)
	config, err := pgx.ParseConfig(p.url())
	require.NoError(t, err)
	config.DialFunc = tr.dial
	return config
}

// connectPgx returns a connection that is closed at the end of the test.
func connectPgx(t testing.TB, config *pgx.ConnConfig) *pgx.Conn {
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, conn.Close(context.Background()))
		receive(t, conn.PgConn().CleanupDone())
	})
	return conn
}

// ask sends a query that the server answers.
func ask(ctx context.Context, conn *pgx.Conn) error {
	var answer int
	err := conn.QueryRow(ctx, "select 42").Scan(&answer)
	if err == nil && answer != 42 {
		err = fmt.Errorf("answer is %d", answer)
	}
	return err
}

func TestPgxContextEndsQueryToSilentServer(t *testing.T) {
	for _, test := range []struct {
		name    string
		watcher func(*pgconn.PgConn) ctxwatch.Handler // nil means pgx's default
		after   time.Duration                         // from the start to the deadline, the context's timeout included
	}{
		{"immediately", nil, timeout},
		{"after a delay", func(c *pgconn.PgConn) ctxwatch.Handler {
			return &pgconn.DeadlineContextWatcherHandler{Conn: c.Conn(), DeadlineDelay: timeout}
		}, 2 * timeout},
		{"after a request to cancel", func(c *pgconn.PgConn) ctxwatch.Handler {
			return &pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: timeout}
		}, 2 * timeout},
	} {
		t.Run(test.name, func(t *testing.T) {
			testTransports(t, func(t *testing.T, tr transport) {
				config := newPgxConfig(t, tr)
				if test.watcher != nil {
					config.BuildContextWatcherHandler = test.watcher
				}
				conn := connectPgx(t, config)
				require.NoError(t, ask(t.Context(), conn))
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				_, err := conn.Exec(ctx, "select pg_sleep(3600)")
				requireTimeout(t, err, start, test.after)
				assert.True(t, pgconn.Timeout(err))
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.True(t, conn.IsClosed())
			})
		})
	}
}

func TestPgxContextCancelsQueryToSilentServer(t *testing.T) {
	testTransports(t, func(t *testing.T, tr transport) {
		conn := connectPgx(t, newPgxConfig(t, tr))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(timeout/10, cancel)
		_, err := conn.Exec(ctx, "select pg_sleep(3600)")
		assert.ErrorIs(t, err, context.Canceled)
		assert.True(t, conn.IsClosed())
	})
}

func TestPgxGivesUpOnServerThatIsSilentAtStart(t *testing.T) {
	testTransports(t, func(t *testing.T, tr transport) {
		config := newPgxConfig(t, tr)
		config.ConnectTimeout = timeout
		address := listen(t).Addr().String() // of a server that answers nothing
		config.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return tr.dial(ctx, network, address)
		}
		start := time.Now()
		_, err := pgx.ConnectConfig(t.Context(), config)
		requireTimeout(t, err, start, timeout)
	})
}

// A context that ends after its query does not cut the connection.
func TestPgxKeepsLiveConnection(t *testing.T) {
	testTransports(t, func(t *testing.T, tr transport) {
		config := newPgxConfig(t, tr)
		config.ConnectTimeout = never
		requireAlive(t, func() func() error {
			conn := connectPgx(t, config)
			return func() error {
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				t.Cleanup(cancel)
				return ask(ctx, conn)
			}
		})
	})
}

// The deadlines belong to contexts of package context.
func BenchmarkPgx(b *testing.B) {
	benchTransports(b, []string{"none", "net", "wheelnet"}, func(b *testing.B, tr transport) {
		config := newPgxConfig(b, tr)
		limit := tr.timeout(time.Minute)
		parallel(b, func(pb *testing.PB) {
			conn, err := pgx.ConnectConfig(b.Context(), config)
			if !assert.NoError(b, err) {
				return
			}
			defer conn.Close(context.Background())
			for pb.Next() {
				ctx, cancel := b.Context(), func() {}
				if limit > 0 {
					ctx, cancel = context.WithTimeout(ctx, limit)
				}
				err := ask(ctx, conn)
				cancel()
				if !assert.NoError(b, err) {
					return
				}
			}
		})
	})
}
