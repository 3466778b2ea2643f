package benchmarks

import (
	"testing"

	"github.com/timingwheel-go/timingwheel/benchmarks/workload"
)

// BenchmarkFloor is what no timer can do without. The ratio of ArmStop to it says how much of its time is
// our own.
func BenchmarkFloor(b *testing.B) { workload.Floor(b) }

// BenchmarkFloorPostpone and BenchmarkFloorChurn are what no wheel can do without for a random one of so many timers.
func BenchmarkFloorPostpone(b *testing.B) { eachSize(b, workload.FloorPostpone) }

func BenchmarkFloorChurn(b *testing.B) { eachSize(b, workload.FloorChurn) }

func eachSize(b *testing.B, run func(b *testing.B, n int)) {
	b.Helper()
	for _, size := range []struct {
		name string
		n    int
	}{{"1k", 1000}, {"1M", 1_000_000}} {
		b.Run("pending="+size.name, func(b *testing.B) { run(b, size.n) })
	}
}
