package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"strings"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

// Client is a store that another process serves. It is safe for concurrent use.
type Client struct {
	name string // package of the store, for errors
	path string // of the socket

	timeout time.Duration // of a call

	mu     sync.Mutex
	conn   *rpc.Client // nil if there is none
	closed bool
}

// Dial connects to the process that serves a store on the socket at path. It returns
// [driver.ErrUnavailable] if there is none.
func Dial(path, name string) (*Client, error) {
	c := &Client{name: name, path: path, timeout: timeout}
	if _, err := c.connect(); err != nil {
		return nil, err
	}
	return c, nil
}

// connect returns the connection, and makes it if there is none.
func (c *Client) connect() (*rpc.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil, fmt.Errorf("%s: the store is %w", c.name, driver.ErrClosed)
	case c.conn == nil:
		conn, err := net.DialTimeout("unix", c.path, c.timeout)
		if err != nil {
			return nil, fmt.Errorf("%s: %w: no process serves it: %w", c.name, driver.ErrUnavailable, err)
		}
		var client *rpc.Client // mu is held until it is set
		client = rpc.NewClient(watchedConn{conn, func() { c.disconnect(&client) }})
		c.conn = client
	}
	return c.conn, nil
}

// reconnectFor is how long a call waits for a process that is being restarted.
const reconnectFor = 5 * time.Second

// reconnect is like connect, and waits for a process that serves the store.
func (c *Client) reconnect(ctx context.Context) (*rpc.Client, error) {
	for start := time.Now(); ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		conn, err := c.connect()
		if !errors.Is(err, driver.ErrUnavailable) || time.Since(start) > reconnectFor {
			return conn, err
		}
	}
	return nil, context.Cause(ctx)
}

// disconnect closes a connection, and the next call makes another one.
func (c *Client) disconnect(client **rpc.Client) {
	c.mu.Lock()
	conn := *client
	if c.conn == conn {
		c.conn = nil
	}
	c.mu.Unlock()
	_ = conn.Close()
}

// Close closes the connection. Calls in progress return [driver.ErrUnavailable], and later ones
// [driver.ErrClosed]. It returns nil.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		_ = c.conn.Close()
	}
	c.conn, c.closed = nil, true
	return nil
}

// do makes a call, which config.RetryFor limits. A call that was sent is not sent again, because it
// may have taken effect.
func do[R any](ctx context.Context, c *Client, config driver.Config, args any) (result R, err error) {
	limit := cmp.Or(config.RetryFor, c.timeout)
	end := max(limit, c.timeout) // until then the memory of an unanswered call is in use
	config.RetryFor = 0          // the other process opens the queue once
	silent := fmt.Errorf("it was silent for %v", limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, c.errUnavailable(silent))
	defer cancel()
	conn, err := c.reconnect(ctx)
	if err != nil {
		return result, err
	}
	deadline, _ := ctx.Deadline()
	reply, failed, done := new(Reply), error(nil), make(chan struct{})
	go func() { // a frozen process may not even read the call
		defer close(done)
		frozen := time.AfterFunc(end, func() { c.disconnect(&conn) })
		failed = conn.Call(method, &Request{deadline, config, args}, reply)
		if !frozen.Stop() && failed != nil {
			failed = silent
		}
	}()
	select {
	case <-done:
	case <-ctx.Done():
		return result, &contract.UnderWayError{Cause: context.Cause(ctx), Done: done}
	}
	var broken *net.OpError
	switch {
	case errors.Is(failed, rpc.ErrShutdown) || errors.As(failed, &broken) && broken.Op != "read" && !broken.Timeout():
		c.disconnect(&conn)
		return do[R](ctx, c, config, args) // the call was not sent as a whole
	case errors.As(failed, new(rpc.ServerError)) || failed != nil && strings.Contains(failed.Error(), "gob: "):
		return result, fmt.Errorf("%s: %w: the process that serves %q does not know %s: %w",
			c.name, driver.ErrVersion, c.path, method, failed)
	case failed != nil:
		return result, c.errUnavailable(failed)
	case reply.Error != "":
		return result, &remoteError{reply.Error, reply.Kind}
	}
	result, _ = reply.Result.(R) // nil for a call without a result
	return result, nil
}

