// Package driver is the contract between a durable queue and the stores that keep its messages.
// Programs that use a queue need only package durable and a store.
//
// A store implements [Store] and [Backend]. Package durable calls them, and checks all arguments
// first. Package storetest has the tests that each store passes.
package driver

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
)

// Store keeps queues: in memory ([memstore]), in a file ([boltstore]) or on Redis ([redisstore]).
// One of these packages makes the store, and the caller gives it to Open of package durable. A
// store may hold several queues.
//
// [memstore]: https://pkg.go.dev/github.com/timingwheel-go/timingwheel/durable/memstore
// [boltstore]: https://pkg.go.dev/github.com/timingwheel-go/timingwheel/durable/boltstore
// [redisstore]: https://pkg.go.dev/github.com/timingwheel-go/timingwheel/durable/redisstore
type Store interface {
	// Open makes a queue, or joins one that exists. If Config.Partitions is 0, Open accepts any
	// number of partitions, and makes a new queue with [DefaultPartitions]. An existing queue with
	// another number is [ErrPartitions]. A queue of another format is [ErrVersion].
	Open(ctx context.Context, config Config) (Backend, error)

	// Close releases the resources that the store has opened itself. Later calls of its backends
	// fail with [ErrClosed].
	Close() error
}

// Backend is one queue in a store: a small set of transitions of up to [MaxBatch] messages of one
// partition. Each transition takes place as a whole or not at all. The methods may be called from
// several goroutines.
//
// A message is scheduled, leased (a consumer has claimed it ahead and has not begun it), firing (it
// has begun) or dead:
//
//	Put        -             → scheduled
//	Claim      scheduled     → leased, or firing (Claim.Begin), with a token above all others
//	Begin      leased        → firing, if it is due on the store's clock
//	Ack        firing        → gone
//	Expire     firing        → gone
//	Retry      firing        → scheduled, one attempt more unless it is uncounted
//	Bury       firing        → dead, one attempt more
//	Release    leased/firing → scheduled, as it was
//	Extend     leased/firing → the same with a later end of the lease
//	Cancel     scheduled/leased → gone
//	Reschedule scheduled/leased → scheduled, at another time
//	Replay     dead          → scheduled, with no attempts and no crashes
//	Purge      dead          → gone
//
// The next Claim of a partition ends the leases that are over. A leased message is scheduled again
// as it was. A firing message gets one crash more, and is scheduled again, or dead if it has had
// its number of crashes.
//
// A store that ends with the process of its callers may end all leases when it is opened again,
// with a crash for each firing message.
//
// Arguments are valid, because package durable checks them once for all stores. Partitions are
// those of the queue. Batches have at most [MaxBatch] messages with different ids of 1 to 255
// bytes. Transitions are those declared.
//
// Errors are [ErrBroken] if no call will succeed before the store is opened again or its data
// restored. A queue then returns the error to its callers at once, and its consumers end.
//
// Errors are [ErrUnavailable] if the same call may succeed later. A store behind a network cannot
// know whether such a call has taken place, so each call may be repeated. Transitions with a token
// are idempotent: see [OpBegin]. Calls without a token have a [Call], which makes them take place
// once. If the ErrUnavailable of a store means that nothing has taken place, as with a file or
// memory, the store ignores Call.
type Backend interface {
	// Partitions is the number of partitions, fixed when the queue was made.
	Partitions() int

	// Put stores messages. It takes place once: see [Call].
	Put(ctx context.Context, put Put) ([]Status, error)

	// Claim ends the leases that are over, and leases messages in the order of their due times.
	//
	// A claim whose answer was lost may have taken place, or may take place later. If it has taken
	// place, the next claim of the same consumer shows that by its Claim.Seen, and gets the same
	// messages again. If not, the Claim.Seq and Claim.Repeat of the next claim prevent it. If the
	// consumer does not claim again, the messages come back when their leases end, and each message
	// that began with the claim counts a crash.
	//
	// No message leaves a set without being counted. A member of a set that has no record is
	// removed and counts in Counts.Lost. A message that this version cannot read stays scheduled,
	// does not hold up others, and counts in Counts.Unreadable.
	Claim(ctx context.Context, claim Claim) (Claimed, error)

	// Apply makes a transition of each of the messages. Cancel, Reschedule, Replay and Purge take
	// place once: see [Call].
	Apply(ctx context.Context, batch Batch) ([]Outcome, error)

	// Pause pauses or resumes a partition. It takes place once: see [Call]. Pausing a paused
	// partition, or resuming another one, changes nothing. A pause lasts until the partition is
	// resumed, over restarts.
	//
	// When Pause has returned, no message of the partition begins. Claim leases nothing new and
	// returns Claimed.Paused, and the Begin of a leased message is [StatusPaused]. All other
	// transitions go on. Claims still end leases, and return messages whose answer was lost. The
	// store sends a hint with Due 0 when the partition is paused or resumed.
	Pause(ctx context.Context, pause Pause) error

	// Get returns a message, or [ErrNotFound] if there is none with this id.
	Get(ctx context.Context, partition int, id string) (Record, error)

	// List returns up to limit messages in one state, with their bodies, in the order of their
	// times (due, end of the lease, or death) and ids. StateLeased stands for leased and firing
	// messages. The cursor is empty for the first page, and the last page returns an empty one. A
	// page ends before limit when its bodies have [PageBytes] or more. A message that changes
	// between two calls may be missed or seen twice.
	List(ctx context.Context, partition int, state State, cursor string, limit int) ([]Record, string, error)

	// Count returns the counts of a partition.
	Count(ctx context.Context, partition int) (Counts, error)

	// CountDue returns for each duration the number of scheduled messages that are due at most so
	// long after now on the store's clock, rounded up to milliseconds. The durations are not
	// negative and rise, and there are 1 to [MaxWithin]. The number for 0 is Counts.Due.
	CountDue(ctx context.Context, partition int, within []time.Duration) ([]int64, error)

	// Audit looks for records that are in no set, and for members of sets that have no record. If
	// repair is true it schedules the former (dead letters stay dead) and removes the latter. It
	// also compares Counts.DeadBytes with the dead letters.
	Audit(ctx context.Context, partition int, repair bool) (AuditReport, error)

	// Heartbeat makes a consumer a member of the queue for another ttl, and returns the names of
	// all members, sorted. A ttl of 0 removes the consumer. The store sets Seen and Until of the
	// member by its clock.
	Heartbeat(ctx context.Context, member Member, ttl time.Duration) ([]string, error)

	// Members returns the members of the queue as of their last heartbeats, sorted by name. If a
	// store knows only the name of a member, the other fields are zero.
	Members(ctx context.Context) ([]Member, error)

	// Watch sends a hint when a message has become the earliest of its partition. When ctx ends,
	// Watch closes the channel. Hints may be lost or late: they affect latency only, never
	// correctness.
	Watch(ctx context.Context) (<-chan Hint, error)
}

