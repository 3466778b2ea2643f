package proctest

import (
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPortIsReservedWhileTheServerIsDown(t *testing.T) {
	t.Parallel()
	p, err := ReservePort()
	require.NoError(t, err)
	_, err = net.Listen("tcp", Loopback(p.Number+guardAhead))
	require.Error(t, err, "the guard is held")
	assert.True(t, IsFree(p.Number))
	p.Release()
	assert.True(t, IsFree(p.Number+guardAhead))
}
