// Package remote shares a store in a directory with other processes of the machine. It serves them
// on a Unix socket, by net/rpc, and carries what producers and operators need: they store, change
// and read messages, and make copies. It carries no consumers, so no lease depends on another
// process.
package remote

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"net/rpc"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/local"
)

// service is the only service, with the version of the protocol, and method its only method.
const (
	service = "Store4"
	method  = service + ".Do"
)

// timeout limits a call: a process that needs longer is frozen. Config.RetryFor may lower the limit
// to minTimeout. A copy may take longer, because the file system may have no links.
const timeout, minTimeout = 30 * time.Second, time.Second

// Request is a call. Request and Reply are exported for net/rpc.
type Request struct {
	Deadline time.Time     // the caller gives up; both processes have the same clock
	Config   driver.Config // of the queue
	Args     any           // a Put, Batch, Pause or query; driver.Config opens the queue
}

// Reply is the answer to a call.
type Reply struct {
	Error  string
	Kind   int // index in kinds
	Result any
}

// query has the arguments of a call whose method has no type for them.
type query struct {
	Method    string // of driver.Backend or [Store]
	Partition int
	Name      string // the id, the queue or the directory
	State     driver.State
	Cursor    string
	Limit     int
	Within    []time.Duration
}

// page is the result of list.
type page struct {
	Records []driver.Record
	Next    string
}

func init() {
	for _, value := range []any{
		driver.Put{}, driver.Batch{}, driver.Pause{}, driver.Config{}, query{},
		[]driver.Status{}, []driver.Outcome{}, driver.Record{}, page{}, driver.Counts{}, []int64{}, []driver.Member{}, []string{},
	} {
		gob.Register(value)
	}
}

// kinds are the errors that callers distinguish. Their order is part of the protocol.
var kinds = []error{
	nil, driver.ErrUnavailable, driver.ErrNotFound, driver.ErrInvalid, driver.ErrPartitions, driver.ErrVersion,
	driver.ErrNoQueue, driver.ErrFull, driver.ErrBroken, driver.ErrOptions, local.ErrCorrupt,
}

// fail sets the error of a reply. An error of a store that is being closed is ErrUnavailable for
// the caller, whose own store is open.
func (r *Reply) fail(err error) {
	r.Error = err.Error()
	r.Kind = max(0, slices.IndexFunc(kinds, func(kind error) bool { return kind != nil && errors.Is(err, kind) }))
	ended := errors.Is(err, driver.ErrClosed) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	if r.Kind == 0 && ended {
		r.Kind = slices.Index(kinds, driver.ErrUnavailable)
	}
}

// Store is what a [Server] serves.
type Store interface {
	local.Store
	Backup(ctx context.Context, dir string) error
}

// Server serves a store.
type Server struct {
	name     string // package of the store, for errors
	dir      string // of the store and the socket
	store    Store
	listener *net.UnixListener
	ctx      context.Context // ends with the server
	cancel   context.CancelFunc
	conns    sync.WaitGroup
	calls    atomic.Int64 // in progress

	mu     sync.Mutex
	queues map[driver.Config]driver.Backend
}

// Listen creates a socket and serves the store until Close. The caller has locked the store, so an
// existing socket was left behind by a process that has ended. The caller removes the socket.
func Listen(path string, mode fs.FileMode, name string, store Store) (*Server, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
		_ = os.Remove(path) // if that fails, the next call returns an error
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err == nil {
		l.SetUnlinkOnClose(false)
		if err = os.Chmod(path, mode); err != nil {
			_ = l.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w socket: %w; it must be a path of at most about 100 bytes in a directory for sockets",
			name, driver.ErrInvalid, err)
	}
	v := &Server{name: name, dir: filepath.Dir(path), store: store, listener: l, queues: make(map[driver.Config]driver.Backend)}
	v.ctx, v.cancel = context.WithCancel(context.Background())
	v.conns.Go(v.accept)
	return v, nil
}

// closeTimeout is how long Close waits for calls, whose callers would not know their results.
const closeTimeout = time.Second

// Close accepts no more connections and ends the calls in progress.
func (v *Server) Close() {
	_ = v.listener.Close()
	for start := time.Now(); v.calls.Load() > 0 && time.Since(start) < closeTimeout; {
		time.Sleep(time.Millisecond)
	}
	v.cancel()
	v.conns.Wait()
}

func (v *Server) accept() {
	for {
		conn, err := v.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // for example too many open files
			time.Sleep(10 * time.Millisecond)
		default:
			v.conns.Go(func() { v.serve(conn) })
		}
	}
}

