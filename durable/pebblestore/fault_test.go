package pebblestore

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
	"github.com/timingwheel-go/timingwheel/durable/internal/local"
	"github.com/timingwheel-go/timingwheel/durable/internal/transition"
	"github.com/timingwheel-go/timingwheel/internal/testscale"
)

// view is a state in which a message may be when the store is opened.
type view struct {
	state    driver.State   // 0: there is no such message, or it is marked
	due      driver.Instant // 0: any
	attempts int
	planned  driver.Instant
}

// fact is what the answers of the store say about a message.
type fact struct {
	views   []view // more than one if the result of a call is not known
	crashes int    // when the store was opened by the test
	more    int    // crashes that may have been counted since
	begun   bool   // or a begin, or the end of the lease, was not answered
}

// model is what the answers of a store say about its messages, which have bodies of their ids.
type model struct {
	mu     sync.Mutex
	facts  map[string]*fact
	tokens []uint64 // the last token of each partition

	claiming []bool // by partition: any message may have begun, because a claim was not answered
}

func newModel() *model {
	n := faultConfig.Partitions
	return &model{facts: make(map[string]*fact), tokens: make([]uint64, n), claiming: make([]bool, n)}
}

// clone returns a copy of the model, and calls during while no answer is added.
func (m *model) clone(during func()) *model {
	m.mu.Lock()
	defer m.mu.Unlock()
	during()
	c := &model{facts: make(map[string]*fact), tokens: slices.Clone(m.tokens), claiming: slices.Clone(m.claiming)}
	for id, f := range m.facts {
		copied := *f
		copied.views = slices.Clone(f.views)
		c.facts[id] = &copied
	}
	return c
}

// update changes the fact of a message. A message that is not known does not exist.
func (m *model) update(id string, change func(*fact)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.facts[id] == nil {
		m.facts[id] = &fact{views: []view{{}}}
	}
	change(m.facts[id])
}

// check compares the model with a store that was just opened, and replaces what is not known by
// what is stored.
func (m *model) check(t *testing.T, q driver.Backend) {
	t.Helper()
	for id, f := range m.facts {
		r, err := q.Get(t.Context(), partitionOf(id), id)
		if err != nil {
			require.ErrorIs(t, err, driver.ErrNotFound)
		}
		found := view{r.State, r.Due, r.Attempts, r.Planned}
		require.True(t, slices.ContainsFunc(f.views, func(v view) bool {
			return v.state == found.state && v.attempts == found.attempts && v.planned == found.planned &&
				(v.due == 0 || v.due == found.due || found.planned != 0 && v.due < found.due && found.due == found.planned || r.Crashes > f.crashes && contract.CrashDelay(r.Crashes) > 0)
		}), "%s: %+v is none of %+v", id, found, f.views)
		if found.state != 0 {
			require.True(t, strings.HasPrefix(string(r.Body), id), "body of %s", id)
			require.Equal(t, isRecurring(id), r.Repeat != "", "series %q of %s", r.Repeat, id)
			most := f.crashes + f.more
			if f.begun || m.claiming[partitionOf(id)] {
				most++
			}
			require.GreaterOrEqual(t, r.Crashes, f.crashes, id)
			require.LessOrEqual(t, r.Crashes, most, id)
		}
		*f = fact{views: []view{found}, crashes: r.Crashes}
	}
	for p := range m.tokens {
		m.claiming[p] = false
		report, err := q.(driver.Auditor).Audit(t.Context(), p, false)
		require.NoError(t, err)
		require.Zero(t, report.Orphans+report.Strays+report.Unreadable+report.Wrong, "%+v", report)
	}
}

// worker makes calls to one partition, one after the other.
type worker struct {
	t         *testing.T
	q         driver.Backend
	m         *model
	partition int
	now       driver.Instant    // on the store's clock, which stands still
	size      int               // of bodies
	ids       []string          // of all messages
	leases    map[string]uint64 // tokens
	begun     map[string]bool
	n         int

	failed func(error) // called for each error
}

func newWorker(t *testing.T, q driver.Backend, m *model, partition, size int) *worker {
	t.Helper()
	return &worker{
		t: t, q: q, m: m, partition: partition, now: dueNow, size: size, leases: make(map[string]uint64), begun: make(map[string]bool),
		failed: func(err error) { assert.NoError(t, err) },
	}
}

