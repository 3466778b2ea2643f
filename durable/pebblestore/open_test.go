package pebblestore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
	"github.com/timingwheel-go/timingwheel/durable/internal/local"
)

// openStore opens a directory that the test closes at its end.
func openStore(t *testing.T, dir string, options Options) (*Store, driver.Backend) {
	t.Helper()
	s, err := Open(dir, options)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	q, err := s.Open(t.Context(), faultConfig)
	require.NoError(t, err)
	return s, q
}

func putOne(t *testing.T, q driver.Backend, id string) {
	t.Helper()
	_, err := q.Put(t.Context(), driver.Put{Items: []driver.PutItem{{ID: id, Body: []byte("body of " + id)}}})
	assert.NoError(t, err)
}

func TestOpenRejectsMemoryOutOfRange(t *testing.T) {
	t.Parallel()
	for _, memory := range []int64{-1, 1, minMemory - 1} {
		dir := filepath.Join(t.TempDir(), "store")
		_, err := Open(dir, Options{Memory: memory})
		require.ErrorIs(t, err, driver.ErrInvalid)
		assert.ErrorContains(t, err, fmt.Sprintf("Memory %d; it must be at least %d", memory, minMemory))
		assert.NoDirExists(t, dir)
	}
}

func TestOpenRejectsPathThatIsNoDirectoryOfAStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, []byte("text"), 0o600))
	other := filepath.Join(dir, "other")
	db, err := pebble.Open(other, &pebble.Options{Logger: &logger{faultOptions(nil).Logger, nil}})
	require.NoError(t, err)
	require.NoError(t, db.Close())
	leveldb := filepath.Join(dir, "leveldb")
	require.NoError(t, os.Mkdir(leveldb, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(leveldb, "CURRENT"), []byte("MANIFEST-000001\n"), 0o600))
	for _, c := range []struct {
		path, text string
		is         error
	}{
		{file, "must be a directory", driver.ErrInvalid},
		{filepath.Join(file, "store"), "must be a directory", driver.ErrInvalid},
		{dir, "must be empty or the directory of a store", driver.ErrVersion},
		{leveldb, `"CURRENT"`, driver.ErrVersion},
		{other, "the database of another program", driver.ErrVersion},
	} {
		before, err := os.ReadDir(filepath.Dir(file))
		require.NoError(t, err)
		_, err = Open(c.path, faultOptions(nil))
		require.ErrorIs(t, err, c.is, c.path)
		assert.ErrorContains(t, err, c.text)
		assert.ErrorContains(t, err, c.path)
		after, err := os.ReadDir(filepath.Dir(file))
		require.NoError(t, err)
		assert.Len(t, after, len(before), "Open changes nothing")
	}
}

// The creation of the store was interrupted, or the directory is the root of a file system.
func TestOpenAcceptsDirectoryWithoutForeignFiles(t *testing.T) {
	t.Parallel()
	for _, names := range [][]string{{"lost+found"}, {lockName}, {lockName, ownerName, "LOCK", "000002.log", "OPTIONS-000003"}} {
		dir := t.TempDir()
		for _, name := range names {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		}
		openStore(t, dir, faultOptions(nil))
	}
}

func TestSecondOpenNamesTheProcessThatHasTheDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := Open(dir, faultOptions(nil))
	require.NoError(t, err)
	link := filepath.Join(t.TempDir(), "link")
	paths := []string{dir, dir + string(filepath.Separator)}
	if os.Symlink(dir, link) == nil {
		paths = append(paths, link)
	}
	for _, path := range paths {
		_, err = Open(path, faultOptions(nil))
		require.ErrorIs(t, err, driver.ErrLocked, path)
		assert.ErrorContains(t, err, fmt.Sprintf("process %d (", os.Getpid()))
	}
	out, err := child(t.Context(), "open", dir, "").Output()
	require.Error(t, err)
	assert.Contains(t, string(out), driver.ErrLocked.Error())
	assert.Contains(t, string(out), fmt.Sprintf("process %d (", os.Getpid()))
	require.NoError(t, s.Close())
	openStore(t, dir, faultOptions(nil))
}

