package boltstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/internal/testscale"
)

const damagedMessages = 1500

// damageFile returns the content of a file with many messages, without the unused pages at its end.
func damageFile(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "queue.db")
	s, err := Open(path, Options{NoSync: true, reserve: 1})
	require.NoError(t, err)
	q := openQueue(t, s, 2)
	fill(t, q, damagedMessages)
	used := usedBytes(t, s)
	require.NoError(t, s.Close())
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return content[:used]
}

// use opens a file and makes most kinds of calls.
func use(t *testing.T, path string) (messages int, err error) {
	t.Helper()
	s, err := Open(path, Options{NoSync: true, reserve: smallReserve})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	q, err := s.Open(t.Context(), driver.Config{Queue: "orders", DeadLimit: 10, DeadBytes: 1 << 30, DeadAge: time.Hour})
	if err != nil {
		return 0, err
	}
	for p := range q.Partitions() {
		for more := true; more; {
			c, err := q.Claim(t.Context(), driver.Claim{Partition: p, Max: driver.MaxBatch, MaxBytes: 1 << 20, Visibility: time.Hour})
			if err != nil {
				return messages, err
			}
			messages += len(c.Records)
			more = len(c.Records) > 0
		}
		if _, err = q.Count(t.Context(), p); err != nil {
			return messages, err
		}
		if _, err = q.(driver.Auditor).Audit(t.Context(), p, true); err != nil {
			return messages, err
		}
		if _, err = q.Put(t.Context(), driver.Put{Partition: p, Items: []driver.PutItem{{ID: "new", Delay: time.Hour}}}); err != nil {
			return messages, err
		}
	}
	return messages, nil
}

// A file is truncated at many offsets, also among the unused pages at its end. The file opens with
// all its messages, or Open returns ErrCorrupt or ErrVersion.
func TestTruncatedFileIsWholeOrCorrupt(t *testing.T) {
	t.Parallel()
	content := damageFile(t)
	random := rand.New(rand.NewPCG(1, 2))
	offsets := []int{1, 15, 16, 40, 79, 80, 1024, 4095, 4096, 4097, 8191, 8192, 12288, 16384, len(content) - 1, len(content), len(content) + 1, len(content) + 1<<20}
	for range 40 {
		offsets = append(offsets, 1+random.IntN(len(content)))
	}
	whole := 0
	for _, n := range offsets {
		path := filepath.Join(t.TempDir(), "queue.db")
		require.NoError(t, os.WriteFile(path, content[:min(n, len(content))], 0o600))
		require.NoError(t, os.Truncate(path, int64(n)))
		messages, err := use(t, path)
		if err != nil {
			require.True(t, errors.Is(err, ErrCorrupt) || errors.Is(err, driver.ErrVersion), "cut at %d: %v", n, err)
			continue
		}
		require.Equal(t, damagedMessages, messages, "cut at %d", n)
		whole++
	}
	assert.Positive(t, whole, "the whole file opens")
	assert.Less(t, whole, len(offsets))
}

// Single pages are damaged at random. No call hangs or panics, and all errors are typed. After each
// damage the file can be repaired in place and opened again.
func TestDamagedPagesNeverHangOrPanic(t *testing.T) {
	t.Parallel()
	content := damageFile(t)
	size, pages := livePages(t, content)
	rounds, damaged := 30, 0
	switch {
	case os.Getenv("TIMINGWHEEL_CHAOS") == "full":
		rounds = 3000
	case testscale.Full():
		rounds = 60
	}
	path := filepath.Join(t.TempDir(), "queue.db")
	for seed := range rounds {
		random := rand.New(rand.NewPCG(3, uint64(seed)))
		broken := slices.Clone(content)
		n := pages[random.IntN(len(pages))]
		page := broken[size*n:][:size]
		switch seed % 6 {
		case 0:
			clear(page)
		case 1:
			for j := range page {
				page[j] = byte(random.Uint32())
			}
		case 2:
			page[random.IntN(64)] ^= 1 << random.IntN(8)
		case 3:
			page[random.IntN(size)] ^= 1 << random.IntN(8)
		case 4:
			at := random.IntN(size)
			for j := range page[at:min(size, at+32)] {
				page[at+j] = byte(random.Uint32())
			}
		default: // another page with the right number was written here
			copy(page[8:], content[size*pages[random.IntN(len(pages))]+8:][:size-8])
		}
		require.NoError(t, os.WriteFile(path, broken, 0o600))
		var err error
		inTime(t, func() { _, err = use(t, path) })
		if err == nil {
			continue
		}
		damaged++
		require.True(t, isAny(err, ErrCorrupt, driver.ErrVersion), "seed %d, page %d: %v", seed, n, err)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		messages, err := use(t, path)
		require.NoError(t, err, "seed %d, page %d: repaired", seed, n)
		require.Equal(t, damagedMessages, messages)
	}
	assert.Greater(t, damaged, rounds/4)
}

