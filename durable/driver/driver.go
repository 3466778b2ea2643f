// Package driver is the contract between a durable queue and the stores that keep its messages. Programs
// that use a queue need package durable and a store only.
//
// A store implements [Store] and [Backend]. Package durable calls them, and checks all arguments before.
// Package storetest has the tests that each store passes.
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

// Store keeps queues: in memory ([memstore]), in a file ([boltstore]) or on Redis ([redisstore]). It is made by one
// of these packages and given to Open of package durable. A store may hold several queues.
//
// [memstore]: https://pkg.go.dev/github.com/timingwheel-go/timingwheel/durable/memstore
// [boltstore]: https://pkg.go.dev/github.com/timingwheel-go/timingwheel/durable/boltstore
// [redisstore]: https://pkg.go.dev/github.com/timingwheel-go/timingwheel/durable/redisstore
type Store interface {
	// Open makes a queue, or joins one that exists. Config.Partitions 0 takes what is there, or [DefaultPartitions] for
	// a new queue. An existing queue with another count is [ErrPartitions]; one that a newer version has
	// written is [ErrVersion].
	Open(ctx context.Context, config Config) (Backend, error)

	// Close releases what the store has opened itself. Calls of its backends fail with [ErrClosed] from then on.
	Close() error
}

// Config is what a store has to know of a queue.
type Config struct {
	Queue      string        // 1 to 128 letters, digits, '.', '_' or '-'
	Partitions int           // 1 to 1024; 0: see Store.Open
	DeadLimit  int           // dead letters that a partition keeps; the oldest go first. Positive
	DeadBytes  int64         // bytes of bodies of dead letters that a partition keeps, but the newest in any case. Positive
	DeadAge    time.Duration // how long a dead letter is kept. Positive
}

// Backend is one queue in a store: a small set of transitions, each of which takes place as a whole or not at all, for
// up to [MaxBatch] messages of one partition. All of them may be called from many goroutines.
//
// A message is scheduled, leased (a consumer has claimed it ahead and has not begun), firing (it has begun) or dead:
//
//	Put        -             → scheduled
//	Claim      scheduled     → leased, or firing if it is told so, with a token that is higher than any before in its partition
//	Begin      leased        → firing, unless it is not due on the store's clock
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
// A lease that has ended is noticed by the next Claim of its partition: a leased message is scheduled again as it was;
// a firing one too, with one crash more, or dead where it has had its number of crashes.
//
// A store that ends with the process of its callers may end all leases when it is opened again, with a crash for what was firing.
//
// Arguments are valid: package durable checks them, once for all stores. Partitions are those of the queue, batches have at most
// [MaxBatch] messages with different ids of 1 to 255 bytes, transitions are those declared.
//
// Errors are [ErrBroken] if no call will succeed any more, because the store must be opened again or its data restored: a queue
// tells its callers at once, and its consumers end.
//
// Errors are [ErrUnavailable] if the same call may succeed later. A store behind a network cannot know whether such a call has taken
// place, so each call may be repeated. The transitions with a token are idempotent: see the notes there. Those without a token have a
// [Call], which makes them take place once. A store whose ErrUnavailable says that nothing has taken place, such as a file or the
// memory, has no use for it and ignores it.
type Backend interface {
	// Partitions is the number of partitions, fixed when the queue was made.
	Partitions() int

	// Put stores messages. It takes place once: see [Call].
	Put(ctx context.Context, put Put) ([]Status, error)

	// Claim ends the leases that are over, and leases messages in the order of their due times.
	//
	// A claim whose answer was lost may have taken place, or may take place later. The next claim of the
	// same consumer shows the former by its Claim.Seen, and gets the same messages again. It prevents the
	// latter by its Claim.Seq and Claim.Repeat. If the consumer does not claim again, the messages come back
	// when their leases end, and a message that began with the claim counts a crash then.
	//
	// No message leaves a set without being counted. A member of a set that has no record is removed and counts in
	// Counts.Lost. A message that this version cannot read stays scheduled, does not hold up the others, and counts
	// in Counts.Unreadable.
	Claim(ctx context.Context, claim Claim) (Claimed, error)

	// Apply makes a transition of each of the messages. Cancel, Reschedule, Replay and Purge take place once: see [Call].
	Apply(ctx context.Context, batch Batch) ([]Outcome, error)

	// Pause pauses or resumes a partition. It takes place once: see [Call]. To pause a paused partition, and to
	// resume one that is not, changes nothing. A pause lasts until it is resumed, over restarts.
	//
	// From the moment of a pause on no message of the partition begins: Claim leases nothing new and returns
	// Claimed.Paused, and the Begin of a leased message is [StatusPaused]. All other transitions go on, and
	// claims go on ending leases and returning messages whose answer was lost. The store sends a hint with Due 0
	// when the partition is paused or resumed.
	Pause(ctx context.Context, pause Pause) error

	// Get returns a message, [ErrNotFound] where there is none with this id.
	Get(ctx context.Context, partition int, id string) (Record, error)

	// List returns up to limit messages in one state, with their bodies, in the order of their times (due, end of the
	// lease, or death) and ids. Leased stands for leased and firing ones. The cursor is empty for the first page and comes back
	// empty with the last one. A page ends before limit when its bodies have [PageBytes] or more. What changes
	// between two calls may be missed or seen twice.
	List(ctx context.Context, partition int, state State, cursor string, limit int) ([]Record, string, error)

	// Count returns what a partition holds and has seen.
	Count(ctx context.Context, partition int) (Counts, error)

	// CountDue returns, for each duration, how many scheduled messages are due at most so long after the
	// store's clock, rounded up to milliseconds. The durations are not negative and rise; there are 1 to
	// [MaxWithin]. With 0 it is Counts.Due.
	CountDue(ctx context.Context, partition int, within []time.Duration) ([]int64, error)

	// Audit looks for records that stand in no set and for members of sets that have no record, and repairs them if told
	// so: the former are scheduled (dead ones stay dead), the latter go. It compares Counts.DeadBytes with the dead letters as well.
	Audit(ctx context.Context, partition int, repair bool) (AuditReport, error)

	// Heartbeat enters a consumer among the members of the queue for another ttl, and returns the names of all members,
	// sorted. A ttl of 0 removes the consumer. The store sets Seen and Until of the member by its clock.
	Heartbeat(ctx context.Context, member Member, ttl time.Duration) ([]string, error)

	// Members returns the members of the queue as of their last heartbeats, sorted by name. If a store finds no more than
	// the name of a member, the other fields are zero.
	Members(ctx context.Context) ([]Member, error)

	// Watch sends a hint whenever a message has become the earliest of its partition, until ctx ends; then it closes
	// the channel. Hints may be lost, and come late: nothing may depend on them but the moment at which something is noticed.
	Watch(ctx context.Context) (<-chan Hint, error)
}