func TestOpenNamesDirectoryWithoutRights(t *testing.T) {
	t.Parallel()
	if os.Geteuid() <= 0 || runtime.GOOS == "windows" {
		t.Skip("this user may read and write everything")
	}
	for _, mode := range []os.FileMode{0, 0o500} {
		dir := filepath.Join(t.TempDir(), "store")
		require.NoError(t, os.Mkdir(dir, mode))
		_, err := Open(dir, faultOptions(nil))
		require.ErrorIs(t, err, driver.ErrInvalid)
		require.ErrorIs(t, err, fs.ErrPermission)
		assert.ErrorContains(t, err, dir)
	}
}

// The file system may not be writable although the rights say so.
func TestOpenNamesReadOnlyDirectory(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem()
	require.NoError(t, mem.MkdirAll("store", 0o700))
	options := faultOptions(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return &fs.PathError{Op: "open", Path: op.Path, Err: syscall.EROFS}
		}
		return nil
	})))
	_, err := Open("store", options)
	require.ErrorIs(t, err, driver.ErrInvalid)
	assert.ErrorContains(t, err, "store")
}

// damaged returns a directory with the messages a0 to a99, and with files that are overwritten.
func damaged(t *testing.T, pattern string, damage func([]byte) []byte) string {
	t.Helper()
	dir := t.TempDir()
	s, err := Open(dir, faultOptions(nil))
	require.NoError(t, err)
	q, err := s.Open(t.Context(), faultConfig)
	require.NoError(t, err)
	for i := range 100 {
		body := make([]byte, 1000)
		_, _ = rand.NewChaCha8([32]byte{byte(i)}).Read(body)
		_, err := q.Put(t.Context(), driver.Put{Items: []driver.PutItem{{ID: fmt.Sprint("a", i), Body: body}}})
		require.NoError(t, err)
	}
	require.NoError(t, s.current.db.pebble.Flush())
	require.NoError(t, s.Close())
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, damage(b), 0o600))
	}
	return dir
}

// Damage is reported by Open, or by the first call that reads it.
func TestDamageIsErrCorruptAndNamesTheFile(t *testing.T) {
	t.Parallel()
	garbage := func(b []byte) []byte { return []byte(strings.Repeat("garbage ", 1+len(b)/8)) }
	for _, c := range []struct {
		pattern, names string
		damage         func([]byte) []byte
	}{
		{"MANIFEST-*", `MANIFEST-\d{6}`, garbage},
		{"MANIFEST-*", `MANIFEST-\d{6}`, func(b []byte) []byte { return b[:0] }},
		{"*.sst", `\d{6}\.sst`, garbage},
		{"*.sst", `\d{6}\.sst`, func(b []byte) []byte { return b[:len(b)/2] }},
		{"*.sst", `\d{6}\.sst`, func(b []byte) []byte { return append(make([]byte, len(b)/2), b[len(b)/2:]...) }},
		{"OPTIONS-*", "garbage", garbage},
	} {
		dir := damaged(t, c.pattern, c.damage)
		s, err := Open(dir, faultOptions(nil))
		if err == nil {
			var q driver.Backend
			if q, err = s.Open(t.Context(), faultConfig); err == nil {
				_, err = q.Get(t.Context(), 0, "a50")
			}
			require.NoError(t, s.Close())
		}
		require.ErrorIs(t, err, ErrCorrupt, c.pattern)
		require.NotErrorIs(t, err, driver.ErrUnavailable)
		assert.ErrorContains(t, err, dir)
		assert.Regexp(t, c.names, err.Error())
		lock, err := vfs.Default.Lock(filepath.Join(dir, lockName))
		require.NoError(t, err, "the directory is not locked")
		require.NoError(t, lock.Close())
	}
}

// The directory is moved, and another process creates one in its place.
func TestReplacedDirectoryIsLeftAlone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	s, q := openStore(t, dir, faultOptions(nil))
	putOne(t, q, "a")
	require.NoError(t, os.Rename(dir, dir+".old"))
	require.NoError(t, child(t.Context(), "open", dir, "").Run())
	require.Eventually(t, func() bool { // no message has to be stored
		_, err := q.Get(t.Context(), 0, "a")
		return errors.Is(err, driver.ErrUnavailable)
	}, time.Minute, time.Millisecond)
	_ = s.Close()
	assert.FileExists(t, filepath.Join(dir, ownerName), "it belongs to the other process")
	requireIDs(t, dir)
}

