package redisstore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
)

// TestHeartbeatFindsNewMaster kills the master that has the members and none of the queue's partitions, so that no other call of
// the queue has the client ask where the slots are now.
func TestHeartbeatFindsNewMaster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterOptions{})
	client := cluster.Client(t)
	c := config()
	c.Partitions = 1
	slotOf := func(key string) int { return int(client.ClusterKeySlot(t.Context(), key).Val()) }
	var slot int
	for i := range 1000 {
		c.Queue = fmt.Sprint("queue", i)
		slot = slotOf("{" + c.Queue + "}")
		if cluster.Master(slot) != cluster.Master(slotOf("{"+c.Queue+":0}")) {
			break
		}
	}
	q, err := newStore(t, client, redisstore.Options{}).Open(t.Context(), c)
	require.NoError(t, err)
	_, err = q.Heartbeat(t.Context(), "m", time.Hour)
	require.NoError(t, err)

	cluster.WaitMaster(slot, cluster.KillMaster(slot))
	begun := time.Now()
	require.Eventually(t, func() bool {
		members, err := q.Heartbeat(t.Context(), "m", time.Hour)
		require.True(t, err == nil || errors.Is(err, driver.ErrUnavailable), "%v", err)
		return err == nil && len(members) == 1
	}, 30*time.Second, 20*time.Millisecond, "the client looks by itself only once a minute")
	t.Log("found after", time.Since(begun))
}
