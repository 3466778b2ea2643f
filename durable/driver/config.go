package driver

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"
)

// Config describes a queue to a store.
type Config struct {
	Queue      string // 1 to 128 letters, digits, '.', '_' or '-'
	Partitions int    // 0 to MaxPartitions; for 0 see Store.Open

	// Existing makes Open return [ErrNoQueue] if the queue does not exist, instead of creating it.
	Existing bool

	// Limits, which the store keeps with the queue. 0 means the limit of the existing queue, or the
	// default of a new one. Each partition keeps its dead letters within their limits, except that
	// the newest is kept regardless of its size. The oldest are dropped first.
	MaxBody     int           // size of a body in bytes; stores do not check it
	MaxAttempts int           // failed deliveries of a message; stores do not use it
	DeadLimit   int           // number of dead letters
	DeadBytes   int64         // size of their bodies in bytes
	DeadAge     time.Duration // time since their deaths

	// Update makes Open change the limits of an existing queue to those that are not 0, instead of
	// returning [ErrOptions] if they differ.
	Update bool

	RetryFor time.Duration // limits a call to another process of the machine; 0: the store decides
}

// limits describes the limits of a Config, in the order of Limits.
var limits = [...]struct {
	name           string
	standard, most int64
	format         func(int64) any
}{
	{"MaxBody", 1 << 20, 64 << 20, number},
	{"MaxAttempts", 25, math.MaxInt32, number},
	{"DeadLimit", 100_000, math.MaxInt32, number},
	{"DeadBytes", 64 << 20, math.MaxInt64, number},
	{"DeadAge", int64(30 * 24 * time.Hour), math.MaxInt64, func(n int64) any { return time.Duration(n) }},
}

func number(n int64) any { return n }

// Check returns [ErrInvalid] for a value that is out of range. Stores call it in Open.
func (c Config) Check() error {
	switch {
	case !queueName.MatchString(c.Queue):
		return fmt.Errorf("%w queue name %.140q; it must be 1 to 128 letters, digits, '.', '_' and '-'",
			ErrInvalid, c.Queue)
	case c.Partitions < 0 || c.Partitions > MaxPartitions:
		return fmt.Errorf("%w Partitions %d; it must be from 1 to %d, or 0 for the number of the existing queue",
			ErrInvalid, c.Partitions, MaxPartitions)
	}
	for i, n := range c.Limits() {
		if l := limits[i]; n < 0 || n > l.most {
			return fmt.Errorf("%w %s %v; it must be from %v to %v, or 0 for that of the queue, by default %v",
				ErrInvalid, l.name, l.format(n), l.format(1), l.format(l.most), l.format(l.standard))
		}
	}
	return nil
}

// Limits returns MaxBody, MaxAttempts, DeadLimit, DeadBytes and DeadAge in nanoseconds, as stores
// keep them.
func (c Config) Limits() []int64 {
	return []int64{int64(c.MaxBody), int64(c.MaxAttempts), int64(c.DeadLimit), c.DeadBytes, int64(c.DeadAge)}
}

// New returns the Config of a new queue: it has defaults instead of zeros.
func (c Config) New() Config {
	standard := make([]int64, len(limits))
	for i, l := range limits {
		standard[i] = l.standard
	}
	c.Update = true
	c, _ = c.Join(cmp.Or(c.Partitions, defaultPartitions), standard)
	return c
}

// Join returns the Config of an existing queue, for calls to it, from the number of its partitions
// and its Limits. It returns [ErrPartitions] or [ErrOptions] if c has others, and [ErrVersion] for
// values that are out of range. If c.Update is set, the store must then keep the Limits of the
// result.
func (c Config) Join(partitions int, stored []int64) (Config, error) {
	switch {
	case partitions < 1 || partitions > MaxPartitions:
		return c, fmt.Errorf("%w: the queue has %d partitions; there must be 1 to %d", ErrVersion, partitions, MaxPartitions)
	case c.Partitions != 0 && c.Partitions != partitions:
		return c, fmt.Errorf("%w: Partitions %d; the queue has %d", ErrPartitions, c.Partitions, partitions)
	}
	var others []string
	all := c.Limits()
	for i, l := range limits {
		if stored[i] < 1 || stored[i] > l.most {
			return c, fmt.Errorf("%w: %s of the queue is %d; it must be from 1 to %d", ErrVersion, l.name, stored[i], l.most)
		}
		if all[i] != 0 && all[i] != stored[i] {
			others = append(others, fmt.Sprintf("%s %v; the queue has %v", l.name, l.format(all[i]), l.format(stored[i])))
		}
		all[i] = cmp.Or(all[i], stored[i])
	}
	if len(others) > 0 && !c.Update {
		return c, fmt.Errorf("%w: %s (Options.Update changes them)", ErrOptions, strings.Join(others, ", "))
	}
	c.MaxBody, c.MaxAttempts, c.DeadLimit = int(all[0]), int(all[1]), int(all[2])
	c.DeadBytes, c.DeadAge = all[3], time.Duration(all[4])
	c.Partitions, c.Existing, c.Update = partitions, true, false
	return c, nil
}

// defaultPartitions is the number of partitions of a new queue if Config.Partitions is 0.
const defaultPartitions = 8

// MaxPartitions is the maximum number of partitions of a queue.
const MaxPartitions = 1024

var queueName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)