// The disk of a store is no longer mounted when the store is opened again.
func TestFailedStoreIsNotCreatedAgain(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	s, q := openStore(t, dir, faultOptions(nil))
	putOne(t, q, "a")
	moved := dir + "-moved"
	require.NoError(t, os.Rename(dir, moved))
	s.current.fail(fs.ErrInvalid)
	time.Sleep(300 * time.Millisecond) // several attempts
	_, err := q.Get(t.Context(), 0, "a")
	require.ErrorIs(t, err, driver.ErrUnavailable)
	assert.NoDirExists(t, dir)
	require.NoError(t, os.Rename(moved, dir))
	require.Eventually(t, func() bool {
		_, err = q.Get(t.Context(), 0, "a")
		return !errors.Is(err, driver.ErrUnavailable)
	}, time.Minute, time.Millisecond)
	require.NoError(t, err)
}

func TestMissingFileIsErrCorrupt(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{"MANIFEST-*", "*.sst"} {
		dir := damaged(t, pattern, func(b []byte) []byte { return b })
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		require.NoError(t, err)
		for _, file := range files {
			require.NoError(t, os.Remove(file))
		}
		_, err = Open(dir, faultOptions(nil))
		require.ErrorIs(t, err, ErrCorrupt, pattern)
	}
}

