package boltstore

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

const damagedMessages = 1500

// damageFile is the content of a file with many messages.
func damageFile(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "queue.db")
	s, err := Open(path, Options{NoSync: true, reserve: 1})
	require.NoError(t, err)
	q := openQueue(t, s, 2)
	fill(t, q, damagedMessages)
	require.NoError(t, s.Close())
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return content
}

// use opens a file and does a little of everything.
func use(t *testing.T, path string) (messages int, err error) {
	t.Helper()
	s, err := Open(path, Options{NoSync: true})
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
		if _, err = q.Audit(t.Context(), p, true); err != nil {
			return messages, err
		}
		if _, err = q.Put(t.Context(), driver.Put{Partition: p, Items: []driver.PutItem{{ID: "new", Delay: time.Hour}}}); err != nil {
			return messages, err
		}
	}
	return messages, nil
}

// TestTruncatedFile cuts a file off at many places: it opens with all that was in it, or says that it is damaged.
func TestTruncatedFile(t *testing.T) {
	t.Parallel()
	content := damageFile(t)
	random := rand.New(rand.NewPCG(1, 2))
	offsets := []int{1, 15, 16, 40, 79, 80, 1024, 4095, 4096, 4097, 8191, 8192, 12288, 16384, len(content) - 1, len(content)}
	for range 40 {
		offsets = append(offsets, 1+random.IntN(len(content)))
	}
	whole := 0
	for _, n := range offsets {
		path := filepath.Join(t.TempDir(), "queue.db")
		require.NoError(t, os.WriteFile(path, content[:n], 0o600))
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

// TestDamagedPages overwrites single pages: nothing panics, and errors are typed.
func TestDamagedPages(t *testing.T) {
	t.Parallel()
	content := damageFile(t)
	size, pages := livePages(t, content)
	random := rand.New(rand.NewPCG(3, 4))
	damaged := 0
	for i := range 30 {
		broken := append([]byte(nil), content...)
		page := broken[size*pages[random.IntN(len(pages))]:][:size]
		switch i % 3 {
		case 0:
			clear(page)
		case 1:
			for j := range page {
				page[j] = byte(random.Uint32())
			}
		default:
			page[random.IntN(64)] ^= 1 << random.IntN(8)
		}
		path := filepath.Join(t.TempDir(), "queue.db")
		require.NoError(t, os.WriteFile(path, broken, 0o600))
		if _, err := use(t, path); err != nil {
			require.True(t, errors.Is(err, ErrCorrupt) || isAny(err, driver.ErrVersion, driver.ErrUnavailable, driver.ErrFull),
				"round %d: %v", i, err)
			damaged++
		}
	}
	assert.Greater(t, damaged, 5)
}

// livePages are the pages of a file that are in use, and their size.
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

// TestTornMeta damages the page of the last commit, as a power failure may: the one before counts.
func TestTornMeta(t *testing.T) {
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

// TestAudit removes keys and records behind the back of the store.
func TestAudit(t *testing.T) {
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
			b.index.Delete(dueA), b.index.Delete(dueB), b.dead.Delete(key{died, "dead"}.bytes()), // orphans
			b.records.Delete([]byte("c")), b.index.Put([]byte("short"), empty), b.index.Put(key{5, "d"}.bytes(), empty), // strays
			b.begun.Put([]byte("nobody"), empty), b.dead.Put(key{7, "e"}.bytes(), empty),
			b.records.Put([]byte("f"), []byte{recordVersion}), // damaged
		)
	}))
	broken := driver.AuditReport{Records: 6, Orphans: 3, Strays: 5, Unreadable: 1, Wrong: 1} // without the dead orphan the sum of bytes is another
	report, err := q.Audit(t.Context(), 0, false)
	require.NoError(t, err)
	assert.Equal(t, broken, report)
	report, err = q.Audit(t.Context(), 0, true)
	require.NoError(t, err)
	broken.Wrong, broken.Repaired = 0, 8
	assert.Equal(t, broken, report)
	report, err = q.Audit(t.Context(), 0, true)
	require.NoError(t, err)
	assert.Equal(t, driver.AuditReport{Records: 6, Unreadable: 1}, report, "the damaged record is left alone")
	claimed, err := q.Claim(t.Context(), driver.Claim{Horizon: 2 * time.Hour, Max: 10, MaxBytes: 1000, Visibility: time.Hour})
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b", "d", "e"}, idsOf(claimed.Records))
	done(t, q, driver.OpReplay, driver.Change{ID: "dead"})
	assert.Equal(t, []string{"dead"}, idsOf(claim(t, q, 10)))
}
