package driver

import "errors"

// Errors that callers tell apart with errors.Is. Most returned errors wrap one of these and name
// the value that was refused or the operation that failed.
var (
	ErrNotFound   = errors.New("no such message")
	ErrNoQueue    = errors.New("no such queue")
	ErrClosed     = errors.New("closed")
	ErrInvalid    = errors.New("invalid") // an argument or an option
	ErrPartitions = errors.New("the queue exists with another number of partitions")
	ErrVersion    = errors.New("not a queue of this version") // but of another one, or no queue
	ErrLocked     = errors.New("another process has the file open")

	// ErrFull means that this copy of the call has stored nothing. Queued messages can be claimed
	// and acknowledged.
	ErrFull = errors.New("the store is out of memory or space")

	ErrUnsafe = errors.New("the store may lose messages as it is set up")

	// ErrBroken means that no call will succeed before the store is closed and opened again, or its
	// data restored.
	ErrBroken = errors.New("the store is broken")

	// ErrUnavailable means that a later call may succeed. The failed call may have taken place.
	ErrUnavailable = errors.New("the store cannot be reached")
)