// A number becomes zero above a value that an earlier compaction wrote, and before a deleted key.
func TestCompactionKeepsNumbers(t *testing.T) {
	t.Parallel()
	db, err := pebble.Open("db", &pebble.Options{FS: vfs.NewMem(), Merger: numbers, Logger: &logger{faultOptions(nil).Logger, nil}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	compact := func() {
		require.NoError(t, db.Flush())
		require.NoError(t, db.Compact(t.Context(), []byte("a"), []byte("z"), false))
	}
	table := newBatchDB(db)
	for _, key := range []string{"a", "b", "c", "d"} {
		table.Add([]byte(key+"1"), 1)
		table.Set([]byte(key+"2"), []byte("value"))
	}
	require.NoError(t, table.flush())
	compact()
	table.Add([]byte("a1"), -1)
	table.Delete([]byte("a2"))
	table.Add([]byte("b1"), 5)
	require.NoError(t, table.flush())
	table.Add([]byte("b1"), -5)
	table.Delete([]byte("b2"))
	require.NoError(t, table.flush())
	table.closeIter()
	compact()
	sums := make(map[string]int64)
	require.NoError(t, table.Scan([]byte("a"), []byte("z"), func(key, value []byte) bool {
		if key[1] == '1' {
			sums[string(key)] = local.Number(value)
		} else {
			assert.Equal(t, "value", string(value))
		}
		return true
	}))
	assert.Equal(t, map[string]int64{"a1": 0, "b1": 1, "c1": 1, "d1": 1}, sums)
}

// Changes leave nothing in memory when they are committed, whether a Get has followed them or not.
func TestCommittedChangesLeaveNothingInMemory(t *testing.T) {
	t.Parallel()
	db, err := pebble.Open("db", &pebble.Options{FS: vfs.NewMem(), Merger: numbers, Logger: &logger{faultOptions(nil).Logger, nil}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	table := newBatchDB(db)
	for round := range 4 {
		if round%2 == 1 {
			_, err := table.Get([]byte("key"))
			require.NoError(t, err)
		}
		for i := range 100 {
			table.Set(fmt.Appendf(nil, "%d-%d", round, i), []byte("value"))
		}
		require.NoError(t, table.flush())
		assert.Empty(t, table.changed, "round %d", round)
		value, err := table.Get(fmt.Appendf(nil, "%d-99", round))
		require.NoError(t, err)
		assert.Equal(t, "value", string(value))
		table.Set([]byte("key"), fmt.Append(nil, round))
		value, err = table.Get([]byte("key"))
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprint(round), string(value))
		require.NoError(t, table.flush())
	}
}

func TestOpenNamesFormatVersions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, _ := openStore(t, dir, faultOptions(nil))
	key := []byte("\x00version")
	value := binary.BigEndian.AppendUint64(nil, local.FormatVersion+7)
	require.NoError(t, s.current.db.pebble.Set(key, value, pebble.Sync))
	require.NoError(t, s.Close())
	_, err := Open(dir, faultOptions(nil))
	require.ErrorIs(t, err, driver.ErrVersion)
	require.NotErrorIs(t, err, driver.ErrUnavailable)
	assert.ErrorContains(t, err, dir)
	assert.ErrorContains(t, err, fmt.Sprintf("version %d; this program reads and writes version %d",
		local.FormatVersion+7, local.FormatVersion))
}

func TestOtherUsersCannotReadTheFiles(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("files have no modes")
	}
	parent := t.TempDir()
	s, q := openStore(t, filepath.Join(parent, "parts", "store"), faultOptions(nil))
	putOne(t, q, "a")
	require.NoError(t, s.current.db.pebble.Flush())
	require.NoError(t, s.Backup(t.Context(), filepath.Join(parent, "backups", "first")))
	require.NoError(t, filepath.WalkDir(parent, func(path string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := d.Info()
		require.NoError(t, err)
		switch {
		case path == parent:
		case d.IsDir():
			assert.Equal(t, os.FileMode(0o700), info.Mode().Perm(), path)
		default:
			assert.Equal(t, os.FileMode(0o600), info.Mode().Perm(), path)
		}
		return nil
	}))
}

func TestCallsOfClosedStoreReturnErrClosed(t *testing.T) {
	t.Parallel()
	s, q := openStore(t, t.TempDir(), faultOptions(nil))
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	ctx := t.Context()
	_, err := s.Open(ctx, faultConfig)
	require.ErrorIs(t, err, driver.ErrClosed)
	_, err = q.Put(ctx, driver.Put{Items: []driver.PutItem{{ID: "a"}}})
	require.ErrorIs(t, err, driver.ErrClosed)
	_, err = q.Claim(ctx, driver.Claim{Max: 1})
	require.ErrorIs(t, err, driver.ErrClosed)
	_, err = q.Apply(ctx, driver.Batch{Op: driver.OpCancel, Changes: []driver.Change{{ID: "a"}}})
	require.ErrorIs(t, err, driver.ErrClosed)
	_, err = q.Count(ctx, 0)
	require.ErrorIs(t, err, driver.ErrClosed)
	_, err = q.Members(ctx)
	require.ErrorIs(t, err, driver.ErrClosed)
	_, err = q.Watch(ctx)
	require.ErrorIs(t, err, driver.ErrClosed)
	require.ErrorIs(t, s.Backup(ctx, filepath.Join(t.TempDir(), "copy")), driver.ErrClosed)
}

// Callers run while the store is closed, and again with a failure in between. Each call returns,
// and the store has what was answered.
func TestCloseDuringCallsKeepsWhatWasAnswered(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	answered := make(map[string]bool)
	for round := range 10 {
		s, err := Open(dir, faultOptions(nil))
		require.NoError(t, err)
		q, err := s.Open(t.Context(), faultConfig)
		require.NoError(t, err)
		for id := range answered {
			_, err := q.Get(t.Context(), 0, id)
			require.NoError(t, err, id)
		}
		var mu sync.Mutex
		var callers sync.WaitGroup
		for caller := range 4 {
			callers.Go(func() {
				for i := 0; ; i++ {
					id := fmt.Sprint("a-", round, "-", caller, "-", i)
					_, err := q.Put(t.Context(), driver.Put{Items: []driver.PutItem{{ID: id}}})
					if err == nil {
						mu.Lock()
						answered[id] = true
						mu.Unlock()
						continue
					}
					if !errors.Is(err, driver.ErrUnavailable) {
						assert.ErrorIs(t, err, driver.ErrClosed)
						return
					}
				}
			})
		}
		time.Sleep(time.Duration(round) * 2 * time.Millisecond)
		if e, err := (runner{s}).engine(t.Context()); err == nil && round%2 == 1 {
			e.fail(fs.ErrInvalid)
		}
		var closers sync.WaitGroup
		for range 2 {
			closers.Go(func() { _ = s.Close() })
		}
		closers.Wait()
		callers.Wait()
	}
	assert.NotEmpty(t, answered)
}

// A call whose context ends before it runs has no effect. A call that runs has an UnderWayError.
func TestCallHasNoEffectIfItsContextEndsBeforeItRuns(t *testing.T) {
	t.Parallel()
	s, q := openStore(t, t.TempDir(), faultOptions(nil))
	ended, cancel := context.WithCancelCause(t.Context())
	cause := fmt.Errorf("the caller has gone")
	cancel(cause)
	_, err := q.Put(ended, driver.Put{Items: []driver.PutItem{{ID: "never"}}})
	require.ErrorIs(t, err, cause)

	running, release := make(chan struct{}), make(chan struct{})
	e := s.current
	ctx, cancel := context.WithCancelCause(t.Context())
	errs := make(chan error)
	go func() {
		errs <- e.do(ctx, &local.Call{Do: func(*local.State) error {
			close(running)
			<-release
			return nil
		}})
	}()
	<-running
	waiting := make(chan error)
	go func() {
		_, err := q.Put(ctx, driver.Put{Items: []driver.PutItem{{ID: "skipped"}}})
		waiting <- err
	}()
	require.Eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.waiting) == 1
	}, time.Minute, time.Millisecond)
	cancel(cause)
	var underWay *contract.UnderWayError
	require.ErrorAs(t, <-errs, &underWay)
	require.ErrorIs(t, underWay, cause)
	err = <-waiting
	require.ErrorIs(t, err, cause)
	require.NotErrorAs(t, err, new(*contract.UnderWayError))
	select {
	case <-underWay.Done:
		assert.Fail(t, "the call is not over")
	default:
	}
	close(release)
	<-underWay.Done
	for _, id := range []string{"never", "skipped"} {
		_, err = q.Get(t.Context(), 0, id)
		require.ErrorIs(t, err, driver.ErrNotFound)
	}
}

