// Package contract has rules and limits that package durable, its stores and its tools share. Other
// stores follow package driver.
package contract

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Grouper is implemented by a [driver.Backend] that combines concurrent calls into one commit
// itself. The queue then makes a separate call for each waiting caller, because half of the callers
// would miss each commit if the queue combined calls as well. The queue does not repeat these
// calls: after an error that wraps [driver.ErrUnavailable], a call may have taken effect.
//
// If the context of a call ends before the commit with the call has begun, the call has no effect
// and leaves nothing in memory. If it ends later, the error is an [*UnderWayError].
type Grouper interface{ GroupsCalls() }

// UnderWayError is the error of a call to a [Grouper] whose context ended while its commit was in
// progress. The call may take effect. The queue counts it as waiting (Options.MaxWaiting) until
// Done is closed.
type UnderWayError struct {
	Cause error           // the cause of the context
	Done  <-chan struct{} // closed when the call is over and its memory is free
}

// Error implements error.
func (e *UnderWayError) Error() string { return e.Cause.Error() }

// Unwrap returns the Cause.
func (e *UnderWayError) Unwrap() error { return e.Cause }

// limits describes the limits of a Config, in the order of Limits.
var limits = [...]struct {
	name           string
	standard, most int64
	format         func(int64) any
}{
	{"MaxBody", 1 << 20, 64 << 20, plain},
	{"MaxAttempts", 25, math.MaxInt32, plain},
	{"DeadLimit", 100_000, math.MaxInt32, plain},
	{"DeadBytes", 64 << 20, math.MaxInt64, plain},
	{"DeadAge", int64(30 * 24 * time.Hour), math.MaxInt64, func(n int64) any { return time.Duration(n) }},
}

func plain(n int64) any { return n }

// CheckConfig returns [driver.ErrInvalid] for a value that is out of range. Stores call it in Open.
func CheckConfig(c driver.Config) error {
	switch {
	case !queueName.MatchString(c.Queue):
		return fmt.Errorf("%w queue name %.140q; it must be 1 to 128 letters, digits, '.', '_' and '-'",
			driver.ErrInvalid, c.Queue)
	case c.Partitions < 0 || c.Partitions > MaxPartitions:
		return fmt.Errorf("%w Partitions %d; it must be from 1 to %d, or 0 for the number of the existing queue",
			driver.ErrInvalid, c.Partitions, MaxPartitions)
	}
	for i, n := range Limits(c) {
		if l := limits[i]; n < 0 || n > l.most {
			return fmt.Errorf("%w %s %v; it must be from %v to %v, or 0 for the queue's value, by default %v",
				driver.ErrInvalid, l.name, l.format(n), l.format(1), l.format(l.most), l.format(l.standard))
		}
	}
	return nil
}

// Limits returns MaxBody, MaxAttempts, DeadLimit, DeadBytes and DeadAge in nanoseconds, as stores
// keep them.
func Limits(c driver.Config) []int64 {
	return []int64{int64(c.MaxBody), int64(c.MaxAttempts), int64(c.DeadLimit), c.DeadBytes, int64(c.DeadAge)}
}

// NewConfig returns the Config of a new queue: it has defaults instead of zeros.
func NewConfig(c driver.Config) driver.Config {
	standard := make([]int64, len(limits))
	for i, l := range limits {
		standard[i] = l.standard
	}
	c.Update = true
	c, _ = JoinConfig(c, cmp.Or(c.Partitions, defaultPartitions), standard)
	return c
}