func (c *Client) errUnavailable(err error) error {
	return fmt.Errorf("%s: %w: the process that serves %q does not answer: %w", c.name, driver.ErrUnavailable, c.path, err)
}

// remoteError is an error of the other process.
type remoteError struct {
	text string
	kind int
}

func (e *remoteError) Error() string { return e.text }

func (e *remoteError) Is(kind error) bool {
	return e.kind > 0 && e.kind < len(kinds) && kinds[e.kind] == kind
}

// Open implements driver.Store.
func (c *Client) Open(ctx context.Context, config driver.Config) (driver.Backend, error) {
	config.RetryFor = min(max(cmp.Or(config.RetryFor, c.timeout), minTimeout), c.timeout)
	joined, err := do[driver.Config](ctx, c, config, config)
	if err != nil {
		return nil, err
	}
	queue := driver.Config{Queue: config.Queue, Partitions: joined.Partitions, Existing: true, RetryFor: config.RetryFor}
	return &backend{c, queue, joined}, nil
}

// Queues implements driver.Lister.
func (c *Client) Queues(ctx context.Context) ([]string, error) {
	return do[[]string](ctx, c, driver.Config{}, query{Method: "Queues"})
}

// DeleteQueue implements driver.Lister.
func (c *Client) DeleteQueue(ctx context.Context, queue string) error {
	_, err := do[any](ctx, c, driver.Config{}, query{Method: "DeleteQueue", Name: queue})
	return err
}

// backend is a queue in another process, which groups the calls to it.
type backend struct {
	client        *Client
	queue, config driver.Config // of calls, with any limits; as opened
}

func (b *backend) GroupsCalls()          {} // for contract.Grouper
func (b *backend) Config() driver.Config { return b.config }

func (b *backend) Put(ctx context.Context, put driver.Put) ([]driver.Status, error) {
	return do[[]driver.Status](ctx, b.client, b.queue, put)
}

func (b *backend) Apply(ctx context.Context, batch driver.Batch) ([]driver.Outcome, error) {
	return do[[]driver.Outcome](ctx, b.client, b.queue, batch)
}

func (b *backend) Pause(ctx context.Context, pause driver.Pause) error {
	_, err := do[any](ctx, b.client, b.queue, pause)
	return err
}

func (b *backend) Get(ctx context.Context, partition int, id string) (driver.Record, error) {
	return do[driver.Record](ctx, b.client, b.queue, query{Method: "Get", Partition: partition, Name: id})
}

func (b *backend) List(ctx context.Context, partition int, state driver.State, cursor string, limit int) ([]driver.Record, string, error) {
	g, err := do[page](ctx, b.client, b.queue, query{
		Method: "List", Partition: partition, State: state, Cursor: cursor, Limit: limit,
	})
	return g.Records, g.Next, err
}

func (b *backend) Count(ctx context.Context, partition int) (driver.Counts, error) {
	return do[driver.Counts](ctx, b.client, b.queue, query{Method: "Count", Partition: partition})
}

func (b *backend) CountDue(ctx context.Context, partition int, within []time.Duration) ([]int64, error) {
	return do[[]int64](ctx, b.client, b.queue, query{Method: "CountDue", Partition: partition, Within: within})
}

func (b *backend) Members(ctx context.Context) ([]driver.Member, error) {
	return do[[]driver.Member](ctx, b.client, b.queue, query{Method: "Members"})
}

func (b *backend) Claim(context.Context, driver.Claim) (driver.Claimed, error) {
	return driver.Claimed{}, b.errConsumer()
}

func (b *backend) Heartbeat(_ context.Context, _ driver.Member, ttl time.Duration) ([]driver.Member, error) {
	if ttl <= 0 { // there is nothing to leave
		return nil, nil
	}
	return nil, b.errConsumer()
}

func (b *backend) Watch(context.Context) (<-chan driver.Hint, error) { return nil, b.errConsumer() }

// errConsumer is the error of a call that only a consumer makes.
func (b *backend) errConsumer() error {
	return fmt.Errorf("%s: %w: only the process that serves %q can consume messages", b.client.name, driver.ErrLocked, b.client.path)
}
