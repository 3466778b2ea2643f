package redistest

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/internal/redistest/proctest"
)

func TestClusterPromotesTheReplicaAfterAKill(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, ClusterOptions{})
	client := c.Client(t)
	for i := range 30 {
		require.NoError(t, client.Set(t.Context(), "k"+strconv.Itoa(i), i, 0).Err())
	}
	const slot = 12_182 // of the key "foo"
	assert.Same(t, c.Nodes()[2], c.Master(slot))
	old := c.KillMaster(slot)
	assert.Same(t, c.Nodes()[2], old)
	assert.False(t, old.Running())
	assert.Same(t, c.Nodes()[5], c.WaitMaster(slot, old))
	client.ReloadState(t.Context())
	for i := range 30 {
		require.NoError(t, proctest.Eventually(startTimeout, func() error {
			return client.Set(t.Context(), "k"+strconv.Itoa(i), i, 0).Err()
		}))
	}
	old.Restart()
	c.WaitComplete()
	assert.Same(t, c.Nodes()[5], c.Master(slot), "the old master is a replica now")
}

func TestClusterWaitsForAPausedNode(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, ClusterOptions{NodeTimeout: time.Second})
	client := c.Client(t)
	c.Nodes()[2].Pause()
	time.Sleep(3 * time.Second)
	c.Nodes()[2].Continue()
	for i := range 30 {
		require.NoError(t, client.Set(t.Context(), "k"+strconv.Itoa(i), i, 0).Err(), "no node refuses the slot")
	}
	assert.Same(t, c.Nodes()[2], c.Master(12_182))
}

func TestMigratedSlotKeepsItsKeys(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, ClusterOptions{})
	client := c.Client(t)
	slot := int(client.ClusterKeySlot(t.Context(), "{a}").Val())
	from := c.Master(slot)
	to := c.Nodes()[0]
	if from == to {
		to = c.Nodes()[1]
	}
	const keys = 40
	for i := range keys {
		require.NoError(t, client.Set(t.Context(), "{a}"+strconv.Itoa(i), i, 0).Err())
	}
	looks := 0
	c.MigrateSlot(slot, to, MigrateOptions{Batch: 10, Halfway: func() {
		looks++
		for i := range keys {
			assert.Equal(t, strconv.Itoa(i), client.Get(t.Context(), "{a}"+strconv.Itoa(i)).Val())
		}
		assert.NoError(t, client.Incr(t.Context(), "{a}new"+strconv.Itoa(looks)).Err())
	}})
	assert.Equal(t, 1+keys/10, looks)
	assert.Same(t, to, c.Master(slot))
	assert.Zero(t, from.Client(t).ClusterCountKeysInSlot(t.Context(), slot).Val())
	assert.EqualValues(t, keys+looks, to.Client(t).ClusterCountKeysInSlot(t.Context(), slot).Val())
	assert.Error(t, from.Client(t).Get(t.Context(), "{a}1").Err(), "MOVED")
	c.MigrateSlot(slot, to, MigrateOptions{Halfway: func() { t.Error("there is nothing to move") }})
	c.MigrateSlot(slot, from, MigrateOptions{})
	assert.Same(t, from, c.Master(slot))
	for i := range keys {
		assert.Equal(t, strconv.Itoa(i), client.Get(t.Context(), "{a}"+strconv.Itoa(i)).Val())
	}
	c.WaitComplete()
}

func TestClusterOptionsNameAllNodes(t *testing.T) {
	t.Parallel()
	c := &Cluster{nodes: []*Server{{port: &proctest.Port{Number: 10_001}}, {port: &proctest.Port{Number: 10_002}}}}
	o := c.ClusterOptions()
	assert.Equal(t, []string{"127.0.0.1:10001", "127.0.0.1:10002"}, o.Addrs)
	var _ redis.UniversalClient = c.Client(t)
}

func TestHoldsParsesSlotRanges(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		span string
		slot int
		want bool
	}{
		{"7", 7, true}, {"7", 8, false}, {"0-5460", 0, true}, {"0-5460", 5460, true}, {"0-5460", 5461, false},
		{"[7->-0123abcd]", 7, false}, {"", 0, false},
	} {
		assert.Equal(t, test.want, holds(test.slot)(test.span), "%q %d", test.span, test.slot)
	}
}