// inTime fails with the stacks of all goroutines if a call takes longer than a minute.
func inTime(t *testing.T, call func()) {
	t.Helper()
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		call()
	}()
	select {
	case <-returned:
	case <-time.After(time.Minute):
		stacks := make([]byte, 1<<20)
		require.Fail(t, "a call does not return", "%s", stacks[:runtime.Stack(stacks, true)])
	}
}

// pageOf returns a page in use of the given kind with at least the given number of elements, and
// its number.
func pageOf(t *testing.T, content []byte, kind, elements int) (page []byte, number int) {
	t.Helper()
	size, pages := livePages(t, content)
	for _, n := range pages[2:] {
		page = content[size*n:][:size]
		if int(binary.NativeEndian.Uint16(page[8:])) == kind && int(binary.NativeEndian.Uint16(page[10:])) >= elements {
			return page, n
		}
	}
	require.Fail(t, "no page has this kind and number of elements")
	return nil, 0
}

// bbolt does not survive this damage: it recurses until the stack overflows, frees millions of
// pages, or panics while it holds its locks. Open finds the damage and leaves the file unlocked.
func TestOpenFindsDamage(t *testing.T) {
	t.Parallel()
	content := damageFile(t)
	e := binary.NativeEndian
	path := filepath.Join(t.TempDir(), "queue.db")
	for _, c := range []struct {
		name           string
		kind, elements int
		damage         func(page []byte, number int)
		text           string
	}{
		{"a branch that is its own child", kindBranch, 2, func(p []byte, n int) { e.PutUint64(p[pageHeader+pageElement+8:], uint64(n)) }, "used twice"},
		{"two children are one page", kindBranch, 2, func(p []byte, _ int) { copy(p[pageHeader+8:][:8], p[pageHeader+pageElement+8:][:8]) }, "page"},
		{"a child beyond the file", kindBranch, 2, func(p []byte, _ int) { e.PutUint64(p[pageHeader+8:], 1<<40) }, "in use"},
		{"a branch without children", kindBranch, 2, func(p []byte, _ int) { e.PutUint16(p[10:], 0) }, "without children"},
		{"a page with the number of another", kindLeaf, 2, func(p []byte, n int) { e.PutUint64(p, uint64(n+1)) }, "has the number"},
		{"a kind that does not exist", kindLeaf, 2, func(p []byte, _ int) { e.PutUint16(p[8:], 3) }, "neither branch nor leaf"},
		{"two billion overflow pages", kindLeaf, 2, func(p []byte, _ int) { e.PutUint32(p[12:], 1<<31) }, "in use"},
		{"a key beyond its page", kindLeaf, 2, func(p []byte, _ int) { e.PutUint32(p[pageHeader+8:], 1<<31) }, "out of order"},
		{"a value beyond its page", kindLeaf, 2, func(p []byte, _ int) { e.PutUint32(p[pageHeader+12:], 1<<31) }, "does not fit"},
		{"more elements than fit", kindLeaf, 2, func(p []byte, _ int) { e.PutUint16(p[10:], 60_000) }, "do not fit"},
		{"keys in the wrong order", kindLeaf, 2, func(p []byte, _ int) { p[pageHeader+int(e.Uint32(p[pageHeader+4:]))] = 0xFF }, "out of order"},
		{"a list of free pages of another kind", kindFreelist, 1, func(p []byte, _ int) { e.PutUint16(p[8:], kindLeaf) }, "not a list"},
		{"a page that is free twice", kindFreelist, 2, func(p []byte, _ int) { copy(p[pageHeader:][:8], p[pageHeader+8:]) }, "free and in use"},
		{"a page that is free and in use", kindFreelist, 1, func(p []byte, n int) { e.PutUint64(p[pageHeader:], uint64(n)) }, "free and in use"},
		{"a long list of free pages", kindFreelist, 1, func(p []byte, _ int) {
			e.PutUint16(p[10:], 0xFFFF)
			e.PutUint64(p[pageHeader:], 1<<36)
		}, "do not fit"},
	} {
		broken := slices.Clone(content)
		page, n := pageOf(t, broken, c.kind, c.elements)
		c.damage(page, n)
		require.NoError(t, os.WriteFile(path, broken, 0o600))
		inTime(t, func() {
			_, err := Open(path, Options{})
			assert.ErrorIs(t, err, ErrCorrupt, c.name)
			assert.ErrorContains(t, err, c.text, c.name)
			assert.ErrorContains(t, err, path)
		})
		require.NoError(t, os.WriteFile(path, content, 0o600))
		s, err := Open(path, Options{})
		require.NoError(t, err, "%s: the file is repaired in place", c.name)
		require.NoError(t, s.Close())
	}
}

