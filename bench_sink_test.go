package timingwheel

import "sync/atomic"

var sink atomic.Int64
