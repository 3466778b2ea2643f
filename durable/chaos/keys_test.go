//go:build unix

package chaos

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
)

// A key of the queue is deleted. The audit repairs the other keys and finds no fault afterwards.
// The queue continues and drains, and no message is lost whose record exists. The next process that
// opens the queue restores the keys of the whole queue.
func TestAuditRepairsQueueAfterDeletedKey(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	for _, key := range []string{
		"{chaos:1}:m", "{chaos:1}:s", "{chaos:1}:d", "{chaos:1}:l", "{chaos:1}:x", "{chaos:1}:c", "{chaos}:members", "{chaos}:meta",
	} {
		t.Run(strings.NewReplacer("{", "", "}", "").Replace(key), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.Options{})
			q := openHere(t, target{Redis: server.Addr()})
			h := New(Options{Crashes: true})
			client := server.Client(t)
			if key == "{chaos}:members" {
				fill(t, q, h, false, 5*time.Second) // the receiver stays a member for that time
			} else {
				fill(t, q, h, key == "{chaos:1}:m", 500*time.Millisecond)
				waitUntilReceiverHasLeft(t, client)
			}
			n, err := client.Del(t.Context(), "tw:"+key).Result()
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
			auditAndRepair(t, q)
			stop := consumeHere(t, q, h)
			for i := range 50 {
				require.NoError(t, h.Record(Event{Kind: Enqueued, ID: fmt.Sprint("new", i)}))
				_, err := q.Enqueue(t.Context(), durable.Message{ID: fmt.Sprint("new", i)})
				require.NoError(t, err)
			}
			waitUntilEmpty(t, q)
			stop()
			for record, err := range q.List(t.Context(), durable.StateDead) {
				require.NoError(t, err)
				require.NoError(t, h.Record(Event{Kind: Dead, ID: record.ID}))
			}
			report := h.Check()
			t.Log(report)
			require.NoError(t, report.Err())
			assert.GreaterOrEqual(t, report.Handled, 50)
			reopenRestoresKeys(t, client)
		})
	}
}

// waitUntilReceiverHasLeft waits until no receiver is a member, because the audit may miss claimed
// messages that move meanwhile.
func waitUntilReceiverHasLeft(t *testing.T, client *redis.Client) {
	t.Helper()
	require.Eventually(t, func() bool {
		n, err := client.ZCard(t.Context(), "tw:{chaos}:members").Result()
		return err == nil && n <= 1 // the empty member is the time of the last call
	}, waitLimit, 5*time.Millisecond)
}

// auditAndRepair audits the queue with repair, and checks that a second audit finds nothing.
func auditAndRepair(t *testing.T, q *durable.Queue) {
	t.Helper()
	report, err := q.Audit(t.Context(), true)
	require.NoError(t, err)
	t.Logf("%+v", report)
	assert.Equal(t, report.Orphans+report.Strays+report.Wrong, report.Repaired)
	report, err = q.Audit(t.Context(), false)
	require.NoError(t, err)
	assert.Zero(t, report.Orphans+report.Strays+report.Wrong, "faults are left after the repair: %+v", report)
}

// reopenRestoresKeys opens the queue as a later process does, and checks that the keys of the whole
// queue are restored.
func reopenRestoresKeys(t *testing.T, client *redis.Client) {
	t.Helper()
	store, err := redisstore.New(client, redisstore.Options{AllowLossOnCrash: true})
	require.NoError(t, err)
	defer store.Close()
	open := func(n int) (int, error) {
		backend, err := store.Open(t.Context(), driver.Config{Queue: "chaos", Partitions: n})
		if err != nil {
			return 0, err
		}
		return backend.Config().Partitions, nil
	}
	n, err := open(partitions)
	require.NoError(t, err)
	assert.Equal(t, partitions, n)
	n, err = open(0)
	require.NoError(t, err)
	assert.Equal(t, partitions, n)
	_, err = open(partitions + 1)
	require.ErrorIs(t, err, durable.ErrPartitions)
}

// fill leaves scheduled, leased and dead messages in each partition of a queue. If lossy is true,
// the messages of partition 1 may be lost. The receiver leaves after membership, and releases its
// claims.
func fill(t *testing.T, q *durable.Queue, h *History, lossy bool, membership time.Duration) {
	t.Helper()
	for i := range 100 {
		m := durable.Message{ID: fmt.Sprint("old", i), Delay: time.Duration(i%4) * 600 * time.Millisecond, MaxAttempts: 1}
		e := Event{Kind: Enqueued, ID: m.ID, Due: int64(driver.InstantOf(time.Now()).Add(m.Delay)) - 1}
		if lossy && contract.PartitionOf(m.ID, partitions) == 1 {
			e.Kind = MaybeEnqueued
		}
		_, err := q.Enqueue(t.Context(), m)
		require.NoError(t, err)
		require.NoError(t, h.Record(e))
	}
	receiver, err := q.Receiver(durable.ConsumerOptions{
		Visibility: 4 * time.Second, Horizon: 100 * time.Millisecond, Membership: membership,
	})
	require.NoError(t, err)
	var buried, held [partitions]int
	for slices.Min(buried[:]) == 0 || slices.Min(held[:]) == 0 {
		d, err := receiver.Take(t.Context())
		require.NoError(t, err)
		if p := contract.PartitionOf(d.ID, partitions); buried[p] <= held[p] {
			buried[p]++
			require.NoError(t, d.Bury(t.Context(), "for the test"))
		} else {
			held[p]++
		}
	}
}
