package latency_test

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/timingwheel-go/timingwheel/examples/internal/latency"
)

func TestPercentilesOfConcurrentRecords(t *testing.T) {
	t.Parallel()
	r := latency.New()
	assert.Zero(t, r.Count())
	assert.Zero(t, r.At(100))
	var recording sync.WaitGroup
	for i := range 10 {
		recording.Go(func() {
			for j := range 100 {
				r.Record(time.Duration(100*i+j+1) * time.Millisecond)
			}
		})
	}
	recording.Wait()
	assert.Equal(t, 1000, r.Count())
	assert.InEpsilon(t, 500*time.Millisecond, r.At(50), 0.01)
	assert.InEpsilon(t, 990*time.Millisecond, r.At(99), 0.01)
	assert.InEpsilon(t, time.Second, r.At(100), 0.01)
}

func TestRecordOutsideTheRangeCountsAsItsEnd(t *testing.T) {
	t.Parallel()
	r := latency.New()
	r.Record(-time.Second)
	assert.Zero(t, r.At(100))
	r.Record(math.MaxInt64)
	assert.InEpsilon(t, time.Hour, r.At(100), 0.01)
	assert.Equal(t, 2, r.Count())
}
