package prommetric

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
)

// upper returns the upper bound of a native bucket in seconds.
func upper(index int) float64 { return math.Exp2(float64(index) / (1 << schema)) }

// No two buckets of a Histogram map to the same native bucket, and the native bounds are slightly
// higher.
func TestNativeBucketsMapOneToOne(t *testing.T) {
	t.Parallel()
	var h timingwheel.Histogram
	last := len(h.Counts) - 1
	for i := 1; i < last; i++ {
		shift := upper(nativeIndex(&h, i)) / h.Bound(i).Seconds()
		assert.GreaterOrEqual(t, shift, 1.04, "bucket %d", i)
		assert.LessOrEqual(t, shift, 1.11, "bucket %d", i)
		if i > 1 {
			require.Equal(t, nativeIndex(&h, i-1)+1, nativeIndex(&h, i))
			lower := upper(nativeIndex(&h, i) - 1)
			assert.GreaterOrEqual(t, lower, h.Bound(i-1).Seconds(), "a timer is reported as less late than it was")
		}
	}
	require.Equal(t, nativeIndex(&h, last-1)+1, nativeIndex(&h, last))
}
