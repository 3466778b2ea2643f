package benchmarks

import (
	"testing"

	"github.com/timingwheel-go/timingwheel/benchmarks/internal/workload"
)

// BenchmarkFloor is the least cost of arming and stopping a timer. The rest of the time of ArmStop
// is the cost of the wheel itself.
func BenchmarkFloor(b *testing.B) { workload.Floor(b) }

// BenchmarkFloorPostpone is the least cost of rescheduling a random timer.
func BenchmarkFloorPostpone(b *testing.B) { eachSize(b, workload.FloorPostpone) }

// BenchmarkFloorChurn is the least cost of stopping a random timer and adding another.
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