// Grouper is a [Backend] that gathers concurrent calls into one commit by itself. A queue then makes a call of its own
// for each caller that waits: if both gathered, half of the callers would miss each commit. The answer of a Grouper cannot
// get lost, so its errors are never [ErrUnavailable] and its calls are not repeated.
//
// If the context of a call ends before a commit has begun with it, the call does not take place and leaves nothing behind in
// memory. If it ends later, the error is an [*UnderWayError].
type Grouper interface{ GroupsCalls() }

// UnderWayError is the error of a call of a [Grouper] whose context has ended while its commit was under way. The call may take
// place. The queue counts it among those that wait (Options.MaxWaiting) until Done is closed.
type UnderWayError struct {
	Cause error           // of the context's end
	Done  <-chan struct{} // closed when the call is over, and its messages are no longer in memory for it
}

func (e *UnderWayError) Error() string { return e.Cause.Error() }
func (e *UnderWayError) Unwrap() error { return e.Cause }

// Checker is what a [Backend] may be as well, if the safety of its messages depends on how others have set up the store.
// The queue calls Check about once a minute, and tells OnError, an option of package durable, of what it has not told last time.
type Checker interface {
	// Check returns nil if the store is still set up as Open demands, and an error that wraps [ErrUnsafe] if it may lose
	// messages. If the store cannot be reached the error is [ErrUnavailable], which is not told: other calls do that.
	Check(ctx context.Context) error
}

// MaxBatch is the number of messages in one transition.
const MaxBatch = 256

// PageBytes is the number of bytes of bodies that end a page of [Backend].List, so that a page of large
// messages does not fill the memory.
const PageBytes = 4 << 20

// MaxWithin is the number of durations in a call of Backend.CountDue.
const MaxWithin = 64

// State is where a message is.
type State uint8

