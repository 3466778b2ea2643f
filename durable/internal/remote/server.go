// Package remote serves a store to other processes of the machine, on a Unix socket, by net/rpc. It
// carries what producers and operators need: they store, change and read messages, and make
// backups. It carries no consumers, so no lease depends on another process.
package remote

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/rpc"
	"os"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// version is the version of the protocol. Both processes must have the same.
const version = 1

// timeout limits each call. A store that needs longer is frozen.
const timeout = 30 * time.Second

// method is the only method of the only service.
const method = "Store.Do"

// Request is a call. Request and Reply are exported for net/rpc.
type Request struct {
	Version int
	Timeout time.Duration // until the caller gives up
	Config  driver.Config // of the queue
	Args    any           // of a type that init registers; driver.Config opens the queue
}

// Reply is the answer to a call.
type Reply struct {
	Error  string
	Kind   int // index in kinds
	Result any
}

// The arguments of the calls whose methods have no type for them.
type (
	get struct {
		Partition int
		ID        string
	}
	list struct {
		Partition int
		State     driver.State
		Cursor    string
		Limit     int
	}
	count    struct{ Partition int }
	countDue struct {
		Partition int
		Within    []time.Duration
	}
	members bool // the value means nothing
	backup  struct{ Dir string }
)

// page is the result of list.
type page struct {
	Records []driver.Record
	Next    string
}

func init() {
	for _, value := range []any{
		driver.Put{}, driver.Batch{}, driver.Pause{}, driver.Config{}, get{}, list{}, count{}, countDue{}, members(false), backup{},
		[]driver.Status{}, []driver.Outcome{}, driver.Record{}, page{}, driver.Counts{}, []int64{}, []driver.Member{},
	} {
		gob.Register(value)
	}
}

// kinds are the errors that callers distinguish. Their order is part of the protocol.
var kinds = []error{
	nil, driver.ErrUnavailable, driver.ErrNotFound, driver.ErrInvalid, driver.ErrPartitions, driver.ErrVersion,
	driver.ErrNoQueue, driver.ErrFull, driver.ErrBroken,
}

// fail sets the error of a reply. An error of a store that is being closed is ErrUnavailable for
// the caller, whose own store is open.
func (r *Reply) fail(err error) {
	r.Error = err.Error()
	for i, kind := range kinds {
		if kind != nil && errors.Is(err, kind) {
			r.Kind = i
			return
		}
	}
	if errors.Is(err, driver.ErrClosed) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		r.Kind = 1
	}
}

// Store is what a [Server] serves, and what a [Client] is.
type Store interface {
	driver.Store
	Backup(ctx context.Context, dir string) error
}

// Server serves a store.
type Server struct {
	name     string // package of the store, for errors
	store    Store
	listener *net.UnixListener
	rpc      *rpc.Server
	ctx      context.Context // ends with the server
	cancel   context.CancelFunc
	conns    sync.WaitGroup

	mu     sync.Mutex
	queues map[driver.Config]driver.Backend
}

// Listen creates a socket and serves the store until Close. The caller has locked the store, so an
// existing socket was left behind by a process that has ended.
func Listen(path string, mode fs.FileMode, name string, store Store) (*Server, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
		_ = os.Remove(path) // if that fails, the next call returns an error
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err == nil {
		if err = os.Chmod(path, mode); err != nil {
			_ = l.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w socket: %w; it must be a path of at most about 100 bytes in a directory for sockets",
			name, driver.ErrInvalid, err)
	}
	v := &Server{name: name, store: store, listener: l, rpc: rpc.NewServer(), queues: make(map[driver.Config]driver.Backend)}
	v.ctx, v.cancel = context.WithCancel(context.Background())
	if err := v.rpc.RegisterName("Store", service{v}); err != nil {
		panic(err) // Do has the form that net/rpc requires
	}
	v.conns.Go(v.accept)
	return v, nil
}

// Close removes the socket, ends the calls in progress and waits for them.
func (v *Server) Close() {
	v.cancel()
	_ = v.listener.Close() // it removes the socket
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
			v.conns.Go(func() {
				defer context.AfterFunc(v.ctx, func() { _ = conn.Close() })()
				v.rpc.ServeConn(timedConn{conn})
			})
		}
	}
}

// timedConn is a connection whose writes fail if the other process does not read.
type timedConn struct{ net.Conn }

// Write implements net.Conn.
func (c timedConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// service has the methods that net/rpc calls.
type service struct{ *Server }

// Do answers a call.
func (s service) Do(request *Request, reply *Reply) error {
	ctx, cancel := context.WithTimeout(s.ctx, request.Timeout)
	defer cancel()
	result, err := s.answer(ctx, request)
	if reply.Result = result; err != nil {
		reply.fail(err)
	}
	return nil
}

func (v *Server) answer(ctx context.Context, request *Request) (any, error) {
	if request.Version != version {
		return nil, fmt.Errorf("%s: %w: the process that has the store open uses version %d of the protocol, and the caller version %d",
			v.name, driver.ErrVersion, version, request.Version)
	}
	if a, ok := request.Args.(backup); ok {
		return nil, v.store.Backup(ctx, a.Dir)
	}
	b, err := v.queue(ctx, request.Config)
	if err != nil {
		return nil, err
	}
	switch a := request.Args.(type) {
	case driver.Config:
		return b.Partitions(), nil
	case driver.Put:
		return b.Put(ctx, a)
	case driver.Batch:
		return b.Apply(ctx, a)
	case driver.Pause:
		return nil, b.Pause(ctx, a)
	case get:
		return b.Get(ctx, a.Partition, a.ID)
	case list:
		records, next, err := b.List(ctx, a.Partition, a.State, a.Cursor, a.Limit)
		return page{records, next}, err
	case count:
		return b.Count(ctx, a.Partition)
	case countDue:
		return b.CountDue(ctx, a.Partition, a.Within)
	case members:
		return b.Members(ctx)
	}
	return nil, fmt.Errorf("%s: %w call %T", v.name, driver.ErrInvalid, request.Args)
}

// queue opens a queue. That waits for the disk, so each is opened once.
func (v *Server) queue(ctx context.Context, config driver.Config) (driver.Backend, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	b := v.queues[config]
	if b == nil {
		var err error
		if b, err = v.store.Open(ctx, config); err != nil {
			return nil, err
		}
		v.queues[config] = b
	}
	return b, nil
}
