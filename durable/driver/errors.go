package driver

import "errors"

// Errors that callers tell apart with errors.Is. What is returned mostly wraps one of these and names the value that was refused
// or the operation that failed.
var (
	ErrNotFound    = errors.New("no such message")
	ErrClosed      = errors.New("closed")
	ErrInvalid     = errors.New("invalid")                                            // an argument or an option
	ErrPartitions  = errors.New("the queue exists with another number of partitions") // see Options.Partitions
	ErrVersion     = errors.New("not a queue of this version")                        // written by a newer version, or no queue at all
	ErrLocked      = errors.New("another process has the file open")
	ErrFull        = errors.New("the store is out of memory or space") // this copy of the call has stored nothing; what is queued may be taken and acknowledged
	ErrUnsafe      = errors.New("the store may lose messages as it is set up")
	ErrBroken      = errors.New("the store is broken")         // for good: it must be closed and opened again, or its data restored
	ErrUnavailable = errors.New("the store cannot be reached") // for now; what was asked for may have taken place
)
