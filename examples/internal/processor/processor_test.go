package processor_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/timingwheel-go/timingwheel/examples/internal/processor"
)

func TestTimeGrowsWithWork(t *testing.T) {
	t.Parallel()
	before := processor.Time()
	if before == 0 {
		t.Skip("this system has no getrusage")
	}
	assert.Eventually(t, func() bool { return processor.Time() > before }, time.Minute, time.Nanosecond)
}
