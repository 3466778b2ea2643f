package pebblestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
	"github.com/timingwheel-go/timingwheel/durable/internal/local"
)

// engine runs the calls to a store on an open directory. All calls run on one goroutine, run, in
// groups. A group makes one batch of changes with one sync. Another goroutine, answer, waits for
// the syncs in order, while run makes the next group. While two groups are being synced, run only
// runs calls that do not wait for a sync, so a slow disk does not delay claims.
//
//	do → prompt  → run: each call, answered immediately
//	do → waiting → run: each call, then their batch → syncing → answer
//
// An engine ends with close, or fails: a failed engine runs no call, and is never used again.
type engine struct {
	store  *Store
	db     *batchDB
	shared sharedDB
	state  *local.State

	mu      sync.Mutex
	prompt  []*pending
	waiting []*pending
	wake    chan struct{} // capacity 1
	closing bool

	syncing chan group             // capacity 1
	damaged atomic.Pointer[string] // the file in which Pebble has last found damage
	failed  chan struct{}          // closed by fail
	failure error                  // why; set under mu before failed is closed
	written int                    // size of the batches since answer last looked at level 0
	both    sync.WaitGroup         // run and answer
}

// pending is a call that waits for its answer.
type pending struct {
	call    *local.Call
	err     error
	done    chan struct{} // closed after err is set
	started bool          // guarded by engine.mu
}

// group is a batch that is being synced, with the calls that wait for it.
type group struct {
	batch  *pebble.Batch // nil if the calls changed nothing
	calls  []*pending
	number uint64 // see local.State
}

// maxGroup is the size in bytes at which a group takes no more waiting calls.
const maxGroup = 1 << 20

// pebbleOptions returns the options with which Pebble opens the directory.
func (e *engine) pebbleOptions(cache *pebble.Cache) *pebble.Options {
	s := e.store
	o := &pebble.Options{
		FS:     engineFS{s.options.fs, e},
		Cache:  cache,
		Logger: &logger{s.options.Logger, e.fail},
		Merger: numbers,

		MemTableSize:          uint64(min(s.options.Memory/8, 1<<30)), //nolint:gosec // positive
		L0CompactionThreshold: 8, L0StopWritesThreshold: 2 * slowLevel0, LBaseMaxBytes: 64 << 20,
		CompactionConcurrencyRange: func() (int, int) { return 1, 2 }, // 2 if the first is behind
		FormatMajorVersion:         pebble.FormatNewest,
		ReadOnly:                   s.lock == nil,
	}
	o.Experimental.TombstoneDenseCompactionThreshold = -1 // never: no scan meets the tombstones
	for i := range o.Levels {
		if i < len(o.Levels)-1 { // the filters of most keys would not fit into the cache
			o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		}
		if i < len(o.Levels)-2 { // these are small, and are soon written again
			o.Levels[i].Compression = func() *sstable.CompressionProfile { return sstable.NoCompression }
		}
		o.Levels[i].BlockSize, o.TargetFileSizes[i] = 8<<10, 4<<20<<(i/3) // larger files delay level 0
	}
	o.EventListener = &pebble.EventListener{DataCorruption: func(info pebble.DataCorruptionInfo) {
		s.options.Logger.Error("pebblestore: a file is damaged", "file", info.Path, "error", info.Details)
		e.damaged.Store(&info.Path)
	}}
	return o
}

// newEngine opens the directory of a store. last is the State of the last engine, or nil.
func newEngine(s *Store, last *local.State) (*engine, error) {
	e := &engine{store: s, failed: make(chan struct{})}
	cache := pebble.NewCache(s.options.Memory)
	defer cache.Unref() // the DB has a reference
	db, err := pebble.Open(s.dir, e.pebbleOptions(cache))
	if err != nil {
		return nil, s.openError(cmp.Or(e.failedWith(), err)) // err may be a consequence
	}
	e.db, e.shared.db = newBatchDB(db), db
	e.db.readOnly = s.lock == nil
	if e.state, err = local.Load(e.db, &s.shared, last); err != nil {
		if e.db.err != nil {
			err = e.readError(err)
		}
		return nil, errors.Join(fmt.Errorf("pebblestore: %q: %w", s.dir, err), e.closeDB())
	}
	if err := e.failedWith(); err != nil {
		return nil, errors.Join(s.openError(err), e.closeDB())
	}
	e.state.Flush()
	e.wake, e.syncing = make(chan struct{}, 1), make(chan group, 1)
	e.both.Go(e.run)
	e.both.Go(e.answer)
	return e, nil
}

