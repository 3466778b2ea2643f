package timingwheel

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A callback that blocks holds a goroutine. Its stack is no larger than with time.AfterFunc, where the
// runtime's smallest stack is enough. The test runs in a process of its own, in which the runtime does
// not begin with larger stacks after a collection.
func TestBlockedCallbackHoldsNoMoreStackThanAnAfterFunc(t *testing.T) {
	const fixed = "GODEBUG=adaptivestackstart=0"
	if underRace {
		t.Skip("the race detector's frames are larger")
	}
	if underInvariants {
		t.Skip("workers verify the shard, which takes more stack")
	}
	if os.Getenv("GODEBUG") != strings.TrimPrefix(fixed, "GODEBUG=") {
		child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		child.Env = append(os.Environ(), fixed)
		out, err := child.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	tw := startWheel(t, Options{})
	std := stackOfBlocked(func(d time.Duration, f func()) { time.AfterFunc(d, f) })
	wheel := stackOfBlocked(func(d time.Duration, f func()) { tw.AfterFunc(d, f) })
	require.Positive(t, std)
	require.LessOrEqual(t, wheel, std*5/4, "bytes; %d with package time", std)
}

// stackOfBlocked returns the bytes of stack for each of many callbacks that block.
func stackOfBlocked(afterFunc func(d time.Duration, f func())) uint64 {
	const n = 5000
	var begun, ended sync.WaitGroup
	begun.Add(n)
	ended.Add(n)
	release := make(chan struct{})
	inUse := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.StackInuse
	}
	runtime.GC()
	base := inUse()
	for range n {
		afterFunc(ms, func() {
			begun.Done()
			<-release
			ended.Done()
		})
	}
	begun.Wait()
	held := max(inUse(), base) - base
	close(release)
	ended.Wait()
	return held / n
}
