package local

import (
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// DeadLimits are the limits of the dead letters of a partition.
type DeadLimits struct {
	count, bytes int64
	age          time.Duration
}

// NewDeadLimits returns the limits of a queue.
func NewDeadLimits(c *driver.Config) DeadLimits {
	return DeadLimits{int64(c.DeadLimit), c.DeadBytes, c.DeadAge}
}

// Exceeded reports whether the oldest of n dead letters must be dropped. Their bodies have the
// given total size. The oldest one died at oldest, or at an unknown time if oldest is 0. The size
// limit never drops the last dead letter.
func (l DeadLimits) Exceeded(n, bytes int64, oldest, now driver.Instant) bool {
	return n > l.count || bytes > l.bytes && n > 1 || oldest != 0 && oldest.Add(l.age) <= now
}
