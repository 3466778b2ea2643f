package durable

import (
	"errors"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Errors that callers tell apart with errors.Is. Errors that methods return wrap one of these and
// name the value that was refused or the operation that failed.
var (
	// ErrDuplicate means that a message with this id is queued, or is a dead letter.
	ErrDuplicate = errors.New("a message with this id is queued already")

	// ErrNotFound means that there is no such message.
	ErrNotFound = driver.ErrNotFound

	// ErrNoQueue means that there is no such queue in the store. See Options.Existing.
	ErrNoQueue = driver.ErrNoQueue

	// ErrFiring means that the message has begun and cannot be replaced.
	ErrFiring = errors.New("the message is being delivered")

	// ErrLeaseLost means that the delivery is over: its lease has ended, so that the message is
	// delivered again, or it was settled before.
	ErrLeaseLost = errors.New("the lease of the message has ended, or its delivery was settled before")

	// ErrBusy means that too many calls wait for the store. Nothing was sent. See
	// Options.MaxWaiting.
	ErrBusy = errors.New("too many calls wait for the store")

	// ErrClosed means that the queue, the receiver or the store is closed.
	ErrClosed = driver.ErrClosed

	// ErrInvalid means that an argument or an option is not accepted. Nothing was done.
	ErrInvalid = driver.ErrInvalid

	// ErrPartitions means that the queue exists with another number of partitions. See
	// Options.Partitions.
	ErrPartitions = driver.ErrPartitions

	// ErrVersion means that the data has a format that this version of the program does not read,
	// newer or older, is damaged, or is no queue, or that the server is too old.
	ErrVersion = driver.ErrVersion

	// ErrLocked means that another process has the file.
	ErrLocked = driver.ErrLocked

	// ErrFull means that the store has no room. Nothing was stored, unless the error is
	// ErrUnavailable as well. Messages are still delivered and settled.
	ErrFull = driver.ErrFull

	// ErrUnsafe means that the store is set up so that it may lose messages.
	ErrUnsafe = driver.ErrUnsafe

	// ErrBroken means that the store has failed for good: close it and open it again, or restore
	// its data.
	ErrBroken = driver.ErrBroken

	// ErrUnavailable means that the store could not be reached for now. The call may have taken
	// place.
	ErrUnavailable = driver.ErrUnavailable
)