// partitionOf returns the partition of a message of a worker.
func partitionOf(id string) int { return int(id[0] - 'a') }

// isRecurring reports whether a message of a worker is recurring.
func isRecurring(id string) bool { return strings.HasSuffix(id, "r") }

var faultConfig = driver.Config{Queue: "orders", Partitions: 3, DeadLimit: 1 << 20, DeadBytes: 1 << 40, DeadAge: 1000 * time.Hour}

// dueNow is the time on the clock of newClock.
var dueNow = transition.Floor(newClock().Now())

// put stores a message that is due. Every second one is recurring.
func (w *worker) put(life string) {
	item := driver.PutItem{ID: fmt.Sprintf("%c-%s-%d", 'a'+w.partition, life, w.n), At: w.now, MaxAttempts: 100}
	to := view{driver.StateScheduled, w.now, 0, 0}
	if w.n%2 == 1 {
		item.ID += "r"
		item.Repeat, to.planned = "daily", w.now
	}
	w.n++
	w.ids = append(w.ids, item.ID)
	item.Body = append([]byte(item.ID), make([]byte, w.size)...)
	w.change(item.ID, func(view) []view { return []view{to} }, func() (driver.Status, error) {
		statuses, err := w.q.Put(w.t.Context(), driver.Put{Partition: w.partition, Items: []driver.PutItem{item}})
		return append(statuses, 0)[0], err
	})
}

// change makes a call that brings a message from a state into one of others.
func (w *worker) change(id string, to func(from view) []view, call func() (driver.Status, error)) {
	var from, next []view
	w.m.update(id, func(f *fact) {
		from = f.views
		for _, v := range from {
			next = append(next, to(v)...)
		}
		f.views = slices.Concat(from, next)
	})
	status, err := call()
	if err != nil {
		w.failed(err)
		return
	}
	w.m.update(id, func(f *fact) {
		f.views = from
		switch status {
		case driver.StatusDone, driver.StatusInterrupted:
			f.views = next
		case driver.StatusNotFound:
			assert.True(w.t, slices.ContainsFunc(from, func(v view) bool {
				return v.state != driver.StateScheduled
			}), "%s is lost: %+v", id, from)
		default:
		}
	})
}

// gone is the state after the removal of a message.
func gone(view) []view { return []view{{}} }

func (w *worker) apply(op driver.Op, change driver.Change) (driver.Status, error) {
	outcomes, err := w.q.Apply(w.t.Context(), driver.Batch{
		Partition: w.partition, Op: op, Visibility: time.Hour, Changes: []driver.Change{change},
	})
	return append(outcomes, driver.Outcome{})[0].Status, err
}

// claim claims messages. The first ones begin with the claim.
func (w *worker) claim(n, begin int) {
	w.m.mu.Lock()
	w.m.claiming[w.partition] = begin > 0
	w.m.mu.Unlock()
	claimed, err := w.q.Claim(w.t.Context(), driver.Claim{
		Partition: w.partition, Max: n, MaxBytes: 1 << 20, Visibility: time.Hour, Begin: begin,
	})
	if err != nil {
		w.failed(err)
		return
	}
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	w.m.claiming[w.partition] = false
	for _, r := range claimed.Records {
		w.m.facts[r.ID].begun = w.m.facts[r.ID].begun || r.State == driver.StateFiring
		assert.Greater(w.t, r.Token, w.m.tokens[w.partition], "tokens rise")
		w.m.tokens[w.partition] = r.Token
		w.leases[r.ID], w.begun[r.ID] = r.Token, r.State == driver.StateFiring
	}
}

func (w *worker) begin(id string) {
	w.m.update(id, func(f *fact) { f.begun = true })
	status, err := w.apply(driver.OpBegin, driver.Change{ID: id, Token: w.leases[id]})
	if err != nil {
		w.failed(err)
		return
	}
	w.begun[id] = status == driver.StatusDone
}