// The meta pages of an open file are overwritten, so bbolt panics while it holds its locks. All
// calls and Close return, and the file is unlocked.
func TestCloseUnlocksFileAfterPanicUnderLocks(t *testing.T) {
	t.Parallel()
	content := damageFile(t)
	path := filepath.Join(t.TempDir(), "queue.db")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	s, err := Open(path, Options{})
	require.NoError(t, err)
	q := openQueue(t, s, 0)
	broken := slices.Clone(content)
	clear(broken[:2*os.Getpagesize()])
	require.NoError(t, os.WriteFile(path, broken, 0o600))
	inTime(t, func() {
		_, err := q.Put(t.Context(), driver.Put{Items: []driver.PutItem{{ID: "new"}}})
		assert.ErrorIs(t, err, ErrCorrupt)
		assert.ErrorContains(t, err, "close the store and open")
		_, err = s.Open(t.Context(), driver.Config{Queue: "another", DeadLimit: 10, DeadBytes: 1 << 20, DeadAge: time.Hour})
		assert.ErrorIs(t, err, ErrCorrupt)
		_, err = q.Count(t.Context(), 0)
		assert.ErrorIs(t, err, ErrCorrupt)
		assert.True(t, s.file.stuck.Load())
		assert.NoError(t, s.Close())
	})
	require.NoError(t, os.WriteFile(path, content, 0o600))
	_, err = use(t, path)
	require.NoError(t, err)
}

// A commit does not end. Calls and Close return.
func TestStalledCommitEndsCallsAndClose(t *testing.T) {
	t.Parallel()
	s, err := Open(filepath.Join(t.TempDir(), "queue.db"), Options{NoSync: true, reserve: smallReserve, stall: 2 * time.Second})
	require.NoError(t, err)
	q := openQueue(t, s, 1)
	put(t, q, "a", 0)
	release := make(chan struct{})
	inTime(t, func() {
		err := s.commits.do(t.Context(), &request{p: q.(*backend).queue.partitions[0], run: func(*partitionWriter) error {
			<-release
			return nil
		}})
		assert.ErrorIs(t, err, driver.ErrBroken)
		assert.ErrorContains(t, err, "a commit has stalled for 2s")
		_, err = q.Put(t.Context(), driver.Put{Items: []driver.PutItem{{ID: "b"}}})
		assert.ErrorIs(t, err, driver.ErrBroken)
		_, err = q.Claim(t.Context(), driver.Claim{Max: 1})
		assert.ErrorIs(t, err, driver.ErrBroken)
		err = s.Close()
		assert.ErrorIs(t, err, driver.ErrBroken)
		assert.ErrorContains(t, err, "locked until the process ends")
		assert.NoError(t, s.Close(), "again")
	})
	close(release)
	<-s.commits.done
	require.NoError(t, s.file.close())
}

