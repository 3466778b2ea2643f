package remote

import (
	"context"
	"io/fs"
	"net"
	"net/rpc"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

// memory is a store whose backups are noted.
type memory struct {
	*memstore.Store
	backups []string
	err     error
	delay   time.Duration
}

func (m *memory) Backup(_ context.Context, dir string) error {
	time.Sleep(m.delay)
	m.backups = append(m.backups, dir)
	return m.err
}

// socket returns a path that is short enough for a socket.
func socket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "r")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	return filepath.Join(dir, "s")
}

func serve(t *testing.T, path string, store Store) *Server {
	t.Helper()
	v, err := Listen(path, 0o600, "teststore", store)
	require.NoError(t, err)
	t.Cleanup(v.Close)
	return v
}

func connect(t *testing.T, path string) *Client {
	t.Helper()
	c, err := Dial(path, "teststore")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

func TestProducersAndOperatorsWorkOnAServedStore(t *testing.T) {
	t.Parallel()
	path, store := socket(t), &memory{Store: memstore.New(memstore.Options{})}
	serve(t, path, store)
	c := connect(t, path)
	_, err := durable.Open(t.Context(), c, durable.Options{Existing: true})
	require.ErrorIs(t, err, durable.ErrNoQueue)
	q, err := durable.Open(t.Context(), c, durable.Options{Partitions: 2})
	require.NoError(t, err)
	_, err = durable.Open(t.Context(), c, durable.Options{Partitions: 3})
	require.ErrorIs(t, err, durable.ErrPartitions)
	ctx := t.Context()
	for _, id := range []string{"a", "b", "c"} {
		_, err = q.Enqueue(ctx, durable.Message{ID: id, Body: []byte(id), Delay: time.Hour})
		require.NoError(t, err)
	}
	_, err = q.Enqueue(ctx, durable.Message{ID: "a"})
	require.ErrorIs(t, err, durable.ErrDuplicate)
	record, err := q.Get(ctx, "a")
	require.NoError(t, err)
	assert.Equal(t, []byte("a"), record.Body)
	_, err = q.Get(ctx, "x")
	require.ErrorIs(t, err, durable.ErrNotFound)
	cancelled, err := q.Cancel(ctx, "b")
	require.NoError(t, err)
	assert.Equal(t, durable.ResultCancelled, cancelled)
	moved, err := q.Reschedule(ctx, "c", 2*time.Hour)
	require.NoError(t, err)
	assert.Equal(t, durable.ResultRescheduled, moved)
	require.NoError(t, q.Pause(ctx))
	stats, err := q.Stats(ctx)
	require.NoError(t, err)
	assert.EqualValues(t, 2, stats.Scheduled)
	assert.True(t, stats.Paused)
	require.NoError(t, q.Healthy(ctx))
	name := CopyName()
	require.NoError(t, c.Copy(ctx, name))
	assert.Equal(t, []string{filepath.Join(filepath.Dir(path), name)}, store.backups)
	store.err = driver.ErrFull
	require.ErrorIs(t, c.Copy(ctx, name), driver.ErrFull)
	require.ErrorIs(t, c.Copy(ctx, "../"+name), driver.ErrInvalid)

	b, err := c.Open(ctx, driver.Config{Queue: "default"})
	require.NoError(t, err)
	owner, err := store.Open(ctx, driver.Config{Queue: "default"})
	require.NoError(t, err)
	_, err = owner.Heartbeat(ctx, driver.Member{Name: "m", Partitions: []int{1}}, time.Hour)
	require.NoError(t, err)
	members, err := b.Members(ctx)
	require.NoError(t, err)
	require.Len(t, members, 1)
	assert.Equal(t, []int{1}, members[0].Partitions)
	partition := contract.PartitionOf("c", 2)
	records, next, err := b.List(ctx, partition, driver.StateScheduled, "", 10)
	require.NoError(t, err)
	assert.Empty(t, next)
	assert.NotEmpty(t, records)
	due, err := b.CountDue(ctx, partition, []time.Duration{0, 3 * time.Hour})
	require.NoError(t, err)
	assert.EqualValues(t, 0, due[0])
	assert.EqualValues(t, len(records), due[1])
	for _, p := range []int{-1, 2} { // the queue was replaced by one with fewer partitions
		_, err = b.Put(ctx, driver.Put{Partition: p, Items: []driver.PutItem{{ID: "a"}}})
		require.ErrorIs(t, err, driver.ErrInvalid)
		_, err = b.Get(ctx, p, "a")
		require.ErrorIs(t, err, driver.ErrInvalid)
	}
}

func TestConsumersOfAServedStoreEndWithErrLocked(t *testing.T) {
	t.Parallel()
	path := socket(t)
	serve(t, path, &memory{Store: memstore.New(memstore.Options{})})
	q, err := durable.Open(t.Context(), connect(t, path), durable.Options{
		OnError: func(err error) { assert.ErrorIs(t, err, durable.ErrLocked) },
	})
	require.NoError(t, err)
	err = q.Consume(t.Context(), func(context.Context, *durable.Delivery) error { return nil }, durable.ConsumerOptions{})
	require.ErrorIs(t, err, durable.ErrLocked)
	require.ErrorContains(t, err, path)
	_, err = q.Take(t.Context())
	require.ErrorIs(t, err, durable.ErrLocked)
	require.NoError(t, q.Shutdown(t.Context()))
}

// The next process serves the store while a call waits for it.
func TestClientConnectsToTheNextProcess(t *testing.T) {
	t.Parallel()
	path := socket(t)
	_, err := Dial(path, "teststore")
	require.ErrorIs(t, err, driver.ErrUnavailable)
	store := &memory{Store: memstore.New(memstore.Options{})}
	first := serve(t, path, store)
	c := connect(t, path)
	q, err := durable.Open(t.Context(), c, durable.Options{})
	require.NoError(t, err)
	first.Close()
	require.NoError(t, os.Remove(path))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = q.Get(ctx, "a")
	require.ErrorIs(t, err, context.Canceled)
	next := time.AfterFunc(100*time.Millisecond, func() { serve(t, path, store) })
	defer next.Stop()
	_, err = q.Get(t.Context(), "a")
	require.ErrorIs(t, err, durable.ErrNotFound)
}

// A process is stopped, or hangs: the system accepts the connection for it.
func TestCallsToAFrozenProcessEnd(t *testing.T) {
	t.Parallel()
	path := socket(t)
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	defer l.Close()
	c := connect(t, path)
	c.timeout = 50 * time.Millisecond
	config := driver.Config{Queue: "default"}
	_, err = c.Open(t.Context(), config)
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.ErrorContains(t, err, "it was silent for 50ms")
	body := make([]byte, 16<<20)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	c.timeout = time.Hour
	large := &backend{c, config, config} // a call that does not fit into the buffers of the socket
	_, err = large.Put(ctx, driver.Put{Items: []driver.PutItem{{ID: "a", Body: body}}})
	var underWay *contract.UnderWayError
	require.ErrorAs(t, err, &underWay)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, c.Close())
	<-underWay.Done
	_, err = large.Get(t.Context(), 0, "a")
	require.ErrorIs(t, err, driver.ErrClosed)
}