// end ends a lease. A marked message is removed.
func (w *worker) end(id string, op driver.Op) {
	w.endBy(id, op, driver.Change{}, func(v view) []view {
		switch {
		case v.state == 0 || op == driver.OpAck:
			return []view{{}}
		case op == driver.OpRetry:
			v.due, v.attempts = 0, v.attempts+1
		case op == driver.OpBury:
			v.state, v.due, v.attempts = driver.StateDead, 0, v.attempts+1
		}
		return []view{v}
	})
}

// endRun ends the run that was planned at an instant. The next one is at at.
func (w *worker) endRun(id string, planned, at driver.Instant) {
	w.m.update(id, func(f *fact) { f.crashes, f.more = 0, f.more+f.crashes })
	w.endBy(id, driver.OpRetry, driver.Change{Again: true, Incarnation: planned, At: at}, func(v view) []view {
		if v.state == 0 || !isRecurring(id) {
			return []view{{}}
		}
		next := at
		if v.planned != planned {
			next = max(v.planned, w.now)
		}
		return []view{{driver.StateScheduled, next, 0, next}}
	})
}

func (w *worker) endBy(id string, op driver.Op, c driver.Change, to func(view) []view) {
	c.ID, c.Token = id, w.leases[id]
	delete(w.leases, id)
	w.change(id, to, func() (driver.Status, error) {
		status, err := w.apply(op, c)
		if err == nil && status == driver.StatusDone && op != driver.OpRelease { // it does not wait for a sync
			w.m.update(id, func(f *fact) { f.begun = false })
		}
		return status, err
	})
}

// cancel removes or marks a message.
func (w *worker) cancel(id string, interrupt bool) {
	w.change(id, gone, func() (driver.Status, error) {
		return w.apply(driver.OpCancel, driver.Change{ID: id, Interrupt: interrupt || isRecurring(id)})
	})
}

func (w *worker) reschedule(id string, at driver.Instant) {
	w.change(id, func(v view) []view {
		if v.state == driver.StateScheduled {
			if v.due = at; isRecurring(id) {
				v.planned = at
			}
		}
		return []view{v}
	}, func() (driver.Status, error) { return w.apply(driver.OpReschedule, driver.Change{ID: id, At: at}) })
}

// repeat changes the series of a recurring message, which may be firing.
func (w *worker) repeat(id string, at driver.Instant) {
	w.change(id, func(v view) []view {
		v.planned = at
		now := v
		now.due = at
		return []view{v, now}
	}, func() (driver.Status, error) {
		return w.apply(driver.OpRepeat, driver.Change{ID: id, At: at, Repeat: "weekly"})
	})
}

func (w *worker) leased() string {
	for id := range w.leases {
		return id
	}
	return ""
}

func faultOptions(fs vfs.FS) Options {
	return Options{Memory: minMemory, Logger: slog.New(slog.DiscardHandler), now: newClock().Now, fs: fs}
}

// faults is a file system on which the operations from number first to last fail.
type faults struct {
	n, first, last atomic.Int64
	err            error
}

func (f *faults) inject(op errorfs.Op) error {
	if op.Kind == errorfs.OpGetDiskUsage || op.Kind == errorfs.OpFileClose {
		return nil
	}
	if n := f.n.Add(1); n >= f.first.Load() && n <= f.last.Load() {
		return fmt.Errorf("%s: %w", op.Path, f.err)
	}
	return nil
}