// JoinConfig returns the Config of an existing queue, for calls to it, from the number of its
// partitions and its Limits. It returns [driver.ErrPartitions] or [driver.ErrOptions] if c has
// others, and [driver.ErrVersion] for values that are out of range. If c.Update is set, the store
// must then keep the Limits of the result.
func JoinConfig(c driver.Config, partitions int, stored []int64) (driver.Config, error) {
	switch {
	case partitions < 1 || partitions > MaxPartitions:
		return c, fmt.Errorf("%w: the queue has %d partitions; there must be 1 to %d", driver.ErrVersion, partitions, MaxPartitions)
	case c.Partitions != 0 && c.Partitions != partitions:
		return c, fmt.Errorf("%w: Partitions %d; the queue has %d", driver.ErrPartitions, c.Partitions, partitions)
	}
	var others []string
	all := Limits(c)
	for i, l := range limits {
		if stored[i] < 1 || stored[i] > l.most {
			return c, fmt.Errorf("%w: %s of the queue is %d; it must be from 1 to %d", driver.ErrVersion, l.name, stored[i], l.most)
		}
		if all[i] != 0 && all[i] != stored[i] {
			others = append(others, fmt.Sprintf("%s %v; the queue has %v", l.name, l.format(all[i]), l.format(stored[i])))
		}
		all[i] = cmp.Or(all[i], stored[i])
	}
	if len(others) > 0 && !c.Update {
		return c, fmt.Errorf("%w: %s (Options.Update changes them)", driver.ErrOptions, strings.Join(others, ", "))
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

// ClaimConsumers is the number of consumers of a partition whose last claim a store remembers. A
// partition has one owner, and briefly two when it moves to another consumer. Claims of consumers
// that do not own the partition have no Begin, and no name unless an earlier claim of the consumer
// was not answered.
const ClaimConsumers = 16

// PageBytes is the size of bodies, in bytes, at which a page of [driver.Backend].List ends. It
// limits the memory of a page of large messages.
const PageBytes = 4 << 20

// PartitionOf returns the partition of a message in a queue with the given number of partitions. It
// depends only on the id.
func PartitionOf(id string, partitions int) int {
	return int(xxhash.Sum64String(id) % uint64(partitions))
}

// MaxAhead is the maximum time that [driver.Call.NotAfter] may be ahead of the store's clock. It
// limits what a store must remember if a caller's clock is wrong.
const MaxAhead = 2 * time.Hour

// KindHeader is the header with the kind of a message, which package typed writes and Mux reads.
const KindHeader = "kind"

// Limits of messages, which package durable checks.
const (
	MaxID          = 255     // size of an id, in bytes
	MaxHeaders     = 64      // number of headers
	MaxHeaderBytes = 8 << 10 // size of their keys and values, in bytes
)

// MaxReason is the maximum size of a reason in a record, in bytes.
const MaxReason = 512

// CutReason truncates a reason to [MaxReason] bytes, between two characters.
func CutReason(reason string) string {
	if len(reason) <= MaxReason {
		return reason
	}
	n := MaxReason
	for n > MaxReason-utf8.UTFMax && !utf8.RuneStart(reason[n]) {
		n--
	}
	return reason[:n]
}

// CheckOp returns an error that wraps [driver.ErrInvalid] for an undeclared transition, which a
// process of a newer version may request.
func CheckOp(o driver.Op) error {
	if o < driver.OpBegin || o > driver.OpRepeat {
		return fmt.Errorf("%w transition %v; it must be from %v to %v in this version",
			driver.ErrInvalid, o, driver.OpBegin, driver.OpRepeat)
	}
	return nil
}

// FormatCursor returns the List cursor for the page after the message with a time and an id.
func FormatCursor(at driver.Instant, id string) string {
	return strconv.FormatInt(int64(at), 10) + ":" + id
}

// ParseCursor returns the time and the id of the message after which a page of List begins. They
// are zero for the empty cursor of the first page. A cursor that List has not returned returns
// [driver.ErrInvalid].
func ParseCursor(cursor string) (at driver.Instant, id string, err error) {
	if cursor == "" {
		return 0, "", nil
	}
	number, id, found := strings.Cut(cursor, ":")
	n, err := strconv.ParseInt(number, 10, 64)
	if !found || err != nil || n < 0 || n > int64(driver.Never) || id == "" {
		return 0, "", fmt.Errorf("%w cursor %.60q; it must be empty or returned by List",
			driver.ErrInvalid, cursor)
	}
	return driver.Instant(n), id, nil
}

// CrashDelay returns the time from a crash until the message is due again. After the first crash,
// which is mostly a restart of the process, it is 0, and the due time does not change. Then it is
// one second, and doubles with each further crash up to a minute.
//
// A message with a CrashDelay is a suspect: see [driver.Backend].
func CrashDelay(crashes int) time.Duration {
	if crashes < 2 {
		return 0
	}
	return min(time.Minute, time.Second<<min(crashes-2, 6))
}

// Process describes this process: "pid 7 on host h". A store keeps the description with each
// message that begins, as a part of its reason after a crash.
func Process() string { return process() }

var process = sync.OnceValue(func() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("pid %d on host %s", os.Getpid(), strings.ToValidUTF8(host, ""))
})
