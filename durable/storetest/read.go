package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

var readTests = []test{
	{"List/Pages", listPages},
	{"List/Bytes", listBytes},
	{"CountDue", countDueWithin},
}

// listPages reads pages of different sizes, in each of the states.
func listPages(t *testing.T, q *queue) {
	const n = 40
	base := driver.InstantOf(q.now().Add(far))
	messages := items("m", n)
	for i := range messages {
		messages[i].At = base + driver.Instant(i/3) // several with one due time
	}
	for _, state := range []driver.State{driver.StateScheduled, driver.StateLeased, driver.StateDead} {
		assertPages(q, state, nil)
	}
	q.put(messages...)
	want := itemIDs(messages)
	assertPages(q, driver.StateScheduled, want)
	records := q.claimWith(driver.Claim{Horizon: 2 * far, Max: n, Visibility: far}).Records
	require.Len(t, records, n)
	assertPages(q, driver.StateLeased, want)
	begin := driver.Batch{Op: driver.OpBegin, Lead: 2 * far, Visibility: far, Changes: changesOf(records)}
	q.batch(begin)
	assertPages(q, driver.StateLeased, want)
	q.done(driver.OpBury, begin.Changes...)
	assertPages(q, driver.StateDead, want)
	assertPages(q, driver.StateScheduled, nil)
	assertPages(q, driver.StateLeased, nil)
	for cursor := ""; ; { // the messages of a page are gone before the next page is read
		page, next, err := q.List(t.Context(), 0, driver.StateDead, cursor, 7)
		require.NoError(t, err)
		q.done(driver.OpPurge, changesOf(page)...)
		if cursor = next; cursor == "" {
			break
		}
	}
	has(q, 0, 0, 0)
}

// assertPages asserts that the pages of a state, of several sizes, contain these messages in this
// order.
func assertPages(q *queue, state driver.State, want []string) {
	q.t.Helper()
	for _, limit := range []int{1, 7, 8, max(1, len(want)), 100, driver.MaxBatch} {
		var got []string
		for _, page := range readPages(q, state, limit, len(want)+1) {
			got = append(got, idsOf(page)...)
			for _, r := range page {
				require.Equal(q.t, r.ID, string(r.Body))
			}
		}
		require.Equal(q.t, want, got, "state %d, pages of %d", state, limit)
	}
}

// listBytes reads pages of large messages. The pages end before the limit.
func listBytes(t *testing.T, q *queue) {
	const n, size = 10, 1 << 20
	messages := items("m", n)
	for i := range messages {
		messages[i].Body = make([]byte, size)
		q.put(messages[i])
	}
	for _, state := range []driver.State{driver.StateScheduled, driver.StateLeased} {
		if state == driver.StateLeased {
			require.Len(t, q.claim(n), n)
		}
		var got []string
		pages := readPages(q, state, driver.MaxBatch, 3)
		require.Len(t, pages, 3)
		for _, page := range pages {
			require.NotEmpty(t, page)
			require.LessOrEqual(t, len(page), contract.PageBytes/size)
			got = append(got, idsOf(page)...)
		}
		assert.ElementsMatch(t, itemIDs(messages), got)
	}
}

// countDueWithin counts messages by due time. Only scheduled messages count.
func countDueWithin(t *testing.T, q *queue) {
	within := []time.Duration{0, far, 2 * far, 4 * far, 1 << 62}
	counts := func() []int64 {
		before := q.count()
		n, err := q.CountDue(t.Context(), 0, within)
		require.NoError(t, err)
		assert.Equal(t, before.Due, n[0])
		return n
	}
	assert.Equal(t, []int64{0, 0, 0, 0, 0}, counts(), "an empty partition")
	q.done(driver.OpBury, q.deliver("dead"))
	q.deliver("firing")
	q.put(item("leased", 0))
	q.claim(1)
	assert.Equal(t, []int64{0, 0, 0, 0, 0}, counts(), "in flight or dead")
	q.put(items("now", 5)...)
	q.put(item("soon", far/2), item("soon too", far/2), item("later", 3*far),
		item("old age", 1<<61), item("never", 1<<63-1))
	assert.Equal(t, []int64{5, 7, 7, 8, 9}, counts())
	records := q.claim(2)
	assert.Equal(t, []int64{3, 5, 5, 6, 7}, counts(), "two messages were claimed")
	q.done(driver.OpRelease, changesOf(records)...)
	assert.Equal(t, []int64{5, 7, 7, 8, 9}, counts(), "the two messages were released")
	q.done(driver.OpReschedule, driver.Change{ID: "later", Delay: far / 2})
	q.done(driver.OpCancel, driver.Change{ID: "soon"})
	assert.Equal(t, []int64{5, 7, 7, 7, 8}, counts())
	other, err := q.CountDue(t.Context(), 1, within[:1])
	require.NoError(t, err)
	assert.Equal(t, []int64{0}, other, "the other partition")

	at := q.now().Add(2 * far)
	q.put(driver.PutItem{ID: "edge", At: driver.InstantOf(at), MaxAttempts: 1})
	due := q.get("edge").Due
	for range 3 { // the bound is exact to the millisecond, but the clock is read twice
		before := q.count().Now
		n, err := q.CountDue(t.Context(), 0, []time.Duration{far, due.Time().Sub(before.Time())})
		require.NoError(t, err)
		assert.Equal(t, int64(8), n[1])
	}
}
