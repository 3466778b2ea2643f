package storetest

import (
	"bytes"
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
	{"Put/Batch", putBatch},
	{"Put/Duplicate", putDuplicate},
	{"Put/Replace", putReplace},
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

func putBatch(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	q.put()
	batch := items("m", driver.MaxBatch)
	q.put(batch...)
	assert.Equal(t, int64(driver.MaxBatch), q.count().Scheduled)
	records := q.claim(driver.MaxBatch)
	assert.Equal(t, itemIDs(batch), idsOf(records),
		"messages with equal due times are ordered by id")
	for i, r := range records {
		assert.Equal(t, batch[i].Body, r.Body)
	}
	q.begin(records...)
	q.done(driver.OpAck, changesOf(records)...)
	c := has(q, 0, 0, 0)
	assert.Equal(t, uint64(driver.MaxBatch), c.Acked)
}

// putDuplicate stores a message again in each of its states.
func putDuplicate(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	for _, s := range []string{scheduled, leased, firing, dead} {
		arranged := q.in(s).arrange(s, []string{s})
		p := arranged.queue
		before := p.get(s)
		other := driver.PutItem{ID: s, Body: []byte("other"), Delay: far, MaxAttempts: 3}
		statuses := p.statuses(driver.Put{Items: []driver.PutItem{other, item("new", far)}})
		want := map[bool]driver.Status{false: driver.StatusDuplicate, true: driver.StatusDead}[s == dead]
		assert.Equal(t, []driver.Status{want, driver.StatusDone}, statuses, s)
		assert.Equal(t, before, p.get(s), s)
		assert.Equal(t, uint64(2), p.count().Enqueued, "a duplicate is not counted")
	}
}

// putReplace replaces a message in each of its states.
func putReplace(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	for _, s := range []string{absent, scheduled, leased, expired, dead} {
		arranged := q.in(s).arrange(s, []string{s})
		p := arranged.queue
		enqueued := p.count().Enqueued
		other := driver.PutItem{ID: s, Body: []byte("other"), Delay: far, MaxAttempts: 3, NextDue: 5}
		assert.Equal(t, []driver.Status{driver.StatusDone},
			p.statuses(driver.Put{Replace: true, Items: []driver.PutItem{other}}), s)
		r := p.get(s)
		assert.Equal(t, "other", string(r.Body), s)
		assert.Equal(t, driver.StateScheduled, r.State, s)
		assert.Equal(t, []any{3, "", driver.Instant(5)}, []any{r.MaxAttempts, r.Key, r.NextDue}, s)
		assert.Zero(t, r.Attempts+r.Crashes, s)
		assert.Greater(t, r.Due, driver.InstantOf(p.now()), s)
		for _, op := range []driver.Op{driver.OpBegin, driver.OpRelease} {
			assert.Equal(t, driver.StatusLeaseLost, p.status(op, driver.Change{ID: s, Token: arranged.right[s]}), s)
		}
		assert.Equal(t, enqueued+1, has(p, 1, 0, 0).Enqueued, s)
	}
	p := q.in(firing).arrange(firing, []string{firing}).queue
	before := p.get(firing)
	statuses := p.statuses(driver.Put{Replace: true,
		Items: []driver.PutItem{item(firing, far), item("new", far)}})
	assert.Equal(t, []driver.Status{driver.StatusFiring, driver.StatusDone}, statuses)
	assert.Equal(t, before, p.get(firing))
}
