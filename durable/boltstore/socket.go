package boltstore

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/local"
)

// A store with Options.Socket serves its queues to other processes on a Unix socket next to the
// file, so that tools can work on a file that is in use. The client of a connection sends one call
// after another, and the server answers each with a reply. A backup has several replies, the last
// of which has no content. A watch has one reply at its start and one for each hint. The messages
// are encoded by encoding/gob.

// call is one call to a [driver.Backend], or a backup.
type call struct {
	Method    method
	Config    driver.Config // of the queue
	Partition int

	Put    driver.Put
	Claim  driver.Claim
	Batch  driver.Batch
	Pause  driver.Pause
	ID     string // Get
	Member driver.Member
	State  driver.State
	Cursor string
	Limit  int
	Repair bool
	TTL    time.Duration
	Within []time.Duration
}

// method names a call.
type method int

const (
	callOpen method = iota + 1
	callPut
	callClaim
	callApply
	callGet
	callList
	callCount
	callAudit
	callHeartbeat
	callBackup
	callWatch
	callMembers
	callPause
	callCountDue
)

// reply is the answer to a call.
type reply struct {
	Error string
	Kind  int               // index of the error's kind in kinds
	Late  *driver.LateError // a repeated call was refused, see driver.Call

	Partitions int
	Statuses   []driver.Status
	Claimed    driver.Claimed
	Outcomes   []driver.Outcome
	Records    []driver.Record
	Next       string
	Counts     driver.Counts
	Due        []int64
	Report     driver.AuditReport
	Names      []string
	Members    []driver.Member
	Content    []byte // part of a backup
	Hint       driver.Hint
}

// kinds are the errors that callers distinguish. Their order is part of the protocol.
var kinds = []error{
	nil, driver.ErrNotFound, driver.ErrClosed, driver.ErrInvalid, driver.ErrPartitions, driver.ErrVersion, driver.ErrLocked,
	driver.ErrFull, driver.ErrUnsafe, driver.ErrUnavailable, ErrCorrupt, driver.ErrBroken, driver.ErrNoQueue,
}

// remoteError is an error that the process with the open file has returned.
type remoteError struct {
	text string
	kind error
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.kind }

func (r *reply) fail(err error) {
	if err == nil {
		return
	}
	if errors.Is(err, driver.ErrClosed) { // the call did not take place
		err = fmt.Errorf("boltstore: %w: the process that has the file open is closing it",
			driver.ErrUnavailable)
	}
	if errors.Is(err, context.Canceled) { // the store closes, or the client has disconnected
		err = fmt.Errorf("boltstore: %w: the process that has the file open is closing it, "+
			"and the call may have taken place", driver.ErrUnavailable)
	}
	r.Error = err.Error()
	errors.As(err, &r.Late)
	for i, kind := range kinds {
		if kind != nil && errors.Is(err, kind) {
			r.Kind = i
			return
		}
	}
}

func (r *reply) err() error {
	if r.Error == "" {
		return nil
	}
	e := &remoteError{text: r.Error}
	if r.Late != nil {
		e.kind = r.Late
		return e
	}
	if r.Kind > 0 && r.Kind < len(kinds) {
		e.kind = kinds[r.Kind]
	}
	return e
}

// socketPath returns the path of the socket of a file.
func socketPath(path string) string { return path + ".sock" }

// server serves the queues of a store.
type server struct {
	store    *Store
	listener net.Listener
	remove   func()          // removes the socket once
	ctx      context.Context // ends with the store
	cancel   context.CancelFunc
	calls    sync.WaitGroup
}

// listen creates the socket of a store. This process has locked the file, so an existing socket was
// left behind by a process that has ended.
func listen(s *Store) (*server, error) {
	path := socketPath(s.path)
	switch info, err := os.Lstat(path); {
	case err == nil && info.Mode()&fs.ModeSocket == 0:
		return nil, fmt.Errorf("%w socket: %q exists and is of the kind %v; it must be a socket, or not exist",
			driver.ErrInvalid, path, info.Mode().Type())
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w socket: %w", driver.ErrInvalid, err)
	}
	info, err := s.file.f.Stat()
	if err != nil {
		return nil, classify(err)
	}
	l, err := listenPrivately(path, info.Mode().Perm())
	if err != nil {
		return nil, fmt.Errorf("%w socket: %w; it must be a path of at most about 90 bytes in a directory for sockets",
			driver.ErrInvalid, err)
	}
	v := &server{store: s, listener: l}
	// Once only: later another process may have its socket there.
	v.remove = sync.OnceFunc(func() { _ = os.Remove(path) })
	v.ctx, v.cancel = context.WithCancel(context.Background())
	v.calls.Go(v.accept)
	return v, nil
}