// The queue counts a call as waiting until it is over, even if the store fails meanwhile.
func TestCallUnderWayIsOverWhenTheStoreFails(t *testing.T) {
	t.Parallel()
	s, q := openStore(t, t.TempDir(), faultOptions(nil))
	for _, waits := range []bool{false, true} {
		e, err := runner{s}.engine(t.Context())
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		running, release := make(chan struct{}), make(chan struct{})
		errs := make(chan error)
		go func() {
			errs <- e.do(ctx, &local.Call{Waits: waits, Do: func(*local.State) error {
				close(running)
				<-release
				e.fail(fs.ErrInvalid)
				return nil
			}})
		}()
		<-running
		cancel()
		var underWay *contract.UnderWayError
		require.ErrorAs(t, <-errs, &underWay)
		close(release)
		<-underWay.Done
		available(t, q)
	}
}

// available waits until a failed store is open again.
func available(t *testing.T, q driver.Backend) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := q.Count(t.Context(), 0)
		return err == nil
	}, time.Minute, time.Millisecond)
}

// The disk fails for a moment while messages are claimed and while one is being handled, and again
// before the queue is used.
func TestFailureOfTheDiskKeepsLeases(t *testing.T) {
	t.Parallel()
	s, q := openStore(t, t.TempDir(), faultOptions(nil))
	for _, id := range []string{"a", "b", "c"} {
		putOne(t, q, id)
	}
	claim := driver.Claim{Max: 3, MaxBytes: 1 << 20, Begin: 2, Visibility: time.Hour, MaxCrashes: 1}
	claimed, err := q.Claim(t.Context(), claim)
	require.NoError(t, err)
	require.Len(t, claimed.Records, 3)
	change := func(op driver.Op, i int) driver.Status {
		r := claimed.Records[i]
		outcomes, err := q.Apply(t.Context(), driver.Batch{Op: op, Visibility: time.Hour,
			Changes: []driver.Change{{ID: r.ID, Token: r.Token}}})
		require.NoError(t, err)
		return outcomes[0].Status
	}
	require.Equal(t, driver.StatusDone, change(driver.OpRelease, 1))
	for range 2 {
		failOnce(t, s)
		_, err = q.Get(t.Context(), 0, "missing") // the first call may have an error of its own
		require.ErrorIs(t, err, driver.ErrNotFound)
	}
	again, err := q.Claim(t.Context(), claim)
	require.NoError(t, err)
	require.Len(t, again.Records, 1, "the others are leased")
	assert.Equal(t, claimed.Records[1].ID, again.Records[0].ID)
	assert.Zero(t, again.Records[0].Crashes, "it was released")
	assert.Greater(t, again.Records[0].Token, claimed.Records[2].Token)
	r, err := q.Get(t.Context(), 0, claimed.Records[0].ID)
	require.NoError(t, err)
	assert.Equal(t, driver.StateFiring, r.State)
	assert.Zero(t, r.Crashes)
	assert.Equal(t, driver.StatusFiring, change(driver.OpCancel, 0))
	assert.Equal(t, driver.StatusDone, change(driver.OpAck, 0))
	assert.Equal(t, driver.StatusDone, change(driver.OpBegin, 2))
	assert.Equal(t, driver.StatusDone, change(driver.OpAck, 2))
	report, err := q.(driver.Auditor).Audit(t.Context(), 0, false)
	require.NoError(t, err)
	assert.Zero(t, report.Orphans+report.Strays+report.Unreadable+report.Wrong, "%+v", report)
}

