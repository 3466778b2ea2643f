package process

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCPUTimeGrows(t *testing.T) {
	t.Parallel()
	begin, known := CPUTime()
	if !known {
		t.Skip("this system does not report the CPU time of a process")
	}
	require.Eventually(t, func() bool {
		for range 1_000_000 {
		}
		now, _ := CPUTime()
		return now > begin
	}, 10*time.Second, time.Millisecond)
}