// listenPrivately creates a socket in a directory that other users cannot enter, sets its mode, and
// moves it to its path. An existing socket is replaced. Windows has no such modes.
func listenPrivately(path string, mode fs.FileMode) (_ net.Listener, err error) {
	made := path
	if runtime.GOOS != "windows" {
		dir, err := os.MkdirTemp(filepath.Dir(path), ".s")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir) //nolint:errcheck // it is empty
		made = filepath.Join(dir, "s")
	} else if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if made != path {
		if err = os.Chmod(made, mode); err == nil {
			err = os.Rename(made, path)
		}
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// close removes the socket, ends the contexts of the calls under way, and waits for the calls. The
// wait ends after Options.stall, because the context does not end a call that waits for the disk.
func (v *server) close() {
	v.cancel()
	v.remove()
	_ = v.listener.Close()
	done := make(chan struct{})
	go func() {
		v.calls.Wait()
		close(done)
	}()
	timeout := time.NewTimer(v.store.options.stall)
	defer timeout.Stop()
	select {
	case <-done:
	case <-timeout.C:
	}
}

func (v *server) accept() {
	for {
		conn, err := v.listener.Accept()
		switch {
		case v.ctx.Err() != nil:
			if err == nil {
				_ = conn.Close()
			}
			return
		case err != nil: // for example too many open files
			time.Sleep(10 * time.Millisecond)
		default:
			v.calls.Go(func() { v.serve(conn) })
		}
	}
}

// serve answers the calls that arrive on a connection one after another. Their contexts end with
// the connection.
func (v *server) serve(conn net.Conn) {
	ctx, cancel := context.WithCancel(v.ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer conn.Close() //nolint:errcheck // the client has its answers or has disconnected
	calls := make(chan *call)
	go func() { // also ends ctx when the client disconnects
		defer cancel()
		in := gob.NewDecoder(conn)
		for {
			c := new(call)
			if in.Decode(c) != nil {
				return
			}
			select {
			case calls <- c:
			case <-ctx.Done():
				return
			}
		}
	}()
	out := gob.NewEncoder(conn)
	for {
		select {
		case c := <-calls:
			if v.reply(ctx, c, out) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// reply makes a call and sends its replies.
func (v *server) reply(ctx context.Context, c *call, out *gob.Encoder) error {
	var r reply
	switch c.Method {
	case callBackup:
		_, err := v.store.Backup(ctx, writeFunc(func(p []byte) (int, error) {
			return len(p), out.Encode(&reply{Content: p})
		}))
		r.fail(err)
	case callWatch:
		r.fail(v.watch(ctx, c, out))
	default:
		r.fail(v.answer(ctx, c, &r))
	}
	return out.Encode(&r)
}

// watch sends hints until ctx ends or the connection fails.
func (v *server) watch(ctx context.Context, c *call, out *gob.Encoder) error {
	b, err := v.store.Open(ctx, c.Config)
	if err != nil {
		return err
	}
	hints, err := b.Watch(ctx)
	if err == nil {
		err = out.Encode(&reply{})
	}
	for err == nil {
		select {
		case h := <-hints:
			err = out.Encode(&reply{Hint: h})
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	return err
}

type writeFunc func([]byte) (int, error)

func (f writeFunc) Write(p []byte) (int, error) { return f(p) }

// answer makes a call that has one reply.
func (v *server) answer(ctx context.Context, c *call, r *reply) (err error) {
	b, err := v.store.Open(ctx, c.Config)
	if err != nil {
		return err
	}
	for _, p := range []int{c.Partition, c.Put.Partition, c.Claim.Partition, c.Batch.Partition, c.Pause.Partition} {
		if p < 0 || p >= b.Partitions() {
			return fmt.Errorf("boltstore: %w partition %d of queue %q; it must be from 0 to %d",
				driver.ErrInvalid, p, c.Config.Queue, b.Partitions()-1)
		}
	}
	b.(*backend).remote = true // b serves only this call
	switch c.Method {
	case callOpen:
		r.Partitions = b.Partitions()
	case callPut:
		r.Statuses, err = b.Put(ctx, c.Put)
	case callClaim:
		r.Claimed, err = b.Claim(ctx, c.Claim)
	case callApply:
		r.Outcomes, err = b.Apply(ctx, c.Batch)
	case callGet:
		r.Records = make([]driver.Record, 1)
		r.Records[0], err = b.Get(ctx, c.Partition, c.ID)
	case callList:
		r.Records, r.Next, err = b.List(ctx, c.Partition, c.State, c.Cursor, c.Limit)
	case callCount:
		r.Counts, err = b.Count(ctx, c.Partition)
	case callCountDue:
		r.Due, err = b.CountDue(ctx, c.Partition, c.Within)
	case callAudit:
		r.Report, err = b.(driver.Auditor).Audit(ctx, c.Partition, c.Repair)
	case callHeartbeat:
		r.Names, err = b.Heartbeat(ctx, c.Member, c.TTL)
	case callPause:
		err = b.Pause(ctx, c.Pause)
	case callMembers:
		r.Members, err = b.Members(ctx)
	default:
		err = fmt.Errorf("boltstore: %w call %d: the process that has the file open does not support it",
			driver.ErrVersion, c.Method)
	}
	return err
}

// Remote is a store whose file another process has open, with [Options].Socket. Remote implements
// [driver.Store]: its queues can be used like the queues of the process that has the file open. If
// that process ends, calls return [driver.ErrUnavailable] until a process has opened the file again
// with Options.Socket. A Remote is safe for concurrent use.
//
// A call that was sent but not answered also returns ErrUnavailable, although it may have taken
// effect. A repetition with the same [driver.Call] returns the answer of the first call.
type Remote struct {
	path string

	mu     sync.Mutex
	idle   []*clientConn // connections without a call under way
	closed bool
}

// clientConn is a connection with its codecs.
type clientConn struct {
	conn net.Conn
	out  *gob.Encoder
	in   *gob.Decoder
}

var _ driver.Store = (*Remote)(nil)

// Connect returns a store for the file at path that another process has open. path is the path of
// the file, not of its socket. Connect returns [driver.ErrUnavailable] if no process serves the
// file.
func Connect(path string) (*Remote, error) {
	r := &Remote{path: path}
	l, err := r.connection(context.Background())
	if err != nil {
		return nil, err
	}
	r.keep(l)
	return r, nil
}

// Close closes the idle connections, and later calls return [driver.ErrClosed]. Calls under way
// continue. Close returns nil.
func (r *Remote) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.drop()
	return nil
}

// drop closes the idle connections. The caller holds r.mu.
func (r *Remote) drop() {
	for _, l := range r.idle {
		_ = l.conn.Close()
	}
	r.idle = nil
}

// connection returns an idle connection, or a new one.
func (r *Remote) connection(ctx context.Context) (*clientConn, error) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil, errClosed()
	}
	if last := len(r.idle) - 1; last >= 0 {
		l := r.idle[last]
		r.idle = r.idle[:last]
		r.mu.Unlock()
		return l, nil
	}
	r.mu.Unlock()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socketPath(r.path))
	if err != nil {
		return nil, fmt.Errorf("boltstore: %w: no process has %q open with Options.Socket: %w",
			driver.ErrUnavailable, r.path, err)
	}
	return &clientConn{conn, gob.NewEncoder(conn), gob.NewDecoder(conn)}, nil
}

// keep makes a connection idle again after its call, or closes it if there are maxIdle idle ones.
func (r *Remote) keep(l *clientConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || len(r.idle) >= maxIdle {
		_ = l.conn.Close()
		return
	}
	r.idle = append(r.idle, l)
}

// maxIdle is the largest number of idle connections.
const maxIdle = 16

// do makes a call and passes each reply to next, which returns false after the last one.
func (r *Remote) do(ctx context.Context, c *call, next func(*reply) (bool, error)) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	l, err := r.connection(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = l.conn.Close() })
	answered, err := l.do(c, next)
	if stop() && answered {
		r.keep(l)
		return err
	}
	_ = l.conn.Close()
	switch {
	case answered:
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	r.mu.Lock()
	r.drop() // the idle connections are to the same process
	r.mu.Unlock()
	return fmt.Errorf("boltstore: %w: the process that has %q open does not answer: %w",
		driver.ErrUnavailable, r.path, err)
}

// do makes a call on the connection. answered reports whether the last reply has arrived. err is
// the error of the reply or of the connection.
func (l *clientConn) do(c *call, next func(*reply) (bool, error)) (answered bool, err error) {
	if err := l.out.Encode(c); err != nil {
		return false, err
	}
	for {
		var answer reply
		if err := l.in.Decode(&answer); err != nil {
			return false, err
		}
		if err := answer.err(); err != nil {
			return true, err
		}
		if more, err := next(&answer); err != nil || !more {
			return err == nil, err
		}
	}
}

// Backup is [Store.Backup] in the process that has the file open. It also returns
// [driver.ErrUnavailable] if that process ends.
func (r *Remote) Backup(ctx context.Context, w io.Writer) (n int64, err error) {
	if w == nil {
		return 0, fmt.Errorf("boltstore: backup: %w writer nil; it must not be nil",
			driver.ErrInvalid)
	}
	var failed error // the error of w
	err = r.do(ctx, &call{Method: callBackup}, func(answer *reply) (bool, error) {
		if len(answer.Content) == 0 {
			return false, nil
		}
		written, err := w.Write(answer.Content)
		n += int64(written)
		failed = err
		return true, err
	})
	if failed != nil {
		err = fmt.Errorf("boltstore: backup of %q: %w", r.path, failed)
	}
	return n, err
}

// Open opens a queue in the process that has the file open, as [Store.Open] does. It also returns
// [driver.ErrUnavailable] if no process serves the file.
func (r *Remote) Open(ctx context.Context, config driver.Config) (driver.Backend, error) {
	b := &remoteBackend{remote: r, config: config}
	answer, err := b.call(ctx, call{Method: callOpen})
	if err != nil {
		return nil, err
	}
	b.partitions = answer.Partitions
	b.config.Partitions = answer.Partitions
	return b, nil
}

// remoteBackend is a queue in another process.
type remoteBackend struct {
	remote     *Remote
	config     driver.Config
	partitions int
}

var _ driver.Backend = (*remoteBackend)(nil)

func (b *remoteBackend) call(ctx context.Context, c call) (answer *reply, err error) {
	c.Config = b.config
	err = b.remote.do(ctx, &c, func(r *reply) (bool, error) {
		answer = r
		return false, nil
	})
	if err != nil {
		return &reply{}, err
	}
	return answer, nil
}

func (b *remoteBackend) Partitions() int { return b.partitions }

func (b *remoteBackend) Put(ctx context.Context, put driver.Put) ([]driver.Status, error) {
	r, err := b.call(ctx, call{Method: callPut, Put: put})
	return r.Statuses, err
}

func (b *remoteBackend) Claim(ctx context.Context, claim driver.Claim) (driver.Claimed, error) {
	r, err := b.call(ctx, call{Method: callClaim, Claim: claim})
	return r.Claimed, err
}

func (b *remoteBackend) Apply(ctx context.Context, batch driver.Batch) ([]driver.Outcome, error) {
	r, err := b.call(ctx, call{Method: callApply, Batch: batch})
	return r.Outcomes, err
}

func (b *remoteBackend) Pause(ctx context.Context, pause driver.Pause) error {
	_, err := b.call(ctx, call{Method: callPause, Pause: pause})
	return err
}

func (b *remoteBackend) Get(ctx context.Context, partition int, id string) (driver.Record, error) {
	r, err := b.call(ctx, call{Method: callGet, Partition: partition, ID: id})
	if err != nil {
		return driver.Record{}, err
	}
	return r.Records[0], nil
}

func (b *remoteBackend) List(ctx context.Context, partition int, state driver.State, cursor string, limit int) (
	[]driver.Record, string, error,
) {
	r, err := b.call(ctx, call{Method: callList, Partition: partition, State: state, Cursor: cursor, Limit: limit})
	return r.Records, r.Next, err
}

func (b *remoteBackend) Count(ctx context.Context, partition int) (driver.Counts, error) {
	r, err := b.call(ctx, call{Method: callCount, Partition: partition})
	return r.Counts, err
}

func (b *remoteBackend) CountDue(ctx context.Context, partition int, within []time.Duration) ([]int64, error) {
	r, err := b.call(ctx, call{Method: callCountDue, Partition: partition, Within: within})
	return r.Due, err
}

// Lost implements driver.Auditor.
func (b *remoteBackend) Lost(context.Context, int) (uint64, error) { return 0, nil }

func (b *remoteBackend) Audit(ctx context.Context, partition int, repair bool) (driver.AuditReport, error) {
	r, err := b.call(ctx, call{Method: callAudit, Partition: partition, Repair: repair})
	return r.Report, err
}

func (b *remoteBackend) Heartbeat(ctx context.Context, member driver.Member, ttl time.Duration) ([]string, error) {
	r, err := b.call(ctx, call{Method: callHeartbeat, Member: member, TTL: ttl})
	return r.Names, err
}

func (b *remoteBackend) Members(ctx context.Context) ([]driver.Member, error) {
	r, err := b.call(ctx, call{Method: callMembers})
	return r.Members, err
}

// Watch buffers 256 hints. Later hints are lost while the buffer is full. The channel is closed
// when ctx ends, or when the process that has the file open ends.
func (b *remoteBackend) Watch(ctx context.Context) (<-chan driver.Hint, error) {
	hints, ready := make(chan driver.Hint, local.HintBuffer), make(chan error, 1)
	go func() {
		defer close(hints)
		watching := false
		err := b.remote.do(ctx, &call{Method: callWatch, Config: b.config}, func(r *reply) (bool, error) {
			if !watching {
				watching = true
				ready <- nil
				return true, nil
			}
			select {
			case hints <- r.Hint:
			default:
			}
			return true, nil
		})
		if !watching {
			ready <- err
		}
	}()
	if err := <-ready; err != nil {
		return nil, err
	}
	return hints, nil
}