// Grouper is a [Backend] that gathers concurrent calls into one commit by itself. A queue then
// makes a call for each caller that waits, because half of the callers would miss each commit if
// both gathered. The answer of a Grouper cannot get lost, so its errors are never [ErrUnavailable]
// and its calls are not repeated.
//
// If the context of a call ends before a commit with the call has begun, the call does not take
// place and leaves nothing in memory. If the context ends later, the error is an [*UnderWayError].
type Grouper interface{ GroupsCalls() }

// UnderWayError is the error of a call of a [Grouper] whose context has ended while its commit was
// under way. The call may take place. The queue counts it as waiting (Options.MaxWaiting) until
// Done is closed.
type UnderWayError struct {
	Cause error           // of the context's end
	Done  <-chan struct{} // closed when the call is over, and has left the memory
}

func (e *UnderWayError) Error() string { return e.Cause.Error() }
func (e *UnderWayError) Unwrap() error { return e.Cause }

// Checker is implemented by a [Backend] if the safety of its messages depends on how others have
// set up the store. The queue calls Check about once a minute, and reports an error that differs
// from the last one.
type Checker interface {
	// Check returns nil if the store is still set up as Open demands, and an error that wraps
	// [ErrUnsafe] if the store may lose messages. If the store cannot be reached, the error is
	// [ErrUnavailable], which the queue does not report.
	Check(ctx context.Context) error
}

// MaxBatch is the number of messages in one transition.
const MaxBatch = 256

// PageBytes is the number of bytes of bodies that end a page of [Backend].List. It bounds the
// memory of a page of large messages.
const PageBytes = 4 << 20