// Queues are opened in this process and through the socket while a transaction does not end, either
// of a commit or of the opening itself. Each call returns when its context ends. A call whose
// context does not end returns when the transaction has stalled, and so does Close.
func TestOpenReturnsDespiteStalledCommit(t *testing.T) {
	t.Parallel()
	for name, ofCommit := range map[string]bool{"commit": true, "opening": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := socketFile(t)
			s, err := Open(path, Options{NoSync: true, Socket: true, reserve: smallReserve, stall: 2 * time.Second})
			require.NoError(t, err)
			q := openQueue(t, s, 1)
			r, err := Connect(path)
			require.NoError(t, err)
			hung, err := s.file.db.Begin(true) // writers wait, as for an endless fsync
			require.NoError(t, err)
			inTime(t, func() {
				var calls sync.WaitGroup
				defer calls.Wait()
				if ofCommit {
					calls.Go(func() {
						_, err := q.Put(t.Context(), driver.Put{Items: []driver.PutItem{{ID: "a"}}})
						assert.ErrorIs(t, err, driver.ErrBroken)
					})
					waitForGroup(t, q, 0)
				}
				openAmidStall(t, &calls, s, r)
				err := s.Close()
				assert.ErrorIs(t, err, driver.ErrBroken)
				assert.ErrorContains(t, err, "locked until the process ends")
			})
			require.NoError(t, hung.Rollback())
			<-s.commits.done
			require.NoError(t, s.inUse.lock(t.Context()), "the opening ends")
			require.NoError(t, s.file.close())
		})
	}
}

func openAmidStall(t *testing.T, calls *sync.WaitGroup, s *Store, r *Remote) {
	t.Helper()
	config := driver.Config{Queue: "other", DeadLimit: 1, DeadBytes: 1, DeadAge: time.Hour}
	for _, store := range []driver.Store{s, r, s, r} { // the first call begins to load the queue
		ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, assert.AnError)
		_, err := store.Open(ctx, config)
		assert.ErrorIs(t, err, assert.AnError)
		cancel()
		calls.Go(func() {
			_, err := store.Open(t.Context(), config)
			assert.Error(t, err)
		})
	}
	_, err := s.Open(t.Context(), driver.Config{Queue: "orders", DeadLimit: 1, DeadBytes: 1, DeadAge: time.Hour})
	assert.NoError(t, err, "an open queue needs no transaction")
}

// livePages returns the pages of a file that are in use, and the size of a page.
func livePages(t *testing.T, content []byte) (size int, pages []int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "queue.db")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	db, err := bolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.View(func(tx *bolt.Tx) error {
		for i := 0; ; i++ {
			info, err := tx.Page(i)
			if info == nil || err != nil {
				return err
			}
			if info.Type != "free" {
				pages = append(pages, i)
			}
		}
	}))
	size = db.Info().PageSize
	require.NoError(t, db.Close())
	require.NotEmpty(t, pages)
	return size, pages
}

// The meta page of the last commit is damaged, as by a power failure. The previous commit is valid.
func TestTornMetaPageOpensPreviousCommit(t *testing.T) {
	t.Parallel()
	content := damageFile(t)
	for page := range 2 {
		broken := append([]byte(nil), content...)
		clear(broken[page*os.Getpagesize()+40:][:40])
		path := filepath.Join(t.TempDir(), "queue.db")
		require.NoError(t, os.WriteFile(path, broken, 0o600))
		s, err := Open(path, Options{})
		require.NoError(t, err, "page %d", page)
		require.NoError(t, s.Close())
	}
}

