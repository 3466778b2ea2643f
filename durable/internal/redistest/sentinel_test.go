package redistest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/internal/redistest/proctest"
)

func TestSentinelsPromoteTheReplicaAfterAKill(t *testing.T) {
	t.Parallel()
	s := StartSentinel(t, SentinelOptions{})
	c := s.Client(t)
	first := s.Master()
	assert.Same(t, s.Servers()[0], first)
	require.NoError(t, c.Set(t.Context(), "k", "v", 0).Err())
	require.NoError(t, c.Wait(t.Context(), 1, startTimeout).Err())

	assert.Same(t, first, s.KillMaster())
	second := s.WaitFailover(first)
	assert.Same(t, s.Servers()[1], second)
	var value string
	require.NoError(t, proctest.Eventually(startTimeout, func() (err error) {
		value, err = c.Get(t.Context(), "k").Result()
		return err
	}), "the client follows")
	assert.Equal(t, "v", value)

	first.Restart()
	s.WaitReplica()
	require.Error(t, replicates(t.Context(), first, asMaster), "the old master is a replica now")
	assert.Same(t, second, s.Master())
}

func TestSentinelsWaitForAPausedMaster(t *testing.T) {
	t.Parallel()
	s := StartSentinel(t, SentinelOptions{})
	first := s.Master()
	first.Pause()
	time.Sleep(3 * time.Second)
	first.Continue()
	require.NoError(t, s.Client(t).Set(t.Context(), "k", "v", 0).Err())
	assert.Same(t, first, s.Master())
}