// The acknowledgement of a message is lost with the disk, and its lease is not.
func TestFailureOfTheDiskKeepsLeasesWhoseEndIsLost(t *testing.T) {
	t.Parallel()
	var fail atomic.Bool
	disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileWrite && strings.HasSuffix(op.Path, ".log") && fail.CompareAndSwap(true, false) {
			return syscall.EIO
		}
		return nil
	}))
	_, q := openStore(t, "store", faultOptions(disk))
	putOne(t, q, "a")
	claimed, err := q.Claim(t.Context(), driver.Claim{Max: 1, Begin: 1, Visibility: time.Hour, MaxCrashes: 1})
	require.NoError(t, err)
	require.Len(t, claimed.Records, 1)
	ack := driver.Batch{Op: driver.OpAck, Changes: []driver.Change{{ID: "a", Token: claimed.Records[0].Token}}}
	fail.Store(true)
	_, err = q.Apply(t.Context(), ack)
	require.ErrorIs(t, err, driver.ErrUnavailable)
	available(t, q)
	r, err := q.Get(t.Context(), 0, "a")
	require.NoError(t, err)
	assert.Equal(t, driver.StateFiring, r.State)
	assert.Zero(t, r.Crashes)
	outcomes, err := q.Apply(t.Context(), ack)
	require.NoError(t, err)
	assert.Equal(t, driver.StatusDone, outcomes[0].Status)
	_, err = q.Get(t.Context(), 0, "a")
	require.ErrorIs(t, err, driver.ErrNotFound)
}

// While syncs do not end, a claim waits for its tokens, and delays no other call.
func TestSlowDiskDelaysOnlyCallsThatWaitForIt(t *testing.T) {
	t.Parallel()
	var slow atomic.Bool
	disk := make(chan struct{})
	_, q := openStore(t, "store", faultOptions(errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if slow.Load() && strings.HasSuffix(op.Path, ".log") && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			<-disk
		}
		return nil
	}))))
	putOne(t, q, "a")
	slow.Store(true)
	var callers sync.WaitGroup
	seen := func(id string, state driver.State) {
		require.Eventually(t, func() bool {
			r, err := q.Get(t.Context(), 0, id)
			return err == nil && r.State == state
		}, time.Minute, time.Millisecond, id)
	}
	for _, id := range []string{"b", "c"} { // two groups are being synced
		callers.Go(func() { putOne(t, q, id) })
		seen(id, driver.StateScheduled)
	}
	var claimed atomic.Int64
	for range 2 {
		callers.Go(func() {
			c, err := q.Claim(t.Context(), driver.Claim{Max: 1, Visibility: time.Hour})
			assert.NoError(t, err)
			claimed.Add(int64(len(c.Records)))
		})
	}
	seen("a", driver.StateLeased)
	seen("b", driver.StateLeased)
	assert.Zero(t, claimed.Load(), "the tokens are not durable")
	close(disk)
	callers.Wait()
	assert.EqualValues(t, 2, claimed.Load())
}

// failOnce makes the disk fail once, and waits until the store is open again.
func failOnce(t *testing.T, s *Store) {
	t.Helper()
	failed, err := runner{s}.engine(t.Context())
	require.NoError(t, err)
	failed.fail(syscall.EIO)
	require.Eventually(t, func() bool {
		e, err := runner{s}.engine(t.Context())
		return err == nil && e != failed
	}, time.Minute, time.Millisecond)
}

