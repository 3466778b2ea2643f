package durable

import (
	"errors"
	"fmt"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Errors that callers compare with errors.Is. Methods return errors that wrap one of these and name
// the rejected value or the failed operation.
var (
	// ErrDuplicate means that a queued or dead message has this id.
	ErrDuplicate = errors.New("a message with this id already exists")

	// ErrDead is the [ErrDuplicate] of a dead letter, which is not delivered: see [Queue.Replay]
	// and Message.Replace.
	ErrDead = fmt.Errorf("%w as a dead letter, which Replay delivers and Replace replaces", ErrDuplicate)

	// ErrNotFound means that the message does not exist.
	ErrNotFound = driver.ErrNotFound

	// ErrNoQueue means that the queue does not exist in the store. See Options.Existing.
	ErrNoQueue = driver.ErrNoQueue

	// ErrFiring means that the delivery of the message has begun, so it cannot be replaced.
	ErrFiring = errors.New("the message is already being delivered")

	// ErrLeaseLost means that the delivery is over. Either its lease has expired and the message is
	// redelivered, or the delivery was already settled.
	ErrLeaseLost = errors.New("the lease has expired, or the delivery was already settled")

	// ErrBusy means that too many calls are waiting for the store. The call was not sent. See
	// Options.MaxWaiting.
	ErrBusy = errors.New("too many calls are waiting for the store")

	// ErrClosed means that the queue, the receiver or the store is closed.
	ErrClosed = driver.ErrClosed

	// ErrInvalid means that an argument or an option is out of range. The call changed nothing.
	ErrInvalid = driver.ErrInvalid

	// ErrPartitions means that the queue exists with a different number of partitions. See
	// Options.Partitions.
	ErrPartitions = driver.ErrPartitions

	// ErrVersion means that this version of the program cannot read the data: it is in a newer or
	// older format, is damaged or is not a queue. Stores also return ErrVersion if the server is
	// too old.
	ErrVersion = driver.ErrVersion

	// ErrLocked means that another process has the store open.
	ErrLocked = driver.ErrLocked

	// ErrFull means that the store has no room. Nothing was stored, unless the error also wraps
	// ErrUnavailable. Messages are still delivered and settled.
	ErrFull = driver.ErrFull

	// ErrUnsafe means that the store's configuration can lose messages.
	ErrUnsafe = driver.ErrUnsafe

	// ErrBroken means that the store has failed permanently. Close it and open it again, or restore
	// its data.
	ErrBroken = driver.ErrBroken

	// ErrUnavailable means that the store is unreachable. A later call may succeed. The failed call
	// may have taken effect.
	ErrUnavailable = driver.ErrUnavailable
)
