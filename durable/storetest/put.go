package storetest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

var putTests = []test{
	{"Put/Record", putRecord},
	{"Put/Bodies", putBodies},
	{"Put/BodiesAreCopied", putBodiesCopied},
	{"Put/IDs", putIDs},
	{"Put/EveryState", putEveryState},
	{"Put/Recurring", putRecurring},
	{"Put/Firing", putFiring},
}

func putRecord(t *testing.T, q *queue) {
	before := q.now()
	repeat := strings.Repeat("é*", 85) // 255 bytes
	q.put(driver.PutItem{ID: "a", Body: []byte("body"), Delay: far, MaxAttempts: 7, Repeat: repeat})
	after := q.now()
	r := q.get("a")
	assert.Equal(t, driver.Record{
		ID: "a", Body: []byte("body"), Enqueued: r.Enqueued, Due: r.Due, MaxAttempts: 7,
		State: driver.StateScheduled, Repeat: repeat, Planned: r.Due,
	}, r)
	assertDelay(t, before, after, 0, r.Enqueued)
	assertDelay(t, before, after, far, r.Due)
	q.gone("b")
	_, err := q.Get(t.Context(), 1, "a")
	assert.ErrorIs(t, err, driver.ErrNotFound, "in another partition")
}

func putBodies(t *testing.T, q *queue) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	bodies := map[string][]byte{
		"nil":     nil,
		"empty":   {},
		"zero":    {0},
		"newline": []byte("\r\n\x00\xff\xfe"),
		"every":   every,
		"large":   bytes.Repeat(every, 1<<20/len(every)),
	}
	for id, body := range bodies {
		q.put(itemWith(id, body))
	}
	for id, body := range bodies {
		assert.True(t, bytes.Equal(body, q.get(id).Body), "Get %s", id)
	}
	for _, r := range q.take(len(bodies)) {
		assert.True(t, bytes.Equal(bodies[r.ID], r.Body), "Claim %s", r.ID)
	}
}

func putBodiesCopied(t *testing.T, q *queue) {
	body := []byte("body")
	q.put(itemWith("a", body))
	body[0] = 'X'
	got := q.get("a").Body
	assert.Equal(t, "body", string(got), "the store retained the caller's slice")
	got[0] = 'Y'
	listed, _, err := q.List(t.Context(), 0, driver.StateScheduled, "", 1)
	require.NoError(t, err)
	require.Len(t, listed, 1)
	assert.Equal(t, "body", string(listed[0].Body), "Get returned the store's slice")
	listed[0].Body[0] = 'Z'
	claimed := q.take(1)
	assert.Equal(t, "body", string(claimed[0].Body), "List returned the store's slice")
	claimed[0].Body[0] = 'W'
	assert.Equal(t, "body", string(q.get("a").Body), "Claim returned the store's slice")
}

func putIDs(t *testing.T, q *queue) {
	ids := []string{
		"a", "A", " ", "a b", "a:b", "a{b}c", "{}", "*", "a?", "%s", "0", "-1", "1e3", "nil", "false", "'", `"`, `\`, "a|b", "a/b",
		"order-42", "日本語", "żółć", "😀", "e\u0301", "\u00e9", "\u200b", "\u007e",
		strings.Repeat("x", contract.MaxID), strings.Repeat("x", contract.MaxID-1),
		strings.Repeat("語", contract.MaxID/3),
	}
	for _, id := range ids {
		q.put(itemWith(id, []byte("body of "+id)))
	}
	for _, id := range ids {
		assert.Equal(t, "body of "+id, string(q.get(id).Body), "%q", id)
	}
	records := q.claim(len(ids))
	assert.ElementsMatch(t, ids, idsOf(records))
	q.begin(records...)
	q.done(driver.OpAck, changesOf(records)...)
	for _, id := range ids {
		q.gone(id)
	}
}

// putEveryState stores a message again in each of its states, with and without Replace, together
// with a new message.
func putEveryState(t *testing.T, q *queue) {
	q.put()
	for i, state := range allStates {
		series := strings.Repeat("daily", i%2)
		for _, replace := range []bool{false, true} {
			what := fmt.Sprintf("%s, replace %v", state, replace)
			m := arrange(q.in(fmt.Sprint(state, replace)), state, itemWith("m", []byte("body")))
			before := m.compareLists(1)
			m.what = what
			put := driver.Put{Replace: replace, Items: []driver.PutItem{
				{ID: "m", Body: []byte("other"), Delay: far, MaxAttempts: 3, Repeat: series}, item("new", far),
			}}
			if m.makePut(put, m.now())[0] == driver.StatusDone {
				for _, op := range []driver.Op{driver.OpBegin, driver.OpRelease} {
					assert.Equal(t, driver.StatusLeaseLost, m.status(op, driver.Change{ID: "m", Token: tokenOf(m, rightToken, "m")}), what)
				}
			} else {
				assert.Equal(t, before["m"], m.get("m"), what)
			}
			m.compare([]string{"m", "new"}, what)
		}
	}
}

// putRecurring stores a recurring message. Reschedule and Replay move its run. Ends of a delivery
// do not change its series.
func putRecurring(t *testing.T, q *queue) {
	m := newModel(q)
	m.store(false, recurring("a", far), driver.PutItem{ID: "never", At: driver.Never, Repeat: "daily"})
	assert.Equal(t, driver.Never, q.get("never").Planned, "it is not firing, and so not marked")
	a := driver.Change{ID: "a"}
	m.change(driver.OpReschedule, a)
	for _, op := range []driver.Op{driver.OpRelease, driver.OpRetry, driver.OpBury} {
		m.change(op, m.begun(1)...)
	}
	m.change(driver.OpReplay, a)
	m.store(true, recurring("a", 2*far))
	m.store(true, item("a", 2*far))
	m.change(driver.OpReschedule, driver.Change{ID: "never"})
	m.change(driver.OpExtend, m.begun(1)...)
}

// putFiring replaces firing messages. If both messages are recurring, the run goes on, and its end
// makes the new message due.
func putFiring(_ *testing.T, q *queue) {
	m := newModel(q)
	m.store(false, recurring("a", 0))
	c := m.begun(1)[0]
	m.pass()
	series := recurring("a", far)
	series.Body, series.MaxAttempts, series.Repeat = []byte("new"), 3, "weekly"
	m.store(true, series)
	m.store(false, series)
	m.store(true, item("a", far))
	c.Again, c.Incarnation = true, 1
	m.change(driver.OpRetry, c)

	m.store(false, item("plain", 0), recurring("marked", 0))
	m.begun(2)
	m.change(driver.OpCancel, driver.Change{ID: "marked"})
	for _, series.ID = range []string{"plain", "marked"} {
		m.store(true, series)
	}
}