// faultScript runs calls on a store whose operations first to last fail, and compares the store
// with the answers. It reports whether an operation has failed.
func faultScript(t *testing.T, first, last int64, fault error) bool {
	t.Helper()
	mem := vfs.NewMem()
	f := &faults{err: fault}
	f.first.Store(first)
	f.last.Store(last)
	options := faultOptions(errorfs.Wrap(mem, errorfs.InjectorFunc(f.inject)))
	var s *Store
	require.Eventually(t, func() bool {
		var err error
		if s, err = Open("store", options); err != nil {
			assertNoDamage(t, err)
			require.NotErrorIs(t, err, driver.ErrLocked)
		}
		return err == nil
	}, time.Minute, time.Millisecond)
	var q driver.Backend
	require.Eventually(t, func() (ok bool) {
		var err error
		q, err = s.Open(t.Context(), faultConfig)
		if err != nil {
			require.ErrorIs(t, err, driver.ErrUnavailable)
			assertNoDamage(t, err)
		}
		return err == nil
	}, time.Minute, time.Millisecond)
	m := newModel()
	w := newWorker(t, q, m, 0, 90<<10)
	w.failed = func(err error) {
		for _, f := range m.facts {
			if f.begun || m.claiming[0] {
				f.more++
			}
		}
		for deadline := time.Now().Add(time.Minute); err != nil; _, err = q.Count(t.Context(), 0) {
			require.ErrorIs(t, err, driver.ErrUnavailable)
			assertNoDamage(t, err)
			require.True(t, time.Now().Before(deadline), "the store is not opened again: %v", err)
			time.Sleep(time.Millisecond)
		}
	}
	w.script()
	_ = s.Close() // it may fail
	s, err := Open("store", faultOptions(mem))
	require.NoError(t, err)
	q, err = s.Open(t.Context(), faultConfig)
	require.NoError(t, err)
	m.check(t, q)
	require.NoError(t, s.Close())
	return f.n.Load() >= first
}

// script makes each kind of call. The bodies fill several memtables and WALs.
func (w *worker) script() {
	for range 6 {
		w.put("x")
	}
	w.claim(2, 1)
	w.claim(3, 0)
	for i, op := range []driver.Op{driver.OpAck, driver.OpRetry, driver.OpBury, driver.OpRelease} {
		id := w.ids[i]
		if w.leases[id] != 0 && !w.begun[id] {
			w.begin(id)
		}
		w.end(id, op)
	}
	w.cancel(w.ids[4], false)
	w.reschedule(w.ids[5], w.now+1000)
	for i := range 8 {
		w.put("y")
		w.claim(1, 1)
		if id := w.leased(); id != "" && i%2 == 0 {
			w.end(id, driver.OpAck)
		} else if id != "" {
			w.endSeries(id, i)
		}
	}
}

// endSeries changes, marks and ends a message that has begun.
func (w *worker) endSeries(id string, i int) {
	if isRecurring(id) {
		w.repeat(id, w.now+2000)
	}
	if i%4 == 1 {
		w.cancel(id, true)
	}
	w.endRun(id, w.now, w.now+3000)
}

func assertNoDamage(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, ErrCorrupt) || strings.Contains(err.Error(), "damaged") || strings.Contains(err.Error(), "corrupt") {
		assert.Fail(t, "the error speaks of damage", "%v", err)
	}
}

// underRace is true in a build with the race detector, under which Pebble is twenty times slower.
var underRace bool

// Every fifth operation of the file system fails once, every operation in the full test, and every
// twentieth under the race detector.
func TestStoreComesBackAfterAnyFault(t *testing.T) {
	t.Parallel()
	step := int64(5)
	switch {
	case underRace:
		step = 20
	case testscale.Full():
		step = 1
	}
	faults := 0
	for n := int64(1); ; n += step {
		if !faultScript(t, n, n, []error{syscall.ENOSPC, syscall.EIO}[n%2]) {
			break
		}
		faults++
	}
	t.Logf("%d faults", faults)
	assert.Greater(t, faults, 10)
}

// The first operations of the attempts to open the directory again fail as well.
func TestStoreComesBackAfterFaultsOfReopening(t *testing.T) {
	t.Parallel()
	for n := int64(40); n <= 200; n += 40 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			faultScript(t, n, n+3, syscall.ENOSPC)
		})
	}
}

// A crash loses what was not synced, in whole or in part. Between a crash and the next opening the
// clock is set forward or back by hours.
func TestCrashLosesNothingAnswered(t *testing.T) {
	t.Parallel()
	seeds := uint64(3)
	switch {
	case underRace:
		seeds = 1
	case testscale.Full():
		seeds = 100 // a million calls in all
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // repeatable
			mem, m := vfs.NewCrashableMem(), newModel()
			for life := range 6 {
				mem, m = crash(t, random, mem, m, fmt.Sprint(life))
			}
		})
	}
}

