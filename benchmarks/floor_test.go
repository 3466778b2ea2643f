package benchmarks

import (
	"testing"

	"github.com/timingwheel-go/timingwheel/benchmarks/workload"
)

// BenchmarkFloor is what no timer can do without. The ratio of ArmStop to it says how much of its time is
// our own.
func BenchmarkFloor(b *testing.B) { workload.Floor(b) }

// BenchmarkFloorPostpone is what no Reset of a random one of so many timers can do without.
func BenchmarkFloorPostpone(b *testing.B) {
	for _, size := range []struct {
		name string
		n    int
	}{{"1k", 1000}, {"1M", 1_000_000}} {
		b.Run("pending="+size.name, func(b *testing.B) { workload.FloorPostpone(b, size.n) })
	}
}
