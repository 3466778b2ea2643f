// Package contract has the parts of the contract between a queue and its stores (package driver)
// that only the stores of this project use.
package contract

import (
	"fmt"
	"os"
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
