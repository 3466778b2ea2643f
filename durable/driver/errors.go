package driver

import "errors"

// Errors that callers compare with errors.Is. Most returned errors wrap one of these and name the
// rejected value or the failed operation.
var (
	ErrNotFound   = errors.New("no such message")
	ErrNoQueue    = errors.New("no such queue")
	ErrClosed     = errors.New("closed")
	ErrInvalid    = errors.New("invalid") // an argument or an option
	ErrPartitions = errors.New("the queue exists with another number of partitions")
	ErrOptions    = errors.New("the queue exists with other limits")
	ErrVersion    = errors.New("not a queue of this version") // another version, or not a queue
	ErrLocked     = errors.New("another process has the store open")

	// ErrFull means that this copy of the call has stored nothing. Queued messages can still be
	// claimed and acknowledged.
	ErrFull = errors.New("the store is out of memory or space")

	// ErrUnsafe means that the store may lose messages, or may have lost some. The error says why.
	ErrUnsafe = errors.New("messages may be lost")

	// ErrBroken means that no call will succeed before the store is closed and reopened, or its
	// data is restored.
	ErrBroken = errors.New("the store is broken")

	// ErrUnavailable means that a later call may succeed. The failed call may have taken effect.
	ErrUnavailable = errors.New("the store cannot be reached")
)