// The states of a message.
const (
	StateScheduled State = iota + 1
	StateLeased          // claimed ahead of time by a consumer, which has not begun it
	StateFiring          // begun: its handler runs, or may
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

// CutReason is a reason as a record keeps it, cut between two characters. Stores call it.
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

// Call makes a call without a token take place at most once, however often copies of it are sent and however late they arrive. A
// caller sends a copy when the reply to the one before was lost: the connection may still deliver the earlier copy later.
//
// A store keeps the number and the statuses of each caller's last call at least until its NotAfter has passed. A copy of that call
// changes nothing and returns the same statuses, whatever has become of the messages since. The store refuses with a [LateError] and
// changes nothing if
//
//   - NotAfter has passed on its clock, or is not later than that of a call that it has forgotten,
//   - NotAfter lies more than [MaxAhead] ahead, or
//   - the number is lower than that of the caller's last call.
//
// These rules are exact even if the store's clock is set ahead or back: a call that is forgotten cannot take place any more. All copies
// of a call have the same number and the same messages. NotAfter may differ.
type Call struct {
	Caller   string // unique among the callers of a partition; each has one call under way at a time. Empty: there are no copies
	Seq      uint64 // rises with each call of the caller
	NotAfter Instant
}

// MaxAhead is how far ahead of the store's clock [Call.NotAfter] may lie. So what a store remembers is bounded even if a caller's
// idea of the clock is wrong.
const MaxAhead = 2 * time.Hour

// LateError says that a store has refused a copy of a [Call], which has changed nothing.
type LateError struct {
	Now     Instant // of the store's clock, or what it has shown: NotAfter has to be later
	Unknown bool    // an earlier copy may have taken place and been forgotten; otherwise none has
}

// Error implements error.
func (e *LateError) Error() string {
	return "the call came too late: the store's clock shows " + e.Now.Time().UTC().Format(time.RFC3339Nano)
}

// PartitionOf returns the partition of a message in a queue that has the given number of them. The id
// alone decides.
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

// PutItem is a message to be stored. It is due at At or, where that is 0, Delay after the store's clock; a past At is due now.
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
	Horizon    time.Duration // ahead: messages that are due before the store's clock plus Horizon
	Max        int           // at most so many, 0 to MaxBatch. 0 only ends leases
	MaxBytes   int           // at most so many bytes of bodies, but at least one message
	Visibility time.Duration // the lease of a message that begins with the claim ends so long after now
	Hold       time.Duration // the lease of any other ends so long after the later of now and its due time; 0: Visibility
	Begin      int           // at most so many of the first, if they are due, begin at once, as with OpBegin
	MaxCrashes int           // a firing message whose lease ends is dead when it has had so many; 0: never

	// Consumer names the consumer, which has one claim of a partition under way at a time: 1 to [MaxConsumer] bytes
	// without a line break. Seen is the highest token that the consumer has received from this partition.
	//
	// If an earlier claim of the same consumer has given tokens above Seen, its answer was lost. Then this claim
	// returns those of its messages that are still leased or firing, with the same tokens and new leases, and
	// claims nothing else. Messages that the consumer has begun or extended need not be among them. Max,
	// MaxBytes and Begin do not bound them. A lease of theirs that is over but has not been ended is renewed
	// too, so a lost answer costs no crash as long as the consumer claims again.
	//
	// A store remembers this of the [ClaimConsumers] consumers of each partition that came last. An empty name
	// asks for none of it.
	Consumer string
	Seen     uint64

	// Seq rises with each claim of the consumer from this partition; 0: its claims have no numbers.
	// Repeat says that the consumer has received no answer to its previous claim.
	//
	// A store keeps with what it remembers of a consumer the number of its last claim that gave messages or
	// had Repeat. A claim with a lower number changes nothing and returns no messages: the consumer has
	// received the answer to a later claim and does not know of this one any more. So an unanswered claim
	// that a dead connection delivers late leases no messages once a claim with Repeat was answered.
	Seq    uint64
	Repeat bool
}

// MaxConsumer is the length of the name of a consumer in bytes.
const MaxConsumer = 64

// ClaimConsumers is the number of consumers of a partition whose last claim a store remembers. A
// partition has one owner, and two for a moment when it moves to another consumer.
const ClaimConsumers = 16

// Claimed is what a claim has got.
type Claimed struct {
	Records    []Record
	Now        time.Time // of the store's clock, as fine as it is, at some moment during the call
	Next       Instant   // the earliest due time among those scheduled that were not claimed and can be read; 0: none is
	Lease      Instant   // when the first lease ends, those of this claim included; 0: there is none
	Lost       int       // members of sets without a record that this claim has removed
	Unreadable int       // scheduled messages that claims have met and cannot read, as in Counts
	Paused     bool      // the partition is paused, so there are no records but those given again
}

// Op is a transition.
type Op uint8

// The transitions of [Backend.Apply], each with the statuses that its outcomes may have. Begin, Ack, Retry, Bury, Release,
// Extend and Expire need the token of the claim. To repeat one of these that has taken place gives Done again, but for Ack and
// Expire: there it is NotFound. Cancel, Reschedule, Replay and Purge have a [Call] instead. Files hold these numbers, so a new
// transition is added at the end.
const (
	OpBegin      Op = iota + 1 // Done, Early, Paused, LeaseLost. Repeated, it extends the lease, but with Visibility 0
	OpAck                      // Done, LeaseLost, NotFound
	OpRetry                    // Done, LeaseLost. Due after Delay, with Reason; see Uncounted
	OpBury                     // Done, LeaseLost. With Reason
	OpRelease                  // Done, LeaseLost. Also of a firing one, if its consumer ends
	OpExtend                   // Done, LeaseLost. To Delay after now, or after the due time if that is later; see Begun
	OpCancel                   // Done, Firing, NotFound
	OpReschedule               // Done, Firing, NotFound. To At or, where that is 0, after Delay
	OpReplay                   // Done, NotFound. Due after Delay
	OpPurge                    // Done, NotFound
	OpExpire                   // Done, LeaseLost, NotFound. OpAck of a message that came too late for its handler: it is counted apart
)