// MaxWithin is the number of durations in a call of Backend.CountDue.
const MaxWithin = 64

// State is the state of a message: see [Backend].
type State uint8

// The states of a message.
const (
	StateScheduled State = iota + 1
	StateLeased          // claimed ahead of time by a consumer, which has not begun it
	StateFiring          // begun: its handler runs, or is about to
	StateDead            // kept as a dead letter
)

// Record is a message as a store holds it.
type Record struct {
	ID          string
	Body        []byte
	Enqueued    Instant
	Due         Instant // of its next delivery
	MaxAttempts int     // deliveries that end in an error before it is dead
	Attempts    int     // deliveries that ended in an error
	Crashes     int     // deliveries that ended with the lease
	State       State
	Token       uint64  // of the last claim; 0: none
	LeaseEnd    Instant // leased and firing
	Died        Instant // dead
	Reason      string  // the last error, at most MaxReason bytes
}

// MaxReason is the length to which errors are cut in a record, in bytes.
const MaxReason = 512

// CutReason returns a reason as a record keeps it, cut between two characters. Stores call it.
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

// Call makes a call without a token take place at most once, however often copies of it are sent
// and however late they arrive. A caller sends another copy when a reply was lost. The connection
// may still deliver the earlier copy later.
//
// A store keeps the number and the statuses of each caller's last call at least until its NotAfter
// has passed. A copy of that call changes nothing and returns the same statuses, even if the
// messages have changed since. The store refuses a call with a [LateError], and changes nothing, if
//
//   - NotAfter has passed on its clock, or is not later than that of a call that it has forgotten,
//   - NotAfter lies more than [MaxAhead] ahead, or
//   - the number is lower than that of the caller's last call.
//
// These rules are exact even if the store's clock is set ahead or back: a forgotten call cannot
// take place any more. All copies of a call have the same number and the same messages. NotAfter
// may differ.
type Call struct {
	// Caller is unique among the callers of a partition. Each has one call under way at a time. An
	// empty name says that there are no copies.
	Caller string

	Seq      uint64 // rises with each call of the caller
	NotAfter Instant
}

// MaxAhead is how far ahead of the store's clock [Call.NotAfter] may lie. It bounds what a store
// remembers if a caller's clock is wrong.
const MaxAhead = 2 * time.Hour

// LateError says that a store has refused a copy of a [Call], which has changed nothing.
type LateError struct {
	Now     Instant // the store's clock, or a later time that it has shown; NotAfter must be later
	Unknown bool    // an earlier copy may have taken place and been forgotten; else none has
}

// Error implements error.
func (e *LateError) Error() string {
	return "the call came too late: the store's clock shows " + e.Now.Time().UTC().Format(time.RFC3339Nano)
}

// PartitionOf returns the partition of a message in a queue that has the given number of them. The
// id alone decides.
func PartitionOf(id string, partitions int) int {
	return int(xxhash.Sum64String(id) % uint64(partitions))
}

// Put is up to [MaxBatch] messages with different ids for one partition.
type Put struct {
	Partition int
	Call      Call
	Replace   bool // a message with the same id that has not begun is replaced, a dead one too
	Items     []PutItem
}

// PutItem is a message to be stored. It is due at At, or at once if At has passed. If At is 0, it
// is due Delay after now on the store's clock.
type PutItem struct {
	ID          string
	Body        []byte
	Delay       time.Duration
	At          Instant
	MaxAttempts int
}

// Member is a consumer of a queue.
type Member struct {
	Name       string  // unique among the members: 1 to [MaxConsumer] bytes
	Host       string  // the name of its machine, at most [MaxHost] bytes; empty: unknown
	PID        int     // its process on the machine
	Partitions []int   // that it owned at its last heartbeat, ascending
	Seen       Instant // its last heartbeat; it moves with a clock that is set back
	Until      Instant // when it is gone without another heartbeat
}

// MaxHost is the length of Member.Host in bytes.
const MaxHost = 255

// Pause pauses a partition, or resumes it if Paused is false.
type Pause struct {
	Partition int
	Call      Call
	Paused    bool
}

