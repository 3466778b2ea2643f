package redisstore_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
)

var usedMemory = regexp.MustCompile(`used_memory_dataset:(\d+)`)

// memoryOf returns the memory of a server's data in bytes.
func memoryOf(t *testing.T, client *redis.Client) int {
	t.Helper()
	info, err := client.Info(t.Context(), "memory").Result()
	require.NoError(t, err)
	n, err := strconv.Atoi(usedMemory.FindStringSubmatch(info)[1])
	require.NoError(t, err)
	return n
}

// The test measures the memory of a message with a body of 128 bytes and an id of 26, scheduled and
// in flight.
func TestMemoryOfAMessageIsBounded(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	q := openQueue(t, client, redisstore.Options{})
	put(t, q, items("warm:", driver.MaxBatch, 128, time.Hour))
	before := memoryOf(t, client)
	const batches = 100
	for i := range batches {
		put(t, q, items(fmt.Sprintf("%05d", i), driver.MaxBatch, 128, 0))
	}
	scheduled := float64(memoryOf(t, client)-before) / (batches * driver.MaxBatch)
	for range batches {
		claim(t, q, driver.MaxBatch)
	}
	counts, err := q.Count(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, int64(batches*driver.MaxBatch), counts.InFlight)
	leased := float64(memoryOf(t, client)-before) / (batches * driver.MaxBatch)
	t.Logf("scheduled: %.0f bytes for each message, leased: %.0f", scheduled, leased)
	assert.Less(t, scheduled, 400.0)
	assert.Greater(t, scheduled, 128.0, "the measurement is wrong")
	assert.Less(t, leased, 600.0)
}

// A server is full. The messages in the queue can be delivered, and then there is room again.
func TestMessagesAreDeliveredWhileTheServerIsOutOfMemory(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{MaxMemory: 16 << 20}).Addr())
	q := openQueue(t, client, redisstore.Options{})
	stored := fill(t, q)
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "2mb").Err()) // less than is in use
	counts, err := q.Count(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, int64(stored), counts.Scheduled, "a rejected call stores nothing")
	require.Equal(t, uint64(stored), counts.Enqueued) //nolint:gosec // not negative
	makeAllTransitions(t, q)
	report, err := q.(driver.Auditor).Audit(t.Context(), 0, true)
	require.NoError(t, err)
	assert.Equal(t, driver.AuditReport{Records: int64(stored - 25)}, report)

	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	put(t, q, items("again", 1, 1024, 0))
}

// fill puts messages until the server has no room, and returns how many it has stored.
func fill(t *testing.T, q driver.Backend) (stored int) {
	t.Helper()
	for seq := range uint64(1000) {
		p := driver.Put{Call: calling("p", seq+1), Items: items(fmt.Sprintf("%05d", seq), 64, 1024, 0)}
		if _, err := q.Put(t.Context(), p); err != nil {
			require.ErrorIs(t, err, driver.ErrFull)
			_, err = q.Put(t.Context(), p)
			require.ErrorIs(t, err, driver.ErrFull, "again")
			require.Positive(t, stored)
			return stored
		}
		stored += 64
	}
	require.Fail(t, "the server is not full")
	return stored
}

// makeAllTransitions makes each transition except Put. It ends 25 of 40 messages.
func makeAllTransitions(t *testing.T, q driver.Backend) {
	t.Helper()
	records := claim(t, q, 40)
	require.Len(t, records, 40)
	c := changes(records)
	apply(t, q, driver.OpExtend, c...)
	apply(t, q, driver.OpRelease, c[30:]...)
	apply(t, q, driver.OpBegin, c[:30]...)
	apply(t, q, driver.OpRetry, c[20:30]...)
	apply(t, q, driver.OpBury, c[:10]...)
	apply(t, q, driver.OpReplay, c[:5]...)
	apply(t, q, driver.OpPurge, c[5:10]...)
	apply(t, q, driver.OpReschedule, c[20:]...)
	apply(t, q, driver.OpRepeat, c[20:]...)
	apply(t, q, driver.OpCancel, c[30:]...)
	interrupt(t, q, c[10:20]...)
	apply(t, q, driver.OpAck, c[10:20]...)
	members, err := q.Heartbeat(t.Context(), driver.Member{Name: "m"}, time.Minute)
	require.NoError(t, err)
	assert.Equal(t, []string{"m"}, names(members))
	details, err := q.Members(t.Context())
	require.NoError(t, err)
	assert.Len(t, details, 1)
}