// Check returns an error that wraps [ErrInvalid] for a transition that is not declared, as a process of a newer version may ask
// for. Stores call it in Apply.
func (o Op) Check() error {
	if o < OpBegin || o > OpExpire {
		return fmt.Errorf("%w transition %v: those of this version, %v to %v, are accepted", ErrInvalid, o, OpBegin, OpExpire)
	}
	return nil
}

// Batch is one transition of up to [MaxBatch] different messages of a partition.
type Batch struct {
	Partition  int
	Op         Op
	Call       Call          // of Cancel, Reschedule, Replay and Purge
	Visibility time.Duration // Begin: the lease ends so long after now; 0: when it would have ended
	Lead       time.Duration // Begin: this long before the due time is not early
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

	// Incarnation restricts Cancel to a message that was enqueued at this instant, and Replay and Purge to
	// one that died at it. The status of any other message is NotFound. 0 means no restriction.
	Incarnation Instant
}

// Meant reports whether the change is for an incarnation of the message that began at start: the
// Enqueued of a message to be cancelled, the Died of a dead letter. Stores call it.
func (c *Change) Meant(start Instant) bool { return c.Incarnation == 0 || c.Incarnation == start }

// Status tells what became of one message in a batch.
type Status uint8

// What may become of a message. A zero Status is none of these.
const (
	StatusDone      Status = iota + 1
	StatusDuplicate        // Put: a message with this id is there
	StatusFiring           // it has begun; also of a Put that replaces
	StatusNotFound         // there is no such message, or it is dead (for Replay and Purge: it is not dead); see Change.Incarnation
	StatusLeaseLost        // the token is not that of the message, as its lease has ended, or it was rescheduled, cancelled or replaced
	StatusEarly            // it is not due yet
	StatusPaused           // Begin: the partition is paused
)

// Outcome is what became of one change.
type Outcome struct {
	Status Status
	Now    time.Time // of the store's clock, the same for the whole batch
	Due    Instant   // Begin: the due time
	Lease  Instant   // Begin and Extend: the new end of the lease; 0: it has not been moved
}

// Counts is what a partition holds, and what it has seen since it was made.
type Counts struct {
	Now        Instant
	Scheduled  int64 // due ones included, Unreadable ones not
	Due        int64 // scheduled, and their time has come
	InFlight   int64 // leased or firing
	Dead       int64
	DeadBytes  int64   // of the bodies of dead letters
	Unreadable int64   // scheduled messages that a claim has met and this version cannot read
	NextDue    Instant // 0: nothing is scheduled
	Paused     bool

	Enqueued, Acked, Retried, Buried, Cancelled, Crashed, Expired uint64

	// Trimmed counts the dead letters that were dropped because of DeadLimit, DeadBytes or DeadAge.
	Trimmed uint64

	// Lost counts the messages whose records are gone, as a server has evicted them or someone has
	// deleted them: those that claims and audits have removed from the sets, and those that the
	// sets still hold.
	Lost uint64
}

// AuditReport is what an audit has found.
type AuditReport struct {
	Records    int64 // that were looked at
	Orphans    int64 // records in no set
	Strays     int64 // members of sets, or states, without a record
	Unreadable int64 // records of a newer version, or damaged ones; they are left as they are
	Wrong      int64 // sums that were not those of what is there, such as Counts.DeadBytes
	Repaired   int64
}

// Hint says that a message of a partition is due at Due, earlier than all others that were scheduled.
type Hint struct {
	Partition int
	Due       Instant
}

// FormatCursor returns the cursor of List for the page behind the message with a time and an id. Stores
// call it.
func FormatCursor(at Instant, id string) string { return strconv.FormatInt(int64(at), 10) + ":" + id }

// ParseCursor returns the time and the id of the message behind which a page of List begins. They are
// zero for the empty cursor, that of the first page. A cursor that List has not returned is
// [ErrInvalid]. Stores call it.
func ParseCursor(cursor string) (at Instant, id string, err error) {
	if cursor == "" {
		return 0, "", nil
	}
	number, id, found := strings.Cut(cursor, ":")
	n, err := strconv.ParseInt(number, 10, 64)
	if !found || err != nil || n < 0 || n > int64(Never) || id == "" {
		return 0, "", fmt.Errorf("%w cursor %.60q: the empty one and those that List has returned are accepted", ErrInvalid, cursor)
	}
	return Instant(n), id, nil
}
