package local

import (
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// DeadLimits bound the dead letters of a partition.
type DeadLimits struct {
	count, bytes int64
	age          time.Duration
}

// NewDeadLimits returns the limits of a queue.
func NewDeadLimits(c *driver.Config) DeadLimits {
	return DeadLimits{int64(c.DeadLimit), c.DeadBytes, c.DeadAge}
}

// Exceeded reports whether the oldest of n dead letters is to be dropped, of which the bodies have
// so many bytes. It died at oldest; 0 says that the time is not known. The last letter stays
// however large it is.
func (l DeadLimits) Exceeded(n, bytes int64, oldest, now driver.Instant) bool {
	return n > l.count || bytes > l.bytes && n > 1 || oldest != 0 && oldest.Add(l.age) <= now
}