// do runs a call and returns its error or the failure of the engine. If the call has started when
// ctx ends or the engine fails, the error is a [*contract.UnderWayError].
func (e *engine) do(ctx context.Context, call *local.Call) error {
	p := &pending{call: call, done: make(chan struct{})}
	e.mu.Lock()
	if failure, closing := e.failure, e.closing; failure != nil || closing {
		e.mu.Unlock()
		if failure != nil {
			return unavailable(failure)
		}
		return errClosed()
	}
	queue := &e.prompt
	if call.Waits {
		queue = &e.waiting
	}
	*queue = append(*queue, p)
	e.mu.Unlock()
	e.wakeUp()
	var err error
	select {
	case <-p.done:
		return p.err
	case <-e.failed:
		err = unavailable(e.failure)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if p.started {
		return &contract.UnderWayError{Cause: err, Done: p.done}
	}
	isCall := func(o *pending) bool { return o == p }
	e.prompt, e.waiting = slices.DeleteFunc(e.prompt, isCall), slices.DeleteFunc(e.waiting, isCall)
	return err
}

// sharedDB is the DB for goroutines other than run. closeDB waits until they have used it.
type sharedDB struct {
	mu sync.RWMutex
	db *pebble.DB // nil after closeDB
}

func (r *sharedDB) get(key []byte) ([]byte, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.db == nil {
		return nil, errClosed()
	}
	value, closer, err := r.db.Get(key)
	if err != nil {
		return nil, err
	}
	defer closer.Close() //nolint:errcheck // it releases a block
	return append([]byte{}, value...), nil
}

func (e *engine) wakeUp() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// run runs groups until the engine closes or fails.
func (e *engine) run() {
	var g group // the next one; without room it keeps the claims that wait for their tokens
	var calls []*pending
	var err error
	defer func() {
		e.fail(err)
		close(e.syncing)
		e.abandon(append(calls, g.calls...))
	}()
	defer recoverError(&err)
	for closing := false; e.failedWith() == nil; {
		room := len(e.syncing) < cap(e.syncing) // run is the only sender
		calls, closing = e.next(room)
		switch {
		case len(calls) > 0 || room && (e.db.visible || len(g.calls) > 0):
			err = errEnded // if a fatal error of Pebble ends the goroutine
			if err = e.commit(&g, calls, room); err != nil {
				return
			}
			calls = nil
		case closing && room:
			return
		default:
			select {
			case <-e.wake:
			case <-e.failed:
			}
		}
	}
}

// next takes the calls for a group. Calls that wait for a sync need room in syncing. closing is
// true if the engine closes and no call is left.
func (e *engine) next(room bool) (calls []*pending, closing bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for size := 0; room && n < len(e.waiting) && (n == 0 || size < maxGroup); n++ {
		size += e.waiting[n].call.Bytes
	}
	calls = append(e.prompt, e.waiting[:n]...)
	for _, p := range calls {
		p.started = true
	}
	e.prompt, e.waiting = nil, append([]*pending(nil), e.waiting[n:]...)
	return calls, e.closing && len(e.waiting) == 0
}

// commit runs calls, and passes g and those that wait for a sync to answer if there is room.
func (e *engine) commit(g *group, calls []*pending, room bool) (err error) {
	full := sync.OnceValue(e.full)
	for _, p := range calls {
		if p.call.Bytes > 0 && full() != nil {
			p.err = full()
		} else if err := e.runCall(p); err != nil {
			return err
		}
		if p.call.Waits {
			g.calls = append(g.calls, p)
		} else {
			close(p.done)
		}
	}
	g.number = e.state.Flush()
	if !room { // a later group syncs the changes
		return e.db.flush()
	}
	g.batch, err = e.db.take()
	if g.batch != nil && err == nil {
		err = e.apply(g.batch)
	}
	if err == nil && (g.batch != nil || len(g.calls) > 0) {
		e.syncing <- *g
		*g = group{}
	}
	return err
}

// abandon answers the calls that have no answer yet with the failure of the engine.
func (e *engine) abandon(calls []*pending) {
	for _, p := range calls {
		select {
		case <-p.done:
		default:
			p.err = unavailable(e.failure)
			close(p.done)
		}
	}
}

// runCall runs a call. It returns an error if the call has failed after its first change.
func (e *engine) runCall(p *pending) error {
	before := e.db.n
	e.db.err = nil
	p.err = p.call.Do(e.state)
	if p.err != nil && e.db.err != nil {
		p.err = fmt.Errorf("pebblestore: %q: %w", e.store.dir, e.readError(p.err))
	}
	if e.db.n == before {
		return nil
	}
	return p.err
}

// readError gives an error of a read its kind.
func (e *engine) readError(err error) error {
	switch file := e.damaged.Load(); {
	case !pebble.IsCorruptionError(err):
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	case file != nil:
		return fmt.Errorf("%w: file %q: %w", ErrCorrupt, *file, err)
	}
	return fmt.Errorf("%w: %w", ErrCorrupt, err)
}

// apply makes the changes of a batch visible, and begins its sync.
func (e *engine) apply(batch *pebble.Batch) error {
	if e.store.options.NoSync {
		return e.db.pebble.Apply(batch, pebble.NoSync)
	}
	return e.db.pebble.ApplyNoSyncWait(batch, pebble.Sync)
}

// answer waits for syncs, and answers the calls that wait for them.
func (e *engine) answer() {
	for g := range e.syncing {
		e.wakeUp() // there is room
		if g.batch != nil && !e.store.options.NoSync {
			e.fail(g.batch.SyncWait())
		}
		if e.failedWith() != nil {
			e.abandon(g.calls)
		} else {
			e.state.Synced(g.number)
			for _, p := range g.calls {
				close(p.done)
			}
		}
		if g.batch != nil {
			e.slowDown(g.batch.Len())
			_ = g.batch.Close()
		}
	}
}

// slowLevel0 is the number of sublevels of level 0 with which compactions are behind. Pebble stops
// writes at twice as many, for seconds.
const slowLevel0 = 12

// slowDown gives compactions time if they are behind: after each MiB of changes it waits up to
// 100 ms, while the next groups wait. Looking at level 0 takes about 0.1 ms.
func (e *engine) slowDown(size int) {
	if e.written += size; e.written >= 1<<20 {
		e.written = 0
		behind := e.db.pebble.Metrics().Levels[0].Sublevels - slowLevel0
		time.Sleep(8 * time.Millisecond * time.Duration(max(0, behind)))
	}
}

// fail ends the engine because of an error, after which its memory may not match the disk. It does
// nothing if err is nil.
func (e *engine) fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil && e.failure == nil {
		e.failure = err
		close(e.failed)
	}
}

