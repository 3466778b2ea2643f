package durable

import (
	"errors"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Errors that callers tell apart with errors.Is. What is returned mostly wraps one of these and names the value that was refused
// or the operation that failed.
var (
	ErrDuplicate   = errors.New("a message with this id is queued already")
	ErrNotFound    = driver.ErrNotFound
	ErrFiring      = errors.New("the message is being delivered")
	ErrLeaseLost   = errors.New("the lease of the message has ended, it belongs to somebody else")
	ErrBusy        = errors.New("too many calls wait for the store") // nothing was sent: see Options.MaxWaiting
	ErrClosed      = driver.ErrClosed
	ErrInvalid     = driver.ErrInvalid    // an argument or an option
	ErrPartitions  = driver.ErrPartitions // see Options.Partitions
	ErrVersion     = driver.ErrVersion    // written by a newer version, or no queue at all
	ErrLocked      = driver.ErrLocked
	ErrFull        = driver.ErrFull // nothing was stored, unless the error is ErrUnavailable too; deliveries go on
	ErrUnsafe      = driver.ErrUnsafe
	ErrBroken      = driver.ErrBroken      // for good: close the store and open it again, or restore its data
	ErrUnavailable = driver.ErrUnavailable // for now; what was asked for may have taken place
)