func TestDecodeNeverPanics(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	good := record{
		Record: driver.Record{
			ID: "a", Body: []byte("body"), Enqueued: 1, Due: driver.Never, MaxAttempts: 25, Attempts: 2, Crashes: 3,
			State: driver.StateDead, Token: 1 << 60, Died: 9, Reason: "why",
		},
		last: driver.OpBury, suspect: true,
	}
	encoded := good.encode()
	got, err := decode("a", encoded)
	require.NoError(t, err)
	assert.Equal(t, good, got)
	for n := range len(encoded) - len("whybody") {
		_, err := decode("a", encoded[:n])
		require.ErrorIs(t, err, ErrCorrupt, "%d bytes", n)
	}
	for range 20_000 {
		b := append([]byte(nil), encoded...)
		for range 1 + random.IntN(4) {
			b[random.IntN(len(b))] = byte(random.Uint32())
		}
		if r, err := decode("a", b[:random.IntN(len(b)+1)]); err == nil {
			require.LessOrEqual(t, r.Due, driver.Never)
			require.GreaterOrEqual(t, r.Attempts, 0)
		}
	}
}

// Keys and records are removed from the file, and wrong ones are added.
func TestAuditFindsAndRepairsAllFaults(t *testing.T) {
	t.Parallel()
	s := openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{})
	q := openQueue(t, s, 1)
	for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
		put(t, q, id, time.Hour)
	}
	put(t, q, "dead", 0)
	c := changesOf(claim(t, q, 1))
	done(t, q, driver.OpBegin, c...)
	done(t, q, driver.OpBury, c...)
	parts := func(tx *bolt.Tx) buckets {
		b, err := q.(*backend).queue.buckets(tx, 0)
		require.NoError(t, err)
		return b
	}
	died := get(t, q, "dead").Died
	due := func(id string) []byte { return key{get(t, q, id).Due, id}.bytes() }
	dueA, dueB := due("a"), due("b")
	require.NoError(t, s.update(func(tx *bolt.Tx) error {
		b := parts(tx)
		return errors.Join(
			// Orphans.
			b.index.Delete(dueA), b.index.Delete(dueB), b.dead.Delete(key{died, "dead"}.bytes()),
			// Strays.
			b.records.Delete([]byte("c")), b.index.Put([]byte("short"), empty), b.index.Put(key{5, "d"}.bytes(), empty),
			b.begun.Put([]byte("missing"), empty), b.dead.Put(key{7, "e"}.bytes(), empty),
			// A damaged record.
			b.records.Put([]byte("f"), []byte{recordVersion}),
		)
	}))
	// Without the dead orphan the sum of bytes is wrong.
	broken := driver.AuditReport{Records: 6, Orphans: 3, Strays: 5, Unreadable: 1, Wrong: 1}
	report, err := q.(driver.Auditor).Audit(t.Context(), 0, false)
	require.NoError(t, err)
	assert.Equal(t, broken, report)
	report, err = q.(driver.Auditor).Audit(t.Context(), 0, true)
	require.NoError(t, err)
	broken.Wrong, broken.Repaired = 0, 8
	assert.Equal(t, broken, report)
	report, err = q.(driver.Auditor).Audit(t.Context(), 0, true)
	require.NoError(t, err)
	assert.Equal(t, driver.AuditReport{Records: 6, Unreadable: 1}, report, "the audit keeps the damaged record")
	claimed, err := q.Claim(t.Context(), driver.Claim{Horizon: 2 * time.Hour, Max: 10, MaxBytes: 1000, Visibility: time.Hour})
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b", "d", "e"}, idsOf(claimed.Records))
	done(t, q, driver.OpReplay, driver.Change{ID: "dead"})
	assert.Equal(t, []string{"dead"}, idsOf(claim(t, q, 10)))
}

