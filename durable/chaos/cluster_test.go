//go:build unix

package chaos

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
)

// The client finds the new master because its options make it reload the slot map soon or, with
// TIMINGWHEEL_CHAOS=full, because the store reloads the map.
func TestDeliveryResumesAfterClusterFailover(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	c := redistest.StartCluster(t, redistest.ClusterOptions{NodeTimeout: time.Second})
	r := newRun(t, target{Cluster: c.ClusterOptions().Addrs, Reload: scaled(time.Second, 0)})
	var out *outage
	slot := r.slot(c, 1)
	r.underLoad(scaled(4*time.Second, 20*time.Second), 0, func() {
		time.Sleep(time.Second)
		var old *redistest.Server
		out = newOutage(time.Second, func() { old = c.KillMaster(slot) })
		c.WaitMaster(slot, old)
	})
	r.check(Options{Crashes: true}, out.edit)
	out.resumed(t)
}

// slot returns the slot of a partition of the queue.
func (r *run) slot(c *redistest.Cluster, partition int) int {
	r.t.Helper()
	tag := "tw:{chaos:" + string(rune('0'+partition)) + "}:d"
	slot, err := c.Client(r.t).ClusterKeySlot(r.t.Context(), tag).Result()
	require.NoError(r.t, err)
	return int(slot)
}

// The slots of all partitions move between nodes during use. Nothing is lost.
func TestMovingSlotsLosesNothing(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	c := redistest.StartCluster(t, redistest.ClusterOptions{})
	r := newRun(t, target{Cluster: c.ClusterOptions().Addrs})
	messages := r.underLoad(scaled(2*time.Second, 20*time.Second), 8, func() {
		time.Sleep(500 * time.Millisecond)
		for i := range scaled(2, 20) * partitions {
			slot := r.slot(c, i%partitions)
			to := c.Nodes()[(i+i/partitions)%3]
			c.MigrateSlot(slot, to, redistest.MigrateOptions{Batch: 1, Halfway: func() { time.Sleep(10 * time.Millisecond) }})
		}
	})
	r.checkAll(messages, Options{Crashes: true})
}