// serve answers the calls of a connection. Their contexts end with the connection.
func (v *Server) serve(conn net.Conn) {
	ctx, cancel := context.WithCancel(v.ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	server := rpc.NewServer()
	if err := server.RegisterName(service, handler{v, ctx}); err != nil {
		panic(err) // Do has the form that net/rpc requires
	}
	server.ServeConn(watchedConn{conn, cancel})
}

// watchedConn is a connection that reports its first error. Its writes fail if the other process
// does not read.
type watchedConn struct {
	net.Conn
	broken func()
}

// Read implements net.Conn. It never returns io.EOF, which net/rpc would turn into the error of a
// call that was not sent.
func (c watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.broken()
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (c watchedConn) Write(b []byte) (int, error) {
	n, err := 0, c.SetWriteDeadline(time.Now().Add(timeout))
	if err == nil {
		n, err = c.Conn.Write(b)
	}
	if err != nil {
		c.broken()
	}
	return n, err
}

// handler has the methods that net/rpc calls for a connection.
type handler struct {
	*Server
	ctx context.Context //nolint:containedctx // net/rpc passes none
}

// Do answers a call. If the process was stopped, the caller may have given up.
func (h handler) Do(request *Request, reply *Reply) error {
	h.calls.Add(1)
	defer h.calls.Add(-1)
	ctx, cancel := context.WithDeadline(h.ctx, request.Deadline)
	defer cancel()
	var err error
	if reply.Result, err = h.answer(ctx, request); err != nil {
		reply.Result = nil
		reply.fail(err)
	}
	return nil
}

func (v *Server) answer(ctx context.Context, request *Request) (any, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	q, _ := request.Args.(query)
	switch q.Method {
	case "Backup":
		return nil, v.copy(ctx, q.Name)
	case "Queues":
		return v.store.Queues(ctx)
	case "DeleteQueue":
		return nil, v.store.DeleteQueue(ctx, q.Name)
	}
	if !valid(request.Args) {
		return nil, fmt.Errorf("%s: %w call %T: a value is out of its range", v.name, driver.ErrInvalid, request.Args)
	}
	b, err := v.queue(ctx, request)
	if err != nil {
		return nil, err
	}
	switch a := request.Args.(type) {
	case driver.Config:
		return b.Config(), nil
	case driver.Put:
		return b.Put(ctx, a)
	case driver.Batch:
		return b.Apply(ctx, a)
	case driver.Pause:
		return nil, b.Pause(ctx, a)
	}
	switch q.Method {
	case "Get":
		return b.Get(ctx, q.Partition, q.Name)
	case "List":
		records, next, err := b.List(ctx, q.Partition, q.State, q.Cursor, q.Limit)
		return page{records, next}, err
	case "Count":
		return b.Count(ctx, q.Partition)
	case "CountDue":
		return b.CountDue(ctx, q.Partition, q.Within)
	case "Members":
		return b.Members(ctx)
	}
	return nil, fmt.Errorf("%s: %w call %T %q", v.name, driver.ErrInvalid, request.Args, q.Method)
}

// valid reports whether arguments are those that package durable passes to a store, which relies on
// them. The caller may have another version of package durable.
func valid(args any) bool {
	bad := func(repeat string, at driver.Instant) bool { return len(repeat) > 255 || at < 0 || at > driver.Never }
	switch a := args.(type) {
	case driver.Put:
		return len(a.Items) <= driver.MaxBatch && !slices.ContainsFunc(a.Items, func(i driver.PutItem) bool {
			return i.ID == "" || len(i.ID) > 255 || i.MaxAttempts < 0 || i.MaxAttempts > math.MaxInt32 || bad(i.Repeat, i.At)
		})
	case driver.Batch:
		return len(a.Changes) <= driver.MaxBatch &&
			!slices.ContainsFunc(a.Changes, func(c driver.Change) bool { return bad(c.Repeat, c.At) })
	case query:
		return (a.Method != "List" || 0 < a.Limit && a.Limit <= driver.MaxBatch) &&
			(a.Method != "CountDue" || 0 < len(a.Within) && len(a.Within) <= 64)
	}
	return true
}

// queue opens a queue. That waits for the disk, so each is opened once, and when a client opens it.
func (v *Server) queue(ctx context.Context, request *Request) (b driver.Backend, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, opens := request.Args.(driver.Config)
	if b = v.queues[request.Config]; b == nil || opens {
		if b, err = v.store.Open(ctx, request.Config); err == nil {
			v.queues[driver.Config{Queue: request.Config.Queue, Partitions: b.Config().Partitions, Existing: true}] = b // as in later calls
		}
	}
	return b, err
}