// A page of one partition is damaged. Requests of another partition in the same group succeed.
func TestDamageOfPartitionDoesNotFailOthers(t *testing.T) {
	t.Parallel()
	s := openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{NoSync: true})
	q := openQueue(t, s, 2)
	fill(t, q, 2000)
	damageRecords(t, s, q.(*backend).queue, 1)
	s.writing.Lock() // the first group waits for this lock, and the others wait for the first
	const calls = 16
	errs := make([]error, calls)
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			_, errs[i] = q.Put(t.Context(), driver.Put{Partition: i % 2, Items: []driver.PutItem{{ID: fmt.Sprint("new", i)}}})
		})
		if i == 0 {
			waitForGroup(t, q, 0)
		}
	}
	waitForWaiting(t, s, calls-1)
	s.writing.Unlock()
	wg.Wait()
	for i, err := range errs {
		if i%2 == 0 {
			require.NoError(t, err)
			get(t, q, fmt.Sprint("new", i))
		} else {
			require.ErrorIs(t, err, ErrCorrupt)
		}
	}
	assert.Equal(t, uint64(1000+calls/2), count(t, q).Enqueued)
}

// damageRecords overwrites the root page of the records of a partition.
func damageRecords(t *testing.T, s *Store, q *queue, partition int) {
	t.Helper()
	var page int64
	require.NoError(t, s.file.db.View(func(tx *bolt.Tx) error {
		b, err := q.buckets(tx, partition)
		page = int64(b.records.RootPage())
		return err
	}))
	require.Positive(t, page)
	f, err := os.OpenFile(s.path, os.O_WRONLY, 0)
	require.NoError(t, err)
	size := int64(s.file.db.Info().PageSize)
	_, err = f.WriteAt(make([]byte, size), page*size)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// The file of a store in use is closed, as if its disk were gone. Calls to the queue return
// ErrBroken immediately, and so do Consume and Take, which wait for messages.
func TestConsumeAndTakeReturnIfStoreBreaks(t *testing.T) {
	t.Parallel()
	s, err := Open(filepath.Join(t.TempDir(), "queue.db"), Options{})
	require.NoError(t, err)
	q, err := durable.Open(t.Context(), s, durable.Options{Queue: "orders", Partitions: 2, OnError: func(error) {}})
	require.NoError(t, err)
	defer q.Close()
	taker, err := durable.Open(t.Context(), s, durable.Options{Queue: "orders", OnError: func(error) {}})
	require.NoError(t, err)
	defer taker.Close()
	consumed, taken := make(chan error, 1), make(chan error, 1)
	handled := make(chan struct{}, 1)
	go func() {
		consumed <- q.Consume(t.Context(), func(context.Context, *durable.Delivery) error {
			handled <- struct{}{}
			return nil
		}, durable.ConsumerOptions{})
	}()
	_, err = q.Enqueue(t.Context(), durable.Message{ID: "a"})
	require.NoError(t, err)
	<-handled
	go func() {
		_, err := taker.Take(t.Context())
		taken <- err
	}()
	_, err = q.Enqueue(t.Context(), durable.Message{ID: "later", Delay: time.Hour})
	require.NoError(t, err)
	require.NoError(t, s.file.f.Close())
	inTime := func(ctx context.Context, name string, err error) {
		t.Helper()
		require.NoError(t, ctx.Err(), name)
		require.ErrorIs(t, err, durable.ErrBroken, name)
		assert.ErrorContains(t, err, "close the store and open", name)
	}
	// The timeout is far less than Options.RetryFor.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err = q.Enqueue(ctx, durable.Message{ID: "b"})
	inTime(ctx, "Enqueue", err)
	_, err = q.Cancel(ctx, "later")
	inTime(ctx, "Cancel", err)
	_, err = q.Reschedule(ctx, "later", time.Minute)
	inTime(ctx, "Reschedule", err)
	_, err = q.Get(ctx, "later")
	inTime(ctx, "Get", err)
	for name, returned := range map[string]chan error{"Consume": consumed, "Take": taken} {
		select {
		case err := <-returned:
			inTime(ctx, name, err)
		case <-ctx.Done():
			require.Fail(t, "the call does not return", name)
		}
	}
	require.Error(t, s.Close(), "the file is gone")
}
