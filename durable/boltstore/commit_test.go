package boltstore

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Many producers need far fewer transactions than they put messages.
func TestConcurrentPutsShareCommits(t *testing.T) {
	t.Parallel()
	s := openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{})
	q := openQueue(t, s, 8)
	before := transactions(t, s)
	const messages = 5120
	putConcurrently(t, q, 256, messages)
	commits := transactions(t, s) - before
	assert.Less(t, commits, messages/8, "256 concurrent puts share commits")
	assert.GreaterOrEqual(t, commits, messages/groupMessages)
}

// Several requests wait for the committer. They share a commit, except for a second request of the
// same message.
func TestGroupHasOneRequestPerMessage(t *testing.T) {
	t.Parallel()
	s := openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{})
	q := openQueue(t, s, 2)
	put(t, q, "there", time.Hour)
	before := transactions(t, s)
	s.writing.Lock() // the first group waits for this lock, and the others wait for the first
	var wg sync.WaitGroup
	send := func(p driver.Put) {
		wg.Go(func() {
			_, err := q.Put(t.Context(), p)
			assert.NoError(t, err)
		})
	}
	item := func(id string) []driver.PutItem { return []driver.PutItem{{ID: id}} }
	send(driver.Put{Items: item("first")})
	waitForGroup(t, q, 0)
	for i, p := range []driver.Put{
		{Items: item("a")},
		{Items: item("b")},
		{Partition: 1, Items: item("b")},
		{Items: item("b")}, // the same message again: another group
	} {
		send(p)
		waitForWaiting(t, s, i+1)
	}
	s.writing.Unlock()
	wg.Wait()
	assert.Equal(t, 2, transactions(t, s)-before, "the last group has nothing to write, as its message is a duplicate")
	assert.Equal(t, uint64(4), count(t, q).Enqueued)
}

// A commit is held up, and the contexts of waiting producers end. Requests that are not in a group
// yet have no effect and are not kept. A request in a group stays there.
func TestCallWithEndedContextLeavesCommitter(t *testing.T) {
	t.Parallel()
	s := openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{})
	q, err := durable.Open(t.Context(), s, durable.Options{Queue: "orders", Partitions: 1, MaxWaiting: 10, RetryFor: time.Second})
	require.NoError(t, err)
	defer q.Close()
	s.writing.Lock() // the first group waits for this lock, and the others wait for the first
	locked := true
	defer func() {
		if locked {
			s.writing.Unlock()
		}
	}()
	var calls sync.WaitGroup
	enqueue := func(ctx context.Context, id string, expected error) {
		calls.Go(func() {
			_, err := q.Enqueue(ctx, durable.Message{ID: id, Delay: time.Hour})
			if expected == nil {
				assert.NoError(t, err)
			} else {
				assert.ErrorIs(t, err, expected)
			}
		})
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	enqueue(ctx, "first", assert.AnError)
	waitForGroup(t, openQueue(t, s, 1), 0)
	cancel(assert.AnError)
	calls.Wait()
	for round := range 30 {
		ctx, cancel := context.WithCancelCause(t.Context())
		for i := range 9 {
			enqueue(ctx, fmt.Sprint(round, "-", i), assert.AnError)
		}
		require.Eventually(t, func() bool {
			s.commits.mu.Lock()
			defer s.commits.mu.Unlock()
			return len(s.commits.waiting)-s.commits.withdrawn == 9
		}, time.Minute, time.Millisecond)
		if round == 0 {
			patient, end := context.WithTimeout(t.Context(), 20*time.Second)
			_, err := q.Enqueue(patient, durable.Message{})
			end()
			assert.ErrorIs(t, err, durable.ErrBusy, "the first call is still under way")
		}
		cancel(assert.AnError)
		calls.Wait()
	}
	s.commits.mu.Lock()
	assert.LessOrEqual(t, len(s.commits.waiting), 50)
	assert.Len(t, s.commits.waiting, s.commits.withdrawn)
	s.commits.mu.Unlock()
	s.writing.Unlock()
	locked = false
	for i := range 10 {
		enqueue(t.Context(), fmt.Sprint("after", i), nil)
	}
	calls.Wait()
	stats, err := q.Stats(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 11, stats.Scheduled, "the first message and the last ten")
}