// A frozen process delays calls for RetryFor, and not for the limit of other calls.
func TestCallsToAFrozenProcessEndAfterRetryFor(t *testing.T) {
	t.Parallel()
	path := socket(t)
	store := &memory{Store: memstore.New(memstore.Options{})}
	v := serve(t, path, store)
	c := connect(t, path)
	c.timeout = time.Hour
	q, err := durable.Open(t.Context(), c, durable.Options{RetryFor: time.Millisecond})
	require.NoError(t, err)
	v.Close()
	require.NoError(t, os.Remove(path))
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	defer l.Close()
	start := time.Now()
	for _, call := range []func() error{
		func() error { _, err := q.Enqueue(t.Context(), durable.Message{ID: "a"}); return err },
		func() error { _, err := q.EnqueueBatch(t.Context(), []durable.Message{{ID: "a"}}); return err },
		func() error { _, err := q.Cancel(t.Context(), "a"); return err },
		func() error { _, err := q.Get(t.Context(), "a"); return err },
		func() error { return q.Healthy(t.Context()) },
		func() error {
			_, err := durable.Open(t.Context(), c, durable.Options{RetryFor: time.Second})
			return err
		},
	} {
		err := call()
		require.ErrorIs(t, err, durable.ErrUnavailable)
		require.ErrorContains(t, err, "silent for 1s")
	}
	assert.Less(t, time.Since(start), time.Minute)
}