// failedWith returns why the engine has failed, or nil.
func (e *engine) failedWith() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.failure
}

// unavailable returns the error of calls while the store is being opened again. It wraps a failure
// only if that is [ErrCorrupt]. Other failures are temporary.
func unavailable(failure error) error {
	if errors.Is(failure, ErrCorrupt) {
		return fmt.Errorf("pebblestore: %w: the store is being opened again: %w", driver.ErrUnavailable, failure)
	}
	return fmt.Errorf("pebblestore: %w: the store has failed and is being opened again: %v", //nolint:errorlint // see above
		driver.ErrUnavailable, failure)
}

// close answers the waiting calls and closes the directory.
func (e *engine) close() error {
	e.mu.Lock()
	e.closing = true
	e.mu.Unlock()
	e.wakeUp()
	closed := make(chan error, 1)
	go func() {
		e.both.Wait()
		closed <- e.closeDB()
	}()
	var err error
	select {
	case err = <-closed:
	case <-e.failed:
		select {
		case err = <-closed:
		case <-time.After(closeTimeout):
			err = errEnded
		}
	}
	return errors.Join(e.failedWith(), err)
}

func (e *engine) closeDB() error {
	e.shared.mu.Lock()
	e.shared.db = nil
	e.shared.mu.Unlock()
	e.db.closeIter()
	return e.db.pebble.Close()
}

// closeTimeout is how long a failed store waits until Pebble has closed the directory. After a
// fatal error Pebble may hold locks forever. Its goroutines and files then stay until the process
// ends, and engineFS drops its changes.
const closeTimeout = 10 * time.Second

// full returns [driver.ErrFull] if there is no space for new messages, a flush and a compaction.
func (e *engine) full() error {
	e.checkPath()
	least := uint64(max(64<<20, e.store.options.Memory/2)) //nolint:gosec // positive
	if usage, err := e.store.options.fs.GetDiskUsage(e.store.dir); err != nil || usage.AvailBytes >= least {
		return nil
	}
	return fmt.Errorf("pebblestore: %w: less than %d MiB is free in %q", driver.ErrFull, least>>20, e.store.dir)
}

// checkPath fails the engine if its directory is no longer at its path, where another process may
// use another one.
func (e *engine) checkPath() {
	if e.store.replaced() {
		e.fail(fmt.Errorf("%q was removed or replaced", e.store.dir))
	}
}

// errEnded is the error of a function if Pebble has ended its goroutine.
var errEnded = errors.New("a fatal error of Pebble")

// guard runs f on a goroutine of its own, because a fatal error of Pebble ends the goroutine. It
// returns the error of f, or the one with which Pebble has panicked.
func guard(f func() error) error {
	err, done := errEnded, make(chan struct{})
	go func() {
		defer close(done)
		defer recoverError(&err)
		err = f()
	}()
	<-done
	return err
}

// recoverError sets err to the error with which Pebble has panicked instead of returning it.
func recoverError(err *error) {
	r := recover()
	if failure, ok := r.(error); ok && !errors.As(failure, new(runtime.Error)) {
		*err = failure
	} else if r != nil {
		panic(r)
	}
}

type logger struct {
	to   *slog.Logger
	fail func(error)
}

func (l *logger) Infof(format string, args ...any) {
	l.to.Debug("pebble: " + fmt.Sprintf(format, args...))
}

func (l *logger) Errorf(format string, args ...any) {
	l.to.Error("pebble: " + fmt.Sprintf(format, args...))
}

// Fatalf ends the goroutine, because Pebble does not expect Fatalf to return.
func (l *logger) Fatalf(format string, args ...any) {
	l.fail(fmt.Errorf(format, args...))
	runtime.Goexit()
}