// The messages of a full file can be claimed and acknowledged. A new message can be stored
// afterwards.
func TestFullFileCanBeDrainedAndUsedAgain(t *testing.T) {
	t.Parallel()
	s := openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{maxSize: 2 << 20, reserve: 256 << 10})
	q := openQueue(t, s, 1)
	body := []byte(strings.Repeat("x", 10_000))
	stored := 0
	for ; ; stored++ {
		require.Less(t, stored, 1000)
		items := []driver.PutItem{{ID: fmt.Sprintf("m%03d", stored), Body: body}}
		if _, err := q.Put(t.Context(), driver.Put{Items: items}); err != nil {
			require.ErrorIs(t, err, driver.ErrFull)
			assert.ErrorContains(t, err, s.path)
			break
		}
	}
	require.Greater(t, stored, 10)
	c := count(t, q)
	assert.Equal(t, int64(stored), c.Scheduled)
	assert.Equal(t, uint64(stored), c.Enqueued)
	_, err := q.Get(t.Context(), 0, fmt.Sprintf("m%03d", stored))
	require.ErrorIs(t, err, driver.ErrNotFound)
	for n := 0; n < stored; {
		changes := changesOf(claim(t, q, 16))
		require.NotEmpty(t, changes)
		done(t, q, driver.OpBegin, changes...)
		done(t, q, driver.OpAck, changes...)
		n += len(changes)
	}
	put(t, q, "again", 0)
	assert.Equal(t, []string{"again"}, idsOf(claim(t, q, 10)))
}

// A cancel and a begin race for each message, and exactly one of them succeeds.
func TestCancelAndBeginNeverBothSucceed(t *testing.T) {
	t.Parallel()
	s := openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{NoSync: true})
	q := openQueue(t, s, 1)
	var begun, cancelled atomic.Int64
	for round := range 60 {
		var put driver.Put
		for i := range 32 {
			put.Items = append(put.Items, driver.PutItem{ID: fmt.Sprintf("%d-%d", round, i)})
		}
		_, err := q.Put(t.Context(), put)
		require.NoError(t, err)
		outcome := make([][2]driver.Status, len(put.Items))
		var wg sync.WaitGroup
		for i := range put.Items {
			wg.Go(func() { outcome[i][0] = apply(t, q, driver.OpCancel, driver.Change{ID: put.Items[i].ID})[0].Status })
		}
		wg.Go(func() {
			for _, c := range changesOf(claim(t, q, driver.MaxBatch)) {
				wg.Go(func() {
					var i int
					_, err := fmt.Sscanf(c.ID, fmt.Sprint(round)+"-%d", &i)
					assert.NoError(t, err)
					outcome[i][1] = apply(t, q, driver.OpBegin, c)[0].Status
				})
			}
		})
		wg.Wait()
		for i, o := range outcome {
			if o[0] == driver.StatusDone {
				cancelled.Add(1)
				require.NotEqual(t, driver.StatusDone, o[1], "message %d of round %d was cancelled and has begun", i, round)
				continue
			}
			require.Equal(t, [2]driver.Status{driver.StatusFiring, driver.StatusDone}, o)
			begun.Add(1)
		}
	}
	c := count(t, q)
	assert.Equal(t, uint64(cancelled.Load()), c.Cancelled)
	assert.Equal(t, begun.Load(), c.InFlight)
	assert.Zero(t, c.Scheduled)
}