// Claim asks for messages.
type Claim struct {
	Partition  int
	Horizon    time.Duration // messages that are due until now plus Horizon on the store's clock
	Max        int           // the number of messages, 0 to MaxBatch. 0 only ends leases
	MaxBytes   int           // the bytes of their bodies; one message is claimed whatever its size
	Visibility time.Duration // the lease of a message that begins with the claim, from now on
	Hold       time.Duration // the lease of others, from the due time or a later now; 0: Visibility
	Begin      int           // the number of messages that begin if they are due, as with OpBegin
	MaxCrashes int           // the crashes after which a message is dead; 0: no bound

	// Consumer names the consumer, which has one claim of a partition under way at a time: 1 to
	// [MaxConsumer] bytes without a line break. Seen is the highest token that the consumer has
	// received from this partition.
	//
	// If an earlier claim of the same consumer has given tokens above Seen, its answer was lost.
	// Then this claim returns the messages of that claim that are still leased or firing, with the
	// same tokens and new leases, and claims no others. Messages that the consumer has begun or
	// extended need not be among them. Max, MaxBytes and Begin do not bound them. A lease that is
	// over, but has not been ended, is renewed too, so a lost answer costs no crash as long as the
	// consumer claims again.
	//
	// A store remembers the claims of the [ClaimConsumers] consumers of each partition that claimed
	// last. It remembers none of an empty name.
	Consumer string
	Seen     uint64

	// Seq rises with each claim of the consumer from this partition; 0: its claims have no numbers.
	// Repeat says that the consumer has received no answer to its previous claim.
	//
	// A store also remembers the number of a consumer's last claim that gave messages or had
	// Repeat. A claim with a lower number changes nothing and returns no messages, because the
	// consumer has received the answer to a later claim and does not know of this one any more. So
	// an unanswered claim that a dead connection delivers late leases no messages once a claim with
	// Repeat was answered.
	Seq    uint64
	Repeat bool
}

// MaxConsumer is the length of the name of a consumer in bytes.
const MaxConsumer = 64

// ClaimConsumers is the number of consumers of a partition whose last claim a store remembers. A
// partition has one owner, and two for a moment when it moves to another consumer.
const ClaimConsumers = 16

// Claimed is the result of a claim.
type Claimed struct {
	Records    []Record
	Now        time.Time // the store's clock at some time during the call, at its full resolution
	Next       Instant   // the earliest due time of a readable scheduled message; 0: there is none
	Lease      Instant   // the end of the first lease, also of this claim; 0: there is none
	Lost       int       // members of sets without a record that this claim has removed
	Unreadable int       // scheduled messages that claims have met and cannot read, as in Counts
	Paused     bool      // the partition is paused: only messages of a lost answer are returned
}

// Op is a transition.
type Op uint8

// The transitions of [Backend].Apply, each with the statuses that its outcomes may have. Begin,
// Ack, Retry, Bury, Release, Extend and Expire need the token of the claim. Repeating one of these
// that has taken place gives Done again, except Ack and Expire, which give NotFound. Cancel,
// Reschedule, Replay and Purge have a [Call] instead. Files hold these numbers, so a new transition
// is added at the end.
const (
	OpBegin      Op = iota + 1 // Done, Early, Paused, LeaseLost. Repeated, it renews the lease
	OpAck                      // Done, LeaseLost, NotFound
	OpRetry                    // Done, LeaseLost. Due after Delay, with Reason; see Uncounted
	OpBury                     // Done, LeaseLost. With Reason
	OpRelease                  // Done, LeaseLost. Of firing messages too
	OpExtend                   // Done, LeaseLost. To Delay after the due time or a later now
	OpCancel                   // Done, Firing, NotFound
	OpReschedule               // Done, Firing, NotFound. To At or, if that is 0, after Delay
	OpReplay                   // Done, NotFound. Due after Delay
	OpPurge                    // Done, NotFound
	OpExpire                   // Done, LeaseLost, NotFound. OpAck of an expired message
)

// Check returns an error that wraps [ErrInvalid] for a transition that is not declared, because a
// process of a newer version may ask for it. Stores call it in Apply.
func (o Op) Check() error {
	if o < OpBegin || o > OpExpire {
		return fmt.Errorf("%w transition %v: those of this version, %v to %v, are accepted",
			ErrInvalid, o, OpBegin, OpExpire)
	}
	return nil
}