// Tokens were given out after a backup, also by the process that opened the directory next.
func TestTokensRiseAfterABackupIsRestored(t *testing.T) {
	t.Parallel()
	clock, options := newClock(), faultOptions(nil)
	options.now = clock.Now
	dir, backup := t.TempDir(), filepath.Join(t.TempDir(), "backup")
	last := uint64(0)
	claim := func(dir string, then func(*Store)) {
		s, err := Open(dir, options)
		require.NoError(t, err)
		q, err := s.Open(t.Context(), faultConfig)
		require.NoError(t, err)
		claimed, err := q.Claim(t.Context(), driver.Claim{Max: 1, MaxBytes: 1, Visibility: time.Hour})
		require.NoError(t, err)
		require.Len(t, claimed.Records, 1)
		assert.Greater(t, claimed.Records[0].Token, last)
		last = claimed.Records[0].Token
		then(s)
		require.NoError(t, s.Close())
	}
	s, err := Open(dir, options)
	require.NoError(t, err)
	q, err := s.Open(t.Context(), faultConfig)
	require.NoError(t, err)
	putOne(t, q, "a")
	require.NoError(t, s.Close())
	claim(dir, func(s *Store) { require.NoError(t, s.Backup(t.Context(), backup)) })
	for range 10 {
		clock.Advance(20 * time.Second)
		claim(dir, func(*Store) {})
	}
	clock.Advance(20 * time.Second)
	claim(backup, func(*Store) {})
}

// ackAll claims and acknowledges messages of a partition, and returns the error that ends this.
func ackAll(t *testing.T, q driver.Backend) error {
	t.Helper()
	for {
		claimed, err := q.Claim(t.Context(), driver.Claim{Max: 1, MaxBytes: 1, Begin: 1, Visibility: time.Hour})
		if err != nil {
			return err
		}
		require.Len(t, claimed.Records, 1)
		outcomes, err := q.Apply(t.Context(), driver.Batch{Op: driver.OpAck, Changes: []driver.Change{
			{ID: claimed.Records[0].ID, Token: claimed.Records[0].Token},
		}})
		require.NoError(t, err)
		require.Equal(t, driver.StatusDone, outcomes[0].Status)
	}
}

// The next messages of a partition cannot be read. All else works, also when the directory is
// opened again.
func TestDamageOfAPartitionStopsNothingElse(t *testing.T) {
	t.Parallel()
	dir := damaged(t, "*.sst", func(b []byte) []byte {
		clear(b[len(b)*4/10 : len(b)*7/10])
		return b
	})
	for range 2 {
		s, err := Open(dir, faultOptions(nil))
		require.NoError(t, err)
		engine := s.current
		q, err := s.Open(t.Context(), faultConfig)
		require.NoError(t, err)
		require.ErrorIs(t, ackAll(t, q), ErrCorrupt)
		putOne(t, q, "z")
		r, err := q.Get(t.Context(), 0, "z")
		require.NoError(t, err)
		assert.Equal(t, "body of z", string(r.Body))
		other, err := s.Open(t.Context(), driver.Config{Queue: "other", Partitions: 1})
		require.NoError(t, err)
		putOne(t, other, "a")
		claimed, err := other.Claim(t.Context(), driver.Claim{Max: 1, MaxBytes: 1, Visibility: time.Hour})
		require.NoError(t, err)
		require.Len(t, claimed.Records, 1)
		assert.Same(t, engine, s.current, "the store has not failed")
		require.NoError(t, s.Close())
	}
}

// No other test of the package runs at the same time.
func TestStoreOfARelativePathOutlivesAChangeOfTheWorkingDirectory(t *testing.T) { //nolint:paralleltest // see above
	t.Chdir(t.TempDir())
	s, q := openStore(t, "store", faultOptions(nil))
	putOne(t, q, "a")
	t.Chdir(t.TempDir())
	failOnce(t, s)
	_, err := q.Get(t.Context(), 0, "a")
	require.NoError(t, err)
	assert.NoDirExists(t, "store")
}

