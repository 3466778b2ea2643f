package benchmarks

import (
	"testing"

	"github.com/timingwheel-go/timingwheel/benchmarks/workload"
)

// BenchmarkFloor is what no timer can do without. The ratio of ArmStop to it says how much of its time is
// our own.
func BenchmarkFloor(b *testing.B) { workload.Floor(b) }