// Batch is one transition of up to [MaxBatch] different messages of a partition.
type Batch struct {
	Partition  int
	Op         Op
	Call       Call          // of Cancel, Reschedule, Replay and Purge
	Visibility time.Duration // Begin: the new lease, from now on; 0: the lease stays
	Lead       time.Duration // Begin: a message is not early from Lead before its due time on
	Changes    []Change
}

// Change is the transition of one message.
type Change struct {
	ID     string
	Token  uint64
	Delay  time.Duration
	Begun  time.Duration // Extend: in place of Delay if the message has begun; 0: Delay
	At     Instant
	Reason string

	Uncounted bool // Retry: it is no attempt

	// Incarnation restricts Cancel to a message that was enqueued at this instant, and Replay and
	// Purge to one that died at it. The status of any other message is NotFound. 0 means no
	// restriction.
	Incarnation Instant
}

// Meant reports whether the change is for an incarnation of the message that began at start: the
// Enqueued of a message to be cancelled, the Died of a dead letter. Stores call it.
func (c *Change) Meant(start Instant) bool { return c.Incarnation == 0 || c.Incarnation == start }

// Status is the result of a transition of one message.
type Status uint8

// The results of transitions. A zero Status is none of these.
const (
	StatusDone      Status = iota + 1
	StatusDuplicate        // Put: a message with this id exists
	StatusFiring           // the message has begun; also of a Put that replaces
	StatusNotFound         // no such message, or dead (Replay and Purge: not dead)
	StatusLeaseLost        // the token is not the current one: the lease has ended
	StatusEarly            // Begin: the message is not due yet
	StatusPaused           // Begin: the partition is paused
)

// Outcome is the result of one change.
type Outcome struct {
	Status Status
	Now    time.Time // of the store's clock, the same for the whole batch
	Due    Instant   // Begin: the due time
	Lease  Instant   // Begin and Extend: the new end of the lease; 0: the lease stays
}

// Counts has the numbers of messages in a partition, and the counters of its transitions since it
// was made.
type Counts struct {
	Now        Instant
	Scheduled  int64   // messages that are scheduled, due ones included and Unreadable ones not
	Due        int64   // scheduled messages whose due time has passed
	InFlight   int64   // messages that are leased or firing
	Dead       int64   // dead letters
	DeadBytes  int64   // bytes of the bodies of dead letters
	Unreadable int64   // scheduled messages that a claim has met and this version cannot read
	NextDue    Instant // the earliest due time of a scheduled message; 0: there is none
	Paused     bool    // see Backend.Pause

	Enqueued, Acked, Retried, Buried, Cancelled, Crashed, Expired uint64

	// Trimmed counts the dead letters that were dropped because of DeadLimit, DeadBytes or DeadAge.
	Trimmed uint64

	// Lost counts the messages whose records are gone, because a server has evicted them or a user
	// has deleted them: those that claims and audits have removed from the sets, and those that the
	// sets still hold.
	Lost uint64
}

// AuditReport is the result of an audit.
type AuditReport struct {
	Records    int64 // records that were read
	Orphans    int64 // records in no set
	Strays     int64 // members of sets, or states, without a record
	Unreadable int64 // records of a newer version, or damaged ones, which stay
	Wrong      int64 // wrong sums, such as Counts.DeadBytes
	Repaired   int64 // faults that were repaired
}

// Hint says that a message of a partition is due at Due, earlier than all others that were
// scheduled. Due 0 says that the partition has to be claimed from to find out.
type Hint struct {
	Partition int
	Due       Instant
}

// FormatCursor returns the cursor of List for the page behind the message with a time and an id.
// Stores call it.
func FormatCursor(at Instant, id string) string { return strconv.FormatInt(int64(at), 10) + ":" + id }

// ParseCursor returns the time and the id of the message behind which a page of List begins. They
// are zero for the empty cursor, that of the first page. A cursor that List has not returned is
// [ErrInvalid]. Stores call it.
func ParseCursor(cursor string) (at Instant, id string, err error) {
	if cursor == "" {
		return 0, "", nil
	}
	number, id, found := strings.Cut(cursor, ":")
	n, err := strconv.ParseInt(number, 10, 64)
	if !found || err != nil || n < 0 || n > int64(Never) || id == "" {
		return 0, "", fmt.Errorf("%w cursor %.60q: the empty one and those that List has returned are accepted",
			ErrInvalid, cursor)
	}
	return Instant(n), id, nil
}