// Many goroutines make all kinds of calls. The counters agree in the end.
func TestCountsAgreeAfterConcurrentCalls(t *testing.T) {
	t.Parallel()
	s := openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{NoSync: true, maxFree: 8})
	q := openQueue(t, s, 2)
	const messages = 500
	var producers, others sync.WaitGroup
	var left atomic.Int64
	left.Store(messages)
	producers.Go(func() { putConcurrently(t, q, 8, messages) })
	for i := range 4 {
		others.Go(func() {
			for left.Load() > 0 {
				deliverSome(t, q, i%2, &left)
			}
		})
	}
	others.Go(func() {
		for left.Load() > 0 {
			for p := range 2 {
				_, err := q.Count(t.Context(), p)
				assert.NoError(t, err)
				_, _, err = q.List(t.Context(), p, driver.StateScheduled, "", 10)
				assert.NoError(t, err)
				report, err := q.(driver.Auditor).Audit(t.Context(), p, false)
				assert.NoError(t, err)
				assert.Zero(t, report.Orphans+report.Strays)
			}
			time.Sleep(time.Millisecond) // readers alone would keep both processors busy
		}
	})
	producers.Wait()
	others.Wait()
	for p := range 2 {
		c, err := q.Count(t.Context(), p)
		require.NoError(t, err)
		assert.Zero(t, c.Scheduled+c.InFlight+c.Dead+c.Due)
		assert.Equal(t, c.Enqueued, c.Acked+c.Cancelled)
	}
}

// deliverSome claims a few messages. It retries, releases and reschedules some of them, and
// acknowledges or cancels the others.
func deliverSome(t *testing.T, q driver.Backend, partition int, left *atomic.Int64) {
	t.Helper()
	c, err := q.Claim(t.Context(), driver.Claim{Partition: partition, Horizon: 2 * time.Second, Max: 20, MaxBytes: 1 << 20, Visibility: time.Hour})
	assert.NoError(t, err)
	run := func(op driver.Op, changes []driver.Change) {
		outcomes, err := q.Apply(t.Context(), driver.Batch{
			Partition: partition, Op: op, Visibility: time.Hour, Lead: 2 * time.Second, Changes: changes,
		})
		assert.NoError(t, err)
		for _, o := range outcomes {
			assert.Equal(t, driver.StatusDone, o.Status)
		}
	}
	for i, c := range changesOf(c.Records) {
		change := []driver.Change{c}
		switch i % 5 {
		case 0:
			run(driver.OpCancel, change)
			left.Add(-1)
		case 1:
			run(driver.OpRelease, change)
		case 2:
			run(driver.OpReschedule, change)
		default:
			run(driver.OpBegin, change)
			if i%5 == 3 && left.Load() > 10 {
				run(driver.OpRetry, change)
				continue
			}
			run(driver.OpAck, change)
			left.Add(-1)
		}
	}
}

// Every guarantee depends on the fsync of each commit.
func TestCommitsAreSyncedUnlessNoSync(t *testing.T) {
	t.Parallel()
	for _, noSync := range []bool{false, true} {
		s := openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{NoSync: noSync})
		assert.Equal(t, noSync, s.file.db.NoSync)
		assert.False(t, s.file.db.NoGrowSync)
		assert.False(t, s.file.db.NoFreelistSync, "without the list, opening reads the whole file")
	}
}

// A commit fails after readers can see its pages. The store must fail, as its memory does not have
// the change.
func TestCommitWithUnknownOutcomeFailsStore(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "queue.db")
	s, err := Open(path, Options{})
	require.NoError(t, err)
	q := openQueue(t, s, 1)
	err = s.commits.do(t.Context(), &request{p: q.(*backend).queue.partitions[0], run: func(w *partitionWriter) error {
		w.tx.OnCommit(func() { panic("too late") })
		_, err := w.putOne(&driver.PutItem{ID: "a"}, false)
		return err
	}})
	require.ErrorIs(t, err, driver.ErrBroken)
	_, err = q.Get(t.Context(), 0, "a")
	require.ErrorIs(t, err, driver.ErrBroken)
	_, err = q.Put(t.Context(), driver.Put{Items: []driver.PutItem{{ID: "b"}}})
	require.ErrorIs(t, err, driver.ErrBroken)
	require.NoError(t, s.Close())
	q = openQueue(t, openStore(t, path, Options{}), 0)
	assert.Equal(t, []string{"a"}, idsOf(claim(t, q, 10)), "the commit has taken place")
}
