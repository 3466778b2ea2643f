package storetest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
)

var putTests = []test{
	{"Put/Record", putRecord},
	{"Put/Bodies", putBodies},
	{"Put/BodiesAreCopied", putBodiesCopied},
	{"Put/IDs", putIDs},
	{"Put/EveryState", putEveryState},
}

func putRecord(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	before := q.now()
	key := strings.Repeat("\x00\xff\n", 85) // 255 bytes
	q.put(driver.PutItem{ID: "a", Body: []byte("body"), Delay: far, MaxAttempts: 7, Key: key, NextDue: driver.Never})
	after := q.now()
	r := q.get("a")
	assert.Equal(t, driver.Record{
		ID: "a", Body: []byte("body"), Enqueued: r.Enqueued, Due: r.Due, MaxAttempts: 7,
		State: driver.StateScheduled, Key: key, NextDue: driver.Never,
	}, r)
	assertDelay(t, before, after, 0, r.Enqueued)
	assertDelay(t, before, after, far, r.Due)
	q.gone("b")
	_, err := q.Get(t.Context(), 1, "a")
	assert.ErrorIs(t, err, driver.ErrNotFound, "in another partition")
}

func putBodies(t *testing.T, newStore Factory) {
	q := open(t, newStore)
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

func putBodiesCopied(t *testing.T, newStore Factory) {
	q := open(t, newStore)
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

func putIDs(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	ids := []string{
		"a", "A", " ", "a b", "a:b", "a{b}c", "{}", "*", "a?", "%s", "0", "-1", "1e3", "nil", "false", "'", `"`, `\`, "a|b", "a/b",
		"order-42", "日本語", "żółć", "😀", "e\u0301", "\u00e9", "\u200b", "\u007e",
		strings.Repeat("x", durable.MaxID), strings.Repeat("x", durable.MaxID-1),
		strings.Repeat("語", durable.MaxID/3),
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
func putEveryState(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	q.put()
	for i, state := range allStates {
		next := driver.Instant(i % 2) // a store may keep 0 in another way
		for _, replace := range []bool{false, true} {
			what := fmt.Sprintf("%s, replace %v", state, replace)
			a := q.in(fmt.Sprint(state, replace)).arrange(state, []string{"m"})
			before := a.records(state, []string{"m"})
			expected := referenceOf(a, state, before)
			put := driver.Put{Replace: replace, Items: []driver.PutItem{
				{ID: "m", Body: []byte("other"), Delay: far, MaxAttempts: 3, NextDue: next}, item("new", far),
			}}
			want := expected.putStatus("m", replace)
			assert.Equal(t, []driver.Status{want, driver.StatusDone}, a.statuses(put), what)
			r := a.get("m")
			expected.messages["new"] = &refMessage{record: a.get("new")}
			expected.sums.Enqueued++
			if want == driver.StatusDone {
				expected.sums.Enqueued++
				m := &refMessage{record: driver.Record{ID: "m", Body: []byte("other"), Enqueued: r.Enqueued, Due: r.Due,
					MaxAttempts: 3, State: driver.StateScheduled, NextDue: next}}
				expected.messages["m"] = m
				m.assertSame(t, r, what)
				assert.Greater(t, r.Due, driver.InstantOf(a.now()), what)
				for _, op := range []driver.Op{driver.OpBegin, driver.OpRelease} {
					assert.Equal(t, driver.StatusLeaseLost, a.status(op, driver.Change{ID: "m", Token: a.right["m"]}), what)
				}
			} else {
				assert.Equal(t, before["m"], r, what)
			}
			checkCounts(a, expected, what)
		}
	}
}
