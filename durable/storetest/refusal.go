package storetest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

var refusalTests = []test{
	{"Refusal/Partition", refusePartition},
	{"Refusal/Batch", refuseBatch},
	{"Refusal/Op", refuseOp},
}

// refusePartition names partitions that the queue does not have.
func refusePartition(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	q.put(item("a", 0))
	before := q.get("a")
	ctx := t.Context()
	for _, p := range []int{-1, q.Partitions(), 1 << 30} {
		_, err := q.Put(ctx, driver.Put{Partition: p, Items: items("b", 1)})
		assert.ErrorIs(t, err, driver.ErrInvalid, "Put")
		_, err = q.Claim(ctx, driver.Claim{Partition: p, Max: 1, MaxBytes: 1, Horizon: soon, Visibility: far})
		assert.ErrorIs(t, err, driver.ErrInvalid, "Claim")
		_, err = q.Apply(ctx, driver.Batch{Partition: p, Op: driver.OpCancel, Changes: []driver.Change{{ID: "a"}}})
		assert.ErrorIs(t, err, driver.ErrInvalid, "Apply")
		_, err = q.Get(ctx, p, "a")
		assert.ErrorIs(t, err, driver.ErrInvalid, "Get")
		_, _, err = q.List(ctx, p, driver.StateScheduled, "", 1)
		assert.ErrorIs(t, err, driver.ErrInvalid, "List")
		_, err = q.Count(ctx, p)
		assert.ErrorIs(t, err, driver.ErrInvalid, "Count")
		_, err = q.Audit(ctx, p, true)
		assert.ErrorIs(t, err, driver.ErrInvalid, "Audit")
	}
	assert.Equal(t, before, q.get("a"))
	assert.Equal(t, int64(1), q.count().Scheduled)
}

func refuseBatch(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	tooMany := items("m", driver.MaxBatch+1)
	put := driver.Put{Producer: "p", Seq: 1, Items: tooMany}
	_, err := q.Put(t.Context(), put)
	require.ErrorIs(t, err, driver.ErrInvalid)
	assert.Zero(t, q.count().Scheduled)
	put.Items = tooMany[:driver.MaxBatch]
	assert.NotContains(t, q.statuses(put), driver.StatusDuplicate, "what was refused was not stored")

	changes := make([]driver.Change, len(tooMany))
	for i := range changes {
		changes[i].ID = tooMany[i].ID
	}
	_, err = q.Apply(t.Context(), driver.Batch{Op: driver.OpCancel, Changes: changes})
	require.ErrorIs(t, err, driver.ErrInvalid)
	for _, limit := range []int{-1, driver.MaxBatch + 1} {
		_, err = q.Claim(t.Context(), driver.Claim{Max: limit, MaxBytes: manyBytes, Horizon: soon, Visibility: far})
		require.ErrorIs(t, err, driver.ErrInvalid, "Max %d", limit)
	}
	c := q.count()
	assert.Equal(t, [2]int64{driver.MaxBatch, 0}, [2]int64{c.Scheduled, c.InFlight})
}

func refuseOp(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	c := q.deliver("a")
	before := q.get("a")
	for _, op := range []driver.Op{0, driver.OpExpire + 1, 255} {
		_, err := q.Apply(t.Context(), driver.Batch{Op: op, Changes: []driver.Change{c}})
		assert.ErrorIs(t, err, driver.ErrInvalid, "op %d", op)
	}
	assert.Equal(t, before, q.get("a"))
}