// crash runs random calls on a store until the system crashes during an operation. It returns what
// is on the disk then, and what the store has answered.
func crash(t *testing.T, random *rand.Rand, mem *vfs.MemFS, m *model, life string) (*vfs.MemFS, *model) {
	t.Helper()
	var once sync.Once
	var n atomic.Int64
	crashed := make(chan struct{})
	var disk *vfs.MemFS
	var then *model
	config := vfs.CrashCloneCfg{
		RNG:                 rand.New(rand.NewPCG(random.Uint64(), 0)), //nolint:gosec // repeatable
		UnsyncedDataPercent: random.IntN(3) * 50,
	}
	at := int64(50 + random.IntN(2000))
	clock := newClock()
	clock.Advance(time.Duration(random.IntN(11)-5) * time.Hour)
	options := faultOptions(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && n.Add(1) >= at {
			once.Do(func() {
				then = m.clone(func() { disk = mem.CrashClone(config) })
				close(crashed)
			})
		}
		return nil
	})))
	options.now = clock.Now
	s, err := Open("store", options)
	require.NoError(t, err)
	q, err := s.Open(t.Context(), faultConfig)
	require.NoError(t, err)
	m.check(t, q)
	var workers sync.WaitGroup
	for p := range faultConfig.Partitions {
		w := newWorker(t, q, m, p, random.IntN(3)*500)
		w.now = transition.Floor(clock.Now())
		r := rand.New(rand.NewPCG(random.Uint64(), 0)) //nolint:gosec // repeatable
		workers.Go(func() { w.random(r, life, crashed) })
	}
	workers.Wait()
	require.NoError(t, s.Close())
	return disk, then
}

// random makes random calls until the system has crashed.
func (w *worker) random(random *rand.Rand, life string, crashed <-chan struct{}) {
	for {
		select {
		case <-crashed:
			return
		default:
		}
		leased, id := w.leased(), ""
		if len(w.ids) > 0 {
			id = w.ids[random.IntN(len(w.ids))]
		}
		switch n := random.IntN(10); {
		case n < 3 || id == "":
			w.put(life)
		case n == 3:
			w.cancel(id, random.IntN(2) == 0)
		case n == 4:
			w.reschedule(id, w.now+driver.Instant(random.IntN(3)))
		case n < 7:
			w.claim(1+random.IntN(4), random.IntN(3))
		case leased == "":
		case !w.begun[leased]:
			w.begin(leased)
		case n == 7:
			w.endRun(leased, w.now, w.now+driver.Instant(random.IntN(3)))
		case n == 8 && isRecurring(leased):
			w.repeat(leased, w.now+driver.Instant(random.IntN(3)))
		default:
			ops := []driver.Op{driver.OpAck, driver.OpAck, driver.OpRetry, driver.OpBury, driver.OpRelease}
			w.end(leased, ops[random.IntN(len(ops))])
		}
	}
}

// Pebble ends the process after these errors, unless its logger does something else.
func TestFatalErrorsOfPebbleDoNotEndTheProcess(t *testing.T) {
	t.Parallel()
	s, err := Open(t.TempDir(), faultOptions(nil))
	require.NoError(t, err)
	q, err := s.Open(t.Context(), faultConfig)
	require.NoError(t, err)
	w := newWorker(t, q, newModel(), 0, 10)
	available := func() bool {
		_, err := q.Count(t.Context(), 0)
		return err == nil
	}
	for range 3 {
		w.put("x")
		e, err := runner{s}.engine(t.Context())
		require.NoError(t, err)
		l := &logger{s.options.Logger, e.fail}
		err = e.do(t.Context(), &local.Call{Waits: true, Do: func(*local.State) error {
			l.Fatalf("fatal commit error: %v", syscall.EIO)
			return nil
		}})
		require.ErrorIs(t, err, driver.ErrUnavailable)
		require.Eventually(t, available, time.Minute, time.Millisecond)
		e, err = runner{s}.engine(t.Context())
		require.NoError(t, err)
		l = &logger{s.options.Logger, e.fail}
		require.ErrorIs(t, guard(func() error {
			l.Fatalf("MANIFEST sync failed: %v", syscall.EIO)
			return nil
		}), errEnded)
		require.Eventually(t, available, time.Minute, time.Millisecond)
	}
	w.m.check(t, q)
	require.NoError(t, s.Close())
}