func TestReopenedStoreHasEverything(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for round := range 3 {
		s, err := Open(dir, faultOptions(nil))
		require.NoError(t, err)
		q, err := s.Open(t.Context(), faultConfig)
		require.NoError(t, err)
		for i := range round {
			r, err := q.Get(t.Context(), 0, fmt.Sprint(i))
			require.NoError(t, err)
			assert.Equal(t, "body of "+fmt.Sprint(i), string(r.Body))
		}
		putOne(t, q, fmt.Sprint(round))
		require.NoError(t, s.Close())
		assert.NoFileExists(t, filepath.Join(dir, ownerName))
	}
}

// No other test of the package runs at the same time.
func TestCloseEndsAllGoroutines(t *testing.T) { //nolint:paralleltest // it counts goroutines
	before := runtime.NumGoroutine()
	for round := range 5 {
		s, err := Open(t.TempDir(), faultOptions(nil))
		require.NoError(t, err)
		q, err := s.Open(t.Context(), faultConfig)
		require.NoError(t, err)
		putOne(t, q, "a")
		if round%2 == 1 {
			s.current.fail(fs.ErrInvalid)
		}
		if err := s.Close(); err != nil {
			require.ErrorIs(t, err, fs.ErrInvalid)
		}
	}
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			require.Fail(t, "goroutines are left", "%d, %d before:\n%s", runtime.NumGoroutine(), before,
				stacks[:runtime.Stack(stacks, true)])
		}
	}
}

func TestBackupRejectsExistingPathAndEndedContext(t *testing.T) {
	t.Parallel()
	s, _ := openStore(t, t.TempDir(), faultOptions(nil))
	dir := t.TempDir()
	err := s.Backup(t.Context(), dir)
	require.ErrorIs(t, err, driver.ErrInvalid)
	assert.ErrorContains(t, err, dir)
	assert.DirExists(t, dir)
	ended, cancel := context.WithCancelCause(t.Context())
	cause := fmt.Errorf("the caller has gone")
	cancel(cause)
	require.ErrorIs(t, s.Backup(ended, filepath.Join(dir, "copy")), cause)
	assert.NoDirExists(t, filepath.Join(dir, "copy"))
}

func TestBackupUnderLoadHasEverythingAnsweredBefore(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	s, q := openStore(t, filepath.Join(parent, "store"), faultOptions(nil))
	stop := make(chan struct{})
	var mu sync.Mutex
	var answered []string
	var load sync.WaitGroup
	for caller := range 3 {
		load.Go(func() {
			for i := 0; ; i++ {
				id := fmt.Sprint("a-", caller, "-", i)
				putOne(t, q, id)
				mu.Lock()
				answered = append(answered, id)
				mu.Unlock()
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	for i := range 4 {
		time.Sleep(10 * time.Millisecond)
		mu.Lock()
		before := answered[:len(answered):len(answered)]
		mu.Unlock()
		dir := filepath.Join(parent, fmt.Sprint("copy", i))
		require.NoError(t, s.Backup(t.Context(), dir))
		_, copied := openStore(t, dir, faultOptions(nil))
		for _, id := range before {
			r, err := copied.Get(t.Context(), 0, id)
			require.NoError(t, err, id)
			assert.Equal(t, "body of "+id, string(r.Body))
		}
		report, err := copied.(driver.Auditor).Audit(t.Context(), 0, false)
		require.NoError(t, err)
		assert.GreaterOrEqual(t, report.Records, int64(len(before)))
		assert.Zero(t, report.Wrong+report.Orphans+report.Strays)
	}
	close(stop)
	load.Wait()
}

// A write to the copy fails. The store stays open.
func TestFailedBackupLeavesNoDirectory(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem()
	faults := 0
	for n := range 100 {
		count := 0
		options := faultOptions(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpRemoveAll && strings.HasPrefix(op.Path, "copies") {
				if count++; count == n+1 {
					return syscall.EROFS
				}
			}
			return nil
		})))
		s, q := openStore(t, "store", options)
		putOne(t, q, fmt.Sprint(n))
		dir := fmt.Sprint("copies/", n)
		if err := s.Backup(t.Context(), dir); err == nil {
			break
		}
		faults++
		_, err := mem.Stat(dir)
		require.ErrorIs(t, err, fs.ErrNotExist)
		putOne(t, q, fmt.Sprint(n, "-after"))
		require.NoError(t, s.Close())
	}
	assert.Greater(t, faults, 3)
}
