package driver

import (
	"fmt"
	"regexp"
	"time"
)

// Config describes a queue to a store.
type Config struct {
	Queue      string // 1 to 128 letters, digits, '.', '_' or '-'
	Partitions int    // 0 to MaxPartitions; for 0 see Store.Open

	// Existing makes Open return [ErrNoQueue] if the queue does not exist, instead of creating it.
	Existing bool

	// Limits of the dead letters of each partition. The oldest are dropped first, and the newest is
	// kept regardless of its size. All are positive.
	DeadLimit int           // number of dead letters
	DeadBytes int64         // size of their bodies in bytes
	DeadAge   time.Duration // time since their deaths

	RetryFor time.Duration // limits a call to another process of the machine; 0: the store decides
}

// Check returns [ErrInvalid] for a value that is out of range. Stores call it in Open.
func (c Config) Check() error {
	switch {
	case !queueName.MatchString(c.Queue):
		return fmt.Errorf("%w queue name %.140q; it must be 1 to 128 letters, digits, '.', '_' and '-'",
			ErrInvalid, c.Queue)
	case c.Partitions < 0 || c.Partitions > MaxPartitions:
		return fmt.Errorf("%w number of partitions %d; it must be from 1 to %d, or 0 for the number of the existing queue",
			ErrInvalid, c.Partitions, MaxPartitions)
	case c.DeadLimit <= 0:
		return fmt.Errorf("%w DeadLimit %d; it must be at least 1", ErrInvalid, c.DeadLimit)
	case c.DeadBytes <= 0:
		return fmt.Errorf("%w DeadBytes %d; it must be at least 1", ErrInvalid, c.DeadBytes)
	case c.DeadAge <= 0:
		return fmt.Errorf("%w DeadAge %v; it must be positive", ErrInvalid, c.DeadAge)
	}
	return nil
}

// DefaultPartitions is the number of partitions of a new queue if Config.Partitions is 0.
const DefaultPartitions = 8

// MaxPartitions is the maximum number of partitions of a queue.
const MaxPartitions = 1024

var queueName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)
