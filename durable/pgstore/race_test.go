package pgstore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/pgstore"
)

// awaitLock waits until a statement of the store's other connections waits for a lock.
func (d *database) awaitLock() {
	d.t.Helper()
	d.awaitLocks(1)
}

// awaitLocks waits until at least n statements wait for a lock.
func (d *database) awaitLocks(n int) {
	d.t.Helper()
	require.Eventually(d.t, func() bool {
		var waiting int
		require.NoError(d.t, d.pool.QueryRow(d.t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE wait_event_type = 'Lock' AND query LIKE '%"' || $1 || '"%'`, d.schema).Scan(&waiting))
		return waiting >= n
	}, time.Minute, time.Millisecond)
}

// TestReplacedMessageIsFound cancels and reschedules a message while a transaction replaces it.
func TestReplacedMessageIsFound(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, pgstore.Options{})
	for i, move := range []func(id string) (durable.Result, error){
		func(id string) (durable.Result, error) { return d.q.Cancel(t.Context(), id) },
		func(id string) (durable.Result, error) { return d.q.Reschedule(t.Context(), id, time.Hour) },
	} {
		id := fmt.Sprint(i)
		_, err := d.q.Enqueue(t.Context(), durable.Message{ID: id, Delay: time.Hour})
		require.NoError(t, err)
		tx, err := d.pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = pgstore.EnqueueTx(t.Context(), tx, d.q, durable.Message{ID: id, Delay: time.Hour, Replace: true})
		require.NoError(t, err)
		result := make(chan durable.Result)
		go func() {
			r, err := move(id)
			assert.NoError(t, err)
			result <- r
		}()
		d.awaitLock()
		require.NoError(t, tx.Commit(t.Context()))
		require.Equal(t, []durable.Result{durable.ResultCancelled, durable.ResultRescheduled}[i], <-result)
	}
}

// TestReplaceInTransaction replaces a message in a transaction that another one has enqueued, and
// which commits meanwhile.
func TestReplaceInTransaction(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, pgstore.Options{})
	first, err := d.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = pgstore.EnqueueTx(t.Context(), first, d.q, durable.Message{ID: "m", Body: []byte("first"), Delay: time.Hour})
	require.NoError(t, err)
	failed := make(chan error)
	go func() {
		failed <- pgx.BeginFunc(t.Context(), d.pool, func(tx pgx.Tx) error {
			m := durable.Message{ID: "m", Body: []byte("second"), Delay: time.Hour, Replace: true}
			_, err := pgstore.EnqueueTx(t.Context(), tx, d.q, m)
			return err
		})
	}()
	d.awaitLock()
	require.NoError(t, first.Commit(t.Context()))
	require.NoError(t, <-failed)
	m, err := d.q.Get(t.Context(), "m")
	require.NoError(t, err)
	require.Equal(t, "second", string(m.Body))
	s, err := d.q.Stats(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, s.Scheduled)
}

// TestStoppedProcessReleasesItsLocks stops between the two round trips of a claim. The next claim
// of the partition goes on after the timeout of the server.
func TestStoppedProcessReleasesItsLocks(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, pgstore.Options{})
	conn, err := d.pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	for _, text := range []string{
		"BEGIN", "SELECT set_config('idle_in_transaction_session_timeout', '500', true)",
		fmt.Sprintf(`SELECT FROM %q.claims FOR UPDATE`, d.schema),
	} {
		_, err := conn.Exec(t.Context(), text)
		require.NoError(t, err)
	}
	_, err = d.q.Enqueue(t.Context(), durable.Message{ID: "m"})
	require.NoError(t, err)
	delivery, err := d.q.Take(t.Context())
	require.NoError(t, err)
	require.NoError(t, delivery.Ack(t.Context()))
	err = conn.Ping(t.Context())
	require.Error(t, err, "the server has ended the session")
}

// TestCallsEndWhileAMessageIsLocked cancels a message that a transaction has locked for longer than
// RetryFor.
func TestCallsEndWhileAMessageIsLocked(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, pgstore.Options{})
	q, err := durable.Open(t.Context(), d.store, durable.Options{Queue: "orders", RetryFor: time.Second})
	require.NoError(t, err)
	defer q.Close()
	_, err = q.Enqueue(t.Context(), durable.Message{ID: "m", Delay: time.Hour})
	require.NoError(t, err)
	require.NoError(t, pgx.BeginFunc(t.Context(), d.pool, func(tx pgx.Tx) error {
		_, err := pgstore.RescheduleTx(t.Context(), tx, q, "m", time.Minute)
		require.NoError(t, err)
		_, err = q.Cancel(t.Context(), "m")
		require.ErrorIs(t, err, durable.ErrUnavailable)
		return nil
	}))
}

// TestRepeatedAck repeats an acknowledgement whose first copy has not committed yet. Another one
// does not wait for it.
func TestRepeatedAck(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, pgstore.Options{})
	b, err := d.store.Open(t.Context(), driver.Config{Queue: "acks", Partitions: 1})
	require.NoError(t, err)
	_, err = b.Put(t.Context(), driver.Put{Items: []driver.PutItem{{ID: "m", MaxAttempts: 1}, {ID: "other", MaxAttempts: 1}}})
	require.NoError(t, err)
	claimed, err := b.Claim(t.Context(), driver.Claim{Max: 2, Begin: 2, MaxBytes: 1, Visibility: time.Hour})
	require.NoError(t, err)
	require.Len(t, claimed.Records, 2)
	first, err := d.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = first.Exec(t.Context(), fmt.Sprintf(`DELETE FROM %q.messages WHERE id = 'm'`, d.schema))
	require.NoError(t, err)
	ack := func(r driver.Record) driver.Status {
		outcomes, err := b.Apply(t.Context(), driver.Batch{Op: driver.OpAck, Changes: []driver.Change{{ID: r.ID, Token: r.Token}}})
		if assert.NoError(t, err) {
			return outcomes[0].Status
		}
		return 0
	}
	status := make(chan driver.Status, 1)
	go func() { status <- ack(claimed.Records[0]) }()
	require.Equal(t, driver.StatusDone, ack(claimed.Records[1]))
	select {
	case s := <-status:
		t.Fatalf("the repetition has answered %v before the transaction has ended", s)
	case <-time.After(100 * time.Millisecond):
	}
	require.NoError(t, first.Commit(t.Context()))
	require.Equal(t, driver.StatusNotFound, <-status)
}

// TestLockedPartition begins messages while a transaction has locked the partition of one of them,
// as Pause does. The message is early, and another queue's message does not wait.
func TestLockedPartition(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, pgstore.Options{})
	begin := map[string]func() driver.Status{}
	for _, queue := range []string{"locked", "free"} {
		b, err := d.store.Open(t.Context(), driver.Config{Queue: queue, Partitions: 1})
		require.NoError(t, err)
		_, err = b.Put(t.Context(), driver.Put{Items: []driver.PutItem{{ID: "m", MaxAttempts: 1}}})
		require.NoError(t, err)
		claimed, err := b.Claim(t.Context(), driver.Claim{Max: 1, MaxBytes: 1, Visibility: time.Hour})
		require.NoError(t, err)
		begin[queue] = func() driver.Status {
			changes := []driver.Change{{ID: "m", Token: claimed.Records[0].Token}}
			outcomes, err := b.Apply(t.Context(), driver.Batch{Op: driver.OpBegin, Visibility: time.Hour, Changes: changes})
			require.NoError(t, err)
			return outcomes[0].Status
		}
	}
	tx, err := d.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), fmt.Sprintf(`SELECT FROM %[1]q.partitions WHERE queue = (SELECT id FROM %[1]q.queues WHERE name = 'locked') FOR UPDATE`, d.schema))
	require.NoError(t, err)
	require.Equal(t, driver.StatusEarly, begin["locked"]())
	require.Equal(t, driver.StatusDone, begin["free"]())
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, driver.StatusDone, begin["locked"]())
}

// TestLateCallHasNoEffect waits for a transaction until the call is late.
func TestLateCallHasNoEffect(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, pgstore.Options{})
	b, err := d.store.Open(t.Context(), driver.Config{Queue: "late", Partitions: 1, RetryFor: time.Minute})
	require.NoError(t, err)
	put := driver.Put{Items: []driver.PutItem{{ID: "m", MaxAttempts: 1}}}
	put.Call = driver.Call{Caller: "c", Seq: 1, NotAfter: driver.InstantOf(time.Now().Add(500 * time.Millisecond))}
	tx, err := d.pool.Begin(t.Context())
	require.NoError(t, err)
	q, err := durable.Open(t.Context(), d.store, durable.Options{Queue: "late"})
	require.NoError(t, err)
	defer q.Close()
	_, err = pgstore.EnqueueTx(t.Context(), tx, q, durable.Message{ID: "m"})
	require.NoError(t, err)
	failed := make(chan error)
	go func() {
		_, err := b.Put(context.WithoutCancel(t.Context()), put)
		failed <- err
	}()
	d.awaitLock()
	time.Sleep(time.Until(put.Call.NotAfter.Time()) + 10*time.Millisecond)
	require.NoError(t, tx.Rollback(t.Context()))
	var late *driver.LateError
	require.ErrorAs(t, <-failed, &late)
	_, err = b.Get(t.Context(), 0, "m")
	require.ErrorIs(t, err, driver.ErrNotFound)
}

// TestConcurrentTrims buries two messages, whose transactions both find more dead letters than the
// limit. The second one must see what the first has removed.
func TestConcurrentTrims(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, pgstore.Options{})
	open := func(limit int) driver.Backend {
		b, err := d.store.Open(t.Context(), driver.Config{Queue: "dead", Partitions: 1, DeadLimit: limit, Update: true})
		require.NoError(t, err)
		return b
	}
	const n = 12
	b := open(n)
	var items []driver.PutItem
	for i := range n {
		items = append(items, driver.PutItem{ID: fmt.Sprintf("m%02d", i), MaxAttempts: 1})
	}
	_, err := b.Put(t.Context(), driver.Put{Items: items})
	require.NoError(t, err)
	claimed, err := b.Claim(t.Context(), driver.Claim{Max: n, Begin: n, MaxBytes: 1, Visibility: time.Hour})
	require.NoError(t, err)
	require.Len(t, claimed.Records, n)
	bury := func(records ...driver.Record) {
		batch := driver.Batch{Op: driver.OpBury}
		for _, r := range records {
			batch.Changes = append(batch.Changes, driver.Change{ID: r.ID, Token: r.Token})
		}
		_, err := b.Apply(t.Context(), batch)
		assert.NoError(t, err)
	}
	bury(claimed.Records[2:]...)
	const limit = 5
	b = open(limit)
	tx, err := d.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), fmt.Sprintf(`SELECT FROM %q.messages WHERE id = 'm02' FOR UPDATE`, d.schema)) // the oldest
	require.NoError(t, err)
	var burying sync.WaitGroup
	for _, r := range claimed.Records[:2] {
		burying.Go(func() { bury(r) })
	}
	d.awaitLocks(2)
	require.NoError(t, tx.Rollback(t.Context()))
	burying.Wait()
	counts, err := b.Count(t.Context(), 0)
	require.NoError(t, err)
	assert.Equal(t, []uint64{limit, n - limit}, []uint64{uint64(counts.Dead), counts.Trimmed}) //nolint:gosec // small
	dead, _, err := b.List(t.Context(), 0, driver.StateDead, "", n)
	require.NoError(t, err)
	assert.Len(t, dead, limit)
}