// A copy may take long, for example without hard links, if the process answers.
func TestCopiesTakeLongerThanOtherCalls(t *testing.T) {
	t.Parallel()
	path, store := socket(t), &memory{Store: memstore.New(memstore.Options{}), delay: 3 * time.Second}
	serve(t, path, store)
	c := connect(t, path)
	c.timeout = time.Second
	require.NoError(t, c.Copy(t.Context(), CopyName()))
	assert.Len(t, store.backups, 1)
	frozen := socket(t)
	l, err := net.Listen("unix", frozen)
	require.NoError(t, err)
	defer l.Close()
	c = connect(t, frozen)
	c.timeout = 50 * time.Millisecond
	require.ErrorIs(t, c.Copy(t.Context(), CopyName()), driver.ErrUnavailable)
}

// The copy is not where it was asked for.
func TestBackupThatCannotBeMovedNamesTheCause(t *testing.T) {
	t.Parallel()
	path := socket(t)
	serve(t, path, &memory{Store: memstore.New(memstore.Options{})})
	err := connect(t, path).Backup(t.Context(), filepath.Join(t.TempDir(), "missing", "copy"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NotErrorIs(t, err, driver.ErrInvalid)
	assert.NotContains(t, err.Error(), "on the file system of the store")
}

// other serves the method with a result of another type.
type other struct{}

func (other) Do(_ *Request, reply *struct{ Error []int }) error {
	reply.Error = []int{1}
	return nil
}

// closing is a store that is being closed: its calls return ErrClosed, and one of them hangs.
type closing struct{ memory }

func (closing) Open(ctx context.Context, c driver.Config) (driver.Backend, error) {
	if c.Queue == "hangs" {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return nil, driver.ErrClosed
}

func TestClosingProcessReturnsErrUnavailable(t *testing.T) {
	t.Parallel()
	path := socket(t)
	v := serve(t, path, &closing{})
	c := connect(t, path)
	_, err := c.Open(t.Context(), driver.Config{Queue: "default"})
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.NotErrorIs(t, err, driver.ErrClosed)
	ended := make(chan error, 1)
	go func() {
		_, err := c.Open(t.Context(), driver.Config{Queue: "hangs"})
		ended <- err
	}()
	time.Sleep(20 * time.Millisecond)
	v.Close()
	require.ErrorIs(t, <-ended, driver.ErrUnavailable)
}

func TestOtherVersionOfTheProtocolIsNamed(t *testing.T) {
	t.Parallel()
	path := socket(t)
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			go rpc.NewServer().ServeConn(conn) // it has another service
		}
	}()
	_, err = connect(t, path).Open(t.Context(), driver.Config{Queue: "default"})
	require.ErrorIs(t, err, driver.ErrVersion)
	require.ErrorContains(t, err, method)

	path = socket(t)
	another, err := net.Listen("unix", path)
	require.NoError(t, err)
	defer another.Close()
	server := rpc.NewServer()
	require.NoError(t, server.RegisterName(service, other{}))
	go server.Accept(another)
	_, err = connect(t, path).Open(t.Context(), driver.Config{Queue: "default"})
	require.ErrorIs(t, err, driver.ErrVersion)
}

// The process was stopped while a call waited, and the caller has given up.
func TestLateCallsHaveNoEffect(t *testing.T) {
	t.Parallel()
	store := &memory{Store: memstore.New(memstore.Options{})}
	v := serve(t, socket(t), store)
	reply := new(Reply)
	request := &Request{Deadline: time.Now().Add(-time.Millisecond), Args: query{Method: "Backup", Name: CopyName()}}
	require.NoError(t, handler{v, t.Context()}.Do(request, reply))
	assert.ErrorIs(t, &remoteError{reply.Error, reply.Kind}, driver.ErrUnavailable)
	assert.Empty(t, store.backups)
}

// Another process changes the series of a message that runs in this process, and interrupts it.
func TestRunningMessageIsChangedAndInterrupted(t *testing.T) {
	t.Parallel()
	path, store, ctx := socket(t), &memory{Store: memstore.New(memstore.Options{})}, t.Context()
	serve(t, path, store)
	here, err := store.Open(ctx, driver.Config{Queue: "q"})
	require.NoError(t, err)
	there, err := connect(t, path).Open(ctx, driver.Config{Queue: "q"})
	require.NoError(t, err)
	hints, err := here.Watch(ctx)
	require.NoError(t, err)
	series := strings.Repeat("x", 255)
	for range 2 {
		statuses, err := there.Put(ctx, driver.Put{Replace: true, Items: []driver.PutItem{{ID: "a", Repeat: series}}})
		require.NoError(t, err)
		require.Equal(t, []driver.Status{driver.StatusDone}, statuses)
		_, err = here.Claim(ctx, driver.Claim{Max: 1, Begin: 1, Visibility: time.Hour})
		require.NoError(t, err)
	}
	assert.NotZero(t, (<-hints).Due, "of the new message")
	change := driver.Change{ID: "a", Repeat: "weekly", At: driver.Never - 1, Interrupt: true}
	for _, step := range []struct {
		op      driver.Op
		want    driver.Status
		planned driver.Instant
	}{{driver.OpRepeat, driver.StatusDone, change.At}, {driver.OpCancel, driver.StatusInterrupted, driver.Never}} {
		outcomes, err := there.Apply(ctx, driver.Batch{Op: step.op, Changes: []driver.Change{change}})
		require.NoError(t, err)
		assert.Equal(t, step.want, outcomes[0].Status)
		r, err := there.Get(ctx, 0, "a")
		require.NoError(t, err)
		assert.Equal(t, []any{driver.StateFiring, "weekly", step.planned}, []any{r.State, r.Repeat, r.Planned})
	}
	assert.Equal(t, driver.Hint{ID: "a"}, <-hints)
}

// A process of another version sends what package durable would not.
func TestInvalidArgumentsAreRejected(t *testing.T) {
	t.Parallel()
	path := socket(t)
	serve(t, path, &memory{Store: memstore.New(memstore.Options{})})
	b, err := connect(t, path).Open(t.Context(), driver.Config{Queue: "default"})
	require.NoError(t, err)
	for name, item := range map[string]driver.PutItem{
		"no id": {}, "a long id": {ID: strings.Repeat("x", 256)}, "a long series": {ID: "a", Repeat: strings.Repeat("x", 256)},
		"negative attempts": {ID: "a", MaxAttempts: -1}, "a late time": {ID: "a", At: driver.Never + 1},
	} {
		_, err := b.Put(t.Context(), driver.Put{Items: []driver.PutItem{item}})
		require.ErrorIs(t, err, driver.ErrInvalid, name)
	}
	_, err = b.Put(t.Context(), driver.Put{Items: make([]driver.PutItem, driver.MaxBatch+1)})
	require.ErrorIs(t, err, driver.ErrInvalid)
	_, err = b.Apply(t.Context(), driver.Batch{Op: driver.OpCancel, Changes: make([]driver.Change, driver.MaxBatch+1)})
	require.ErrorIs(t, err, driver.ErrInvalid)
	for name, change := range map[string]driver.Change{
		"a long series": {ID: "a", Repeat: strings.Repeat("x", 256)}, "a late time": {ID: "a", At: driver.Never + 1}, "an early time": {ID: "a", At: -1},
	} {
		_, err := b.Apply(t.Context(), driver.Batch{Op: driver.OpRepeat, Changes: []driver.Change{change}})
		require.ErrorIs(t, err, driver.ErrInvalid, name)
	}
	_, _, err = b.List(t.Context(), 0, driver.StateScheduled, "", driver.MaxBatch+1)
	require.ErrorIs(t, err, driver.ErrInvalid)
	_, err = b.CountDue(t.Context(), 0, nil)
	require.ErrorIs(t, err, driver.ErrInvalid)
}

func TestListenReplacesOnlySockets(t *testing.T) {
	t.Parallel()
	path := socket(t)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false) // as a process that was killed
	require.NoError(t, l.Close())
	v, err := Listen(path, 0o640, "teststore", &memory{})
	require.NoError(t, err)
	info, err := os.Lstat(path)
	require.NoError(t, err)
	assert.Equal(t, 0o640|fs.ModeSocket, info.Mode())
	v.Close()
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.WriteFile(path, []byte("notes"), 0o600))
	_, err = Listen(path, 0o600, "teststore", &memory{})
	require.ErrorIs(t, err, driver.ErrInvalid)
	require.ErrorContains(t, err, path)
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "notes", string(content))
}
