// Package driver defines the contract between a durable queue and the stores that hold its
// messages. Programs that use a queue need only package durable and a store package.
//
// A store implements [Store] and [Backend]. Package durable validates all arguments before it calls
// them. Package storetest contains the conformance tests that every store must pass.
package driver

import (
	"context"
	"errors"
	"strconv"
	"time"
)

// Store holds one or more queues: in memory ([memstore]), in a directory ([pebblestore]), on Redis
// ([redisstore]) or in PostgreSQL ([pgstore]). Each package creates a Store for durable.Open.
//
// [memstore]: https://pkg.go.dev/github.com/timingwheel-go/timingwheel/durable/memstore
// [pebblestore]: https://pkg.go.dev/github.com/timingwheel-go/timingwheel/durable/pebblestore
// [pgstore]: https://pkg.go.dev/github.com/timingwheel-go/timingwheel/durable/pgstore
// [redisstore]: https://pkg.go.dev/github.com/timingwheel-go/timingwheel/durable/redisstore
type Store interface {
	// Open opens a queue. If the queue does not exist, Open creates it, with the defaults in
	// durable.Options for zero fields, or returns [ErrNoQueue] if config.Existing is set. It
	// returns [ErrInvalid] for a value that is out of range, [ErrVersion] for a queue in another
	// format, [ErrPartitions] for a queue with a different number of partitions and, unless
	// config.Update is set, [ErrOptions] for a queue with different limits.
	Open(ctx context.Context, config Config) (Backend, error)

	// Close releases the resources that the store itself has opened. Later calls to its backends
	// return [ErrClosed].
	Close() error
}

// Config describes a queue to a store.
type Config struct {
	Queue      string // 1 to 128 letters, digits, '.', '_' or '-'
	Partitions int    // 1 to 1024; 0: as in the existing queue, or 8 for a new one

	// Existing makes Open return [ErrNoQueue] if the queue does not exist, instead of creating it.
	Existing bool

	// Limits, which the store keeps with the queue. 0 means the limit of the existing queue, or the
	// default for a new one. To stay within the limits on dead letters, each partition drops its
	// oldest ones, but keeps the newest regardless of its size.
	MaxBody     int           // size of a body in bytes; stores do not check it
	MaxAttempts int           // failed deliveries of a message; stores do not use it
	DeadLimit   int           // number of dead letters
	DeadBytes   int64         // size of their bodies in bytes
	DeadAge     time.Duration // time since their deaths

	// Update makes Open change an existing queue's limits to the nonzero ones given here, instead
	// of returning [ErrOptions] if they differ.
	Update bool

	RetryFor time.Duration // limits how long a store waits for another process; 0: the store decides
}

// Backend is one queue in a store. It offers a small set of transitions, each for up to [MaxBatch]
// messages in one partition. A transition is atomic. The methods are safe for concurrent use.
//
// A message is scheduled, leased (a consumer has claimed it but not begun it), firing (begun) or
// dead:
//
//	Put        -                → scheduled
//	Claim      scheduled        → leased, or firing (Claim.Begin), with a token above all others
//	Begin      leased           → firing, if it is due on the store's clock
//	Ack        firing           → removed
//	Expire     firing           → removed
//	Retry      firing           → scheduled: failed, postponed, or handled and due again
//	Bury       firing           → dead, with one more attempt
//	Release    leased or firing → scheduled, unchanged
//	Extend     leased or firing → the same, with a later end of the lease
//	Cancel     scheduled/leased → removed
//	Reschedule scheduled/leased → scheduled, at another time
//	Repeat     scheduled/leased → scheduled, with another series
//	Replay     dead             → scheduled, with no attempts and no crashes
//	Purge      dead             → removed
//
// The next Claim from a partition ends its expired leases. A leased message is scheduled again,
// unchanged. A firing message counts one more crash and is scheduled again: at its old due time
// after the first crash, and then with a delay that starts at one second and doubles with each
// crash, up to a minute. A message that has reached Claim.MaxCrashes becomes dead instead. Either
// way its Reason becomes "the consumer process ended or hung N times during delivery, last P", for
// N crashes and a description P of the process that had begun it, such as "pid 7 on host h".
//
// From its second crash on, a message is a suspect: it may be the cause of the crashes. It begins
// only with OpBegin, which a process applies to one suspect at a time.
//
// A store that keeps leases only in its callers' process may end all of them when it is reopened,
// which counts as a crash for each firing message. A message that has reached Claim.MaxCrashes in
// this way becomes dead when a claim takes it.
//
// A message with a Repeat is recurring: it is due at the times of a series, which package durable
// computes. Record.Planned is the time of the current run: Put, Reschedule and Replay set it to the
// due time, and retries do not change it. When the run is over, Change.Again makes the message due
// at the next time. Crashes do not make a recurring message dead: at Claim.MaxCrashes it is
// scheduled at [Never], with the reason above, until it is replayed.
//
// Put with Replace and a Repeat, and OpRepeat, accept a recurring message that is firing. They do
// not change the run: its lease and token stay, and when it ends, the message is due at the new
// Planned. However a delivery ends, the message is not due again before its Planned. The exception
// is Retry with Again and a matching Incarnation, which sets a new Planned.
//
// Cancel ends the series of a firing message: the message is not due again after the run.
//
// Cancel with Change.Interrupt marks a firing message: its Planned becomes [Never]. The next
// transition that ends the lease then removes the message, as does the expiry of the lease. The
// message counts as acked (Ack; Retry with Again and no Reason), expired (Expire) or cancelled. Put
// with Replace and OpRepeat return [StatusFiring] for a marked message.
//
// Arguments are valid, because package durable validates them for all stores. Partitions exist in
// the queue. Batches have at most [MaxBatch] messages with different ids. Ids have 1 to 255 bytes
// and series at most 255, in UTF-8 without control characters. Every [Op] is a declared one.
//
// An error wraps [ErrBroken] if no call will succeed before the store is reopened or its data is
// restored. The queue then returns the error to its callers immediately, and its consumers end.
//
// An error wraps [ErrUnavailable] if the same call may succeed later. Such a call may nevertheless
// have taken effect on a server, and callers may repeat it. Transitions with a token are
// idempotent: see [OpBegin]. Calls without a token have a [Call], which makes them take effect
// once. Stores in memory or a local directory ignore Call, Claim.Seen, Claim.Seq and Claim.Repeat.
type Backend interface {
	// Config returns the queue's number of partitions, which never changes, and the limits that it
	// had when it was opened. Transitions use the current limits; a store shared by several
	// processes may learn of new limits only at this process's next heartbeat.
	Config() Config

	// Put stores messages. It takes effect once: see [Call].
	Put(ctx context.Context, put Put) ([]Status, error)

	// Claim ends expired leases and then takes leases on messages, in order of due time.
	//
	// A claim whose answer was lost may have taken effect, or may take effect later. If it has
	// taken effect, Claim.Seen in the consumer's next claim shows it, and that claim returns the
	// same messages again. If it has not, Claim.Seq and Claim.Repeat in the next claim prevent it
	// from doing so. If the consumer does not claim again, the messages return when their leases
	// expire, which counts as a crash for each message that began with the claim.
	//
	// Claim removes index entries whose records are gone. Auditor.Lost counts them. A message that
	// this version cannot read stays scheduled, does not delay other messages, and is counted in
	// Counts.Unreadable.
	Claim(ctx context.Context, claim Claim) (Claimed, error)

	// Apply makes one transition for each message in the batch. Cancel, Reschedule, Repeat, Replay
	// and Purge take effect once: see [Call].
	Apply(ctx context.Context, batch Batch) ([]Outcome, error)

	// Pause pauses or resumes a partition. It takes effect once: see [Call]. Pausing a paused
	// partition, or resuming a partition that is not paused, has no effect. A pause lasts until the
	// partition is resumed, across restarts.
	//
	// After Pause has returned, no message in the partition begins. Claim leases no new messages
	// and sets Claimed.Paused, and Begin returns [StatusPaused] for a leased message. All other
	// transitions continue. Claims still end expired leases and repeat answers that were lost. The
	// store sends a hint with Due 0 when the partition is paused or resumed.
	Pause(ctx context.Context, pause Pause) error

	// Get returns a message, or [ErrNotFound] if no message has this id.
	Get(ctx context.Context, partition int, id string) (Record, error)

	// List returns up to limit messages in one state, with their bodies, ordered by time (due time,
	// end of the lease, or death) and id. StateLeased selects leased and firing messages. The
	// cursor is empty for the first page, and the last page returns an empty cursor. A page ends
	// early once its bodies total 4 MiB or more. A message that changes between two calls may be
	// missed or returned twice.
	List(ctx context.Context, partition int, state State, cursor string, limit int) ([]Record, string, error)

	// Count returns the counts of a partition.
	Count(ctx context.Context, partition int) (Counts, error)

	// CountDue returns, for each duration, the number of scheduled messages that are due at most
	// that long, rounded up to milliseconds, after now on the store's clock. There are 1 to 64
	// durations, none negative, in ascending order. The number for 0 equals Counts.Due. The numbers
	// for later times may be estimates.
	CountDue(ctx context.Context, partition int, within []time.Duration) ([]int64, error)

	// Heartbeat makes a consumer a member of the queue for another ttl and returns all members, as
	// Members does. A ttl of 0 removes the consumer. The store sets the member's Seen and Until
	// from its clock.
	Heartbeat(ctx context.Context, member Member, ttl time.Duration) ([]Member, error)

	// Members returns the members of the queue according to their last heartbeats, sorted by name.
	// If a store knows only the name of a member, the other fields are zero.
	Members(ctx context.Context) ([]Member, error)

	// Watch sends a hint when a message becomes the earliest in its partition. It closes the
	// channel when ctx ends, or when hints are off; the next call then returns the reason. Hints
	// may be lost or late: they affect latency only, never correctness.
	Watch(ctx context.Context) (<-chan Hint, error)
}

// Checker is implemented by a [Backend] if the safety of its messages depends on the store's
// external configuration. The queue calls Check after Open and about once a minute, more often
// while Check returns ErrUnsafe, and reports an error that differs from the previous one.
type Checker interface {
	// Check returns nil if the configuration still meets Open's requirements, and an error that
	// wraps [ErrUnsafe] if the store may lose messages. If only hints are off, the error wraps
	// [errors.ErrUnsupported], and the queue is healthy. If the store is unreachable, the error
	// wraps [ErrUnavailable], which the queue does not report.
	Check(ctx context.Context) error
}

// Auditor is implemented by a [Backend] that can check the messages in a partition for damage.
type Auditor interface {
	// Audit finds records that are in no set, and set members without a record. If repair is true,
	// it schedules the former (dead letters stay dead, and messages in flight get a new lease) and
	// removes the latter. It also checks Counts.DeadBytes.
	Audit(ctx context.Context, partition int, repair bool) (AuditReport, error)

	// Lost returns the number of messages whose records a server evicted or a user deleted: those
	// that claims and audits have removed since the queue was created, and those still in a set. A
	// key that was lost as a whole counts as one more message. damage describes such keys until
	// Audit has repaired the partition. It wraps [ErrUnsafe] unless the store accepts their loss.
	// The queue calls Lost after Open, about once a minute, and after a claim with Claimed.Lost,
	// and reports new damage, or a number that has risen.
	Lost(ctx context.Context, partition int) (n uint64, damage, err error)
}

// Lister is implemented by a [Store] that can list and delete its queues.
type Lister interface {
	// Queues returns the sorted names of all queues, including partly deleted ones.
	Queues(ctx context.Context) ([]string, error)

	// DeleteQueue deletes a queue with its messages, counters and members. It returns [ErrNoQueue]
	// if the queue does not exist, even if an earlier, unanswered call has deleted it.
	//
	// Calls to backends of a deleted queue return ErrNoQueue until it is created again. They then
	// use the new queue, or return [ErrPartitions] if it has a different number of partitions.
	//
	// An interrupted DeleteQueue may have deleted some of the messages. Open then returns
	// ErrNoQueue, and another DeleteQueue deletes the rest.
	DeleteQueue(ctx context.Context, queue string) error
}

// MaxBatch is the maximum number of messages in one transition.
const MaxBatch = 256

// State is the state of a message: see [Backend].
type State uint8

// The states of a message.
const (
	StateScheduled State = iota + 1
	StateLeased          // claimed by a consumer and not begun
	StateFiring          // begun: its handler is running or is about to run
	StateDead            // kept as a dead letter
)

// Record is a message as stored.
type Record struct {
	ID          string
	Body        []byte
	Enqueued    Instant
	Due         Instant // time of the next delivery
	MaxAttempts int     // failed deliveries after which it is dead
	Attempts    int     // failed deliveries
	Crashes     int     // deliveries whose lease expired
	State       State
	Token       uint64  // of the last claim; 0: none
	LeaseEnd    Instant // of leased and firing messages
	Died        Instant // of dead letters
	Reason      string  // the last error, at most 512 bytes; a store may replace bytes that are not text
	Repeat      string  // as in PutItem
	Planned     Instant // of recurring messages: time of the run; Never: a firing message is marked, see Backend
	Postponed   int     // postponements since the last failure, crash or Again
}

// Call makes a call without a token take effect at most once, however often copies of it are sent
// and however late they arrive. A caller sends another copy when a reply was lost. The connection
// may still deliver the earlier copy later.
//
// A store keeps the number and the statuses of each caller's last call at least until the call's
// NotAfter has passed. A copy of that call changes nothing and returns the same statuses, even if
// the messages have changed since then. The store rejects a call with a [LateError], and changes
// nothing, if
//
//   - NotAfter has passed on the store's clock, or is not later than the NotAfter of a call that
//     the store has forgotten,
//   - NotAfter is more than two hours ahead, or
//   - the number is lower than in the caller's last call.
//
// These rules hold even if the store's clock is set forward or back: a forgotten call can no longer
// take effect. All copies of a call have the same number and the same messages. NotAfter may
// differ.
type Call struct {
	// Caller is unique among the callers of a partition. Each caller has one call in progress at a
	// time. If Caller is empty, no copies of the call are sent.
	Caller string

	Seq      uint64  // increases with each call by the caller
	NotAfter Instant // last instant at which the call may take effect
}

// LateError means that a store has rejected a copy of a [Call]. The copy has changed nothing.
type LateError struct {
	Now     Instant // the store's clock, or a later time that it has shown; NotAfter must be later
	Unknown bool    // an earlier copy may have taken effect and been forgotten
}

// Error implements error.
func (e *LateError) Error() string {
	return "the call came too late: the store's clock shows " + e.Now.Time().UTC().Format(time.RFC3339Nano)
}

// Put stores up to [MaxBatch] messages with different ids in one partition.
type Put struct {
	Partition int
	Call      Call
	Replace   bool      // replace a message with the same id that has not begun or is dead: see Backend
	Items     []PutItem // up to MaxBatch, with different ids
}

// PutItem is a message to store. It is due at At, or immediately if At has passed. If At is 0, it
// is due Delay after now on the store's clock.
type PutItem struct {
	ID          string
	Body        []byte
	Delay       time.Duration
	At          Instant
	MaxAttempts int    // see Record.MaxAttempts
	Repeat      string // series of a recurring message, at most 255 bytes; Planned is then the due time
}

// Member is a consumer of a queue.
type Member struct {
	Name       string // unique among the members: 1 to 64 bytes
	Host       string // host name, at most 255 bytes; empty: unknown
	PID        int    // process id on the host
	Partitions []int  // owned at the last heartbeat, ascending
	Capacity   int    // number of messages that it handles concurrently; 0: unknown; -1: a tool
	Free       int    // how many more it could have handled at some time since the previous heartbeat

	Waiting    int           // messages that are due and are waiting in the consumer for a handler
	WaitingFor time.Duration // time since the first of them was due
	OldestRun  time.Duration // time since the longest-running message was passed to a handler or returned by Take; 0: none

	Seen  Instant // last heartbeat; moves with a clock that is set back
	Until Instant // when the membership ends without another heartbeat
}

// Pause pauses a partition, or resumes it if Paused is false.
type Pause struct {
	Partition int
	Call      Call
	Paused    bool
}

// Claim asks for messages.
type Claim struct {
	Partition  int
	Horizon    time.Duration // claim messages due until now plus Horizon on the store's clock
	Max        int           // number of messages, 0 to MaxBatch; 0 only ends expired leases
	MaxBytes   int           // size of their bodies; one message is claimed regardless of its size
	Visibility time.Duration // lease of a message that begins with the claim, from now
	Hold       time.Duration // lease of others, from now, or from the due time if that is later; 0: Visibility
	Begin      int           // number of messages that begin if they are due and not suspects
	MaxCrashes int           // number of crashes at which a message becomes dead; 0: no limit

	// Consumer names the consumer, which has one claim from a partition in progress at a time. The
	// name has 1 to 64 bytes and no line break. Seen is the highest token that the consumer has
	// received from this partition.
	//
	// If an earlier claim by the same consumer has assigned tokens above Seen, the answer to that
	// claim was lost. This claim then returns the messages from the earlier one that are still
	// leased or firing, with the same tokens and new leases, and claims no others. Messages that
	// the consumer has begun or extended may be omitted. Max, MaxBytes and Begin do not limit them.
	// A lease that has expired but has not been ended is renewed as well, so a lost answer causes
	// no crash as long as the consumer claims again.
	//
	// For each partition, a store remembers the last claim by each of 16 consumers, and forgets
	// older ones. It remembers nothing for an empty name.
	Consumer string
	Seen     uint64

	// Seq increases with each claim by the consumer from this partition. 0 means that its claims
	// have no numbers. Repeat means that the consumer has received no answer to its previous claim.
	//
	// A store also remembers the number of a consumer's last claim that returned messages or had
	// Repeat set. A claim with a lower number changes nothing and returns no messages, because the
	// consumer has received the answer to a later claim and has dropped this one. Therefore, once a
	// claim with Repeat has been answered, an earlier claim that a dead connection delivers late
	// takes no leases.
	Seq    uint64
	Repeat bool
}

// Claimed is the result of a claim.
type Claimed struct {
	Records    []Record  // the claimed messages, ordered by due time and id
	Now        time.Time // the store's clock at some time during the call, at full resolution
	Next       Instant   // earliest due time of a readable scheduled message; 0: none
	Lease      Instant   // end of the first lease to expire, including this claim's; 0: none
	Unreadable int       // scheduled messages that claims could not read, as in Counts
	Paused     bool      // the partition is paused: only messages from a lost answer are returned
	Lost       bool      // the result of Auditor.Lost has changed; valid even with an error
}

// Op is a transition.
type Op uint8

// The transitions of [Backend].Apply, each with the possible statuses of its outcomes. Begin, Ack,
// Retry, Bury, Release, Extend and Expire need the token of the claim. Repeating one of these
// returns Done again, except for Ack and Expire, which return NotFound. Cancel, Reschedule, Repeat,
// Replay and Purge have a [Call] instead. Stores contain these numbers, so a new transition is
// added at the end.
const (
	OpBegin      Op = iota + 1 // Done, Early, Paused, LeaseLost. A repetition renews the lease
	OpAck                      // Done, LeaseLost, NotFound
	OpRetry                    // Done, LeaseLost. Due at At or after Delay, with Reason: see Change.Again
	OpBury                     // Done, LeaseLost. With Reason
	OpRelease                  // Done, LeaseLost. Firing messages are released as well
	OpExtend                   // Done, Interrupted, LeaseLost. Until Delay from now, or from the due time if that is later
	OpCancel                   // Done, Firing, Interrupted, NotFound
	OpReschedule               // Done, Firing, NotFound. To At or, if that is 0, after Delay
	OpReplay                   // Done, NotFound. Due after Delay; also for a recurring message scheduled at Never
	OpPurge                    // Done, NotFound
	OpExpire                   // Done, LeaseLost, NotFound. OpAck for an expired message
	OpRepeat                   // Done, Firing, NotFound. Like OpReschedule, but also sets Repeat and Planned; without Repeat the due time stays
)

// Batch is one transition for up to [MaxBatch] different messages in a partition.
type Batch struct {
	Partition  int
	Op         Op
	Call       Call          // for Cancel, Reschedule, Repeat, Replay and Purge
	Visibility time.Duration // Begin: the new lease, from now; 0: unchanged
	Lead       time.Duration // Begin: a message may begin up to Lead before its due time
	Changes    []Change
}

// Change is the transition of one message.
type Change struct {
	ID        string
	Token     uint64        // of the claim; not used by transitions with a Call
	Delay     time.Duration // Retry, Reschedule, Replay: until due; Extend: the new lease
	Begun     time.Duration // Extend: replaces Delay if the message has begun; 0: Delay
	At        Instant       // Reschedule, Repeat and Retry: due time; 0: Delay applies
	Repeat    string        // Repeat: the new series, at most 255 bytes; empty: none
	Reason    string        // Retry and Bury
	Interrupt bool          // Cancel: mark a firing message, and send a Hint with its ID

	// Retry counts one more attempt and sets Postponed to 0. With Uncounted it only counts one more
	// postponement, and Counters do not change. With Again the message was handled: it counts as
	// acked and enqueued, and Attempts, Crashes and Postponed become 0. At most one of the two
	// fields is set. With Again and a Reason, the last attempt in a run has failed, and the message
	// counts as retried instead.
	Uncounted, Again bool

	// Incarnation restricts Cancel to a message that was enqueued at this instant, and Replay and
	// Purge to a message that died at this instant. The status for any other message is NotFound. 0
	// means no restriction.
	//
	// With Retry and Again, Incarnation is the Planned of the run that ended. If the record still
	// has this Planned, the new due time replaces it. Otherwise the series was changed during the
	// run, and the message is due at Planned, or now if that is past. If OpRepeat or Cancel has
	// ended the series, the message is removed, and counts as acked or, with a Reason, cancelled.
	Incarnation Instant
}

// Status is the result of a transition of one message.
type Status uint8

// The results of transitions. A zero Status is none of them.
const (
	StatusDone        Status = iota + 1
	StatusDuplicate          // Put: a message with this id exists and is not dead
	StatusFiring             // the message has begun; also for a Put with Replace
	StatusNotFound           // no such message, or dead (Replay and Purge: not dead)
	StatusLeaseLost          // the token is not the current one: the lease is over
	StatusEarly              // Begin: the message is not due yet, or another of its transitions is in progress
	StatusPaused             // Begin: the partition is paused
	StatusDead               // Put: a dead letter with this id exists
	StatusInterrupted        // Cancel with Interrupt, Extend: done, and the firing message is marked
)

// Outcome is the result of one change.
type Outcome struct {
	Status Status
	Now    time.Time // the store's clock, the same for the whole batch
	Due    Instant   // Begin: the due time
	Lease  Instant   // Begin and Extend: the new end of the lease; 0: unchanged
}

// Counts has the numbers of messages in a partition, and the partition's counters.
type Counts struct {
	Now        Instant
	Scheduled  int64   // scheduled messages, including due ones but not Unreadable ones
	Due        int64   // scheduled messages that are due; may be an estimate beyond a million
	InFlight   int64   // leased or firing messages
	Dead       int64   // dead letters
	DeadBytes  int64   // size of the bodies of dead letters, in bytes
	Unreadable int64   // scheduled messages that a claim could not read
	NextDue    Instant // earliest due time of a scheduled message; 0: none
	Paused     bool    // see Backend.Pause

	Counters
}

// Counters count the transitions of a partition or a queue since it was created. They never
// decrease.
type Counters struct {
	Enqueued  uint64 // messages that were stored, or handled and made due again
	Acked     uint64 // messages that were handled
	Retried   uint64 // deliveries that failed and were rescheduled
	Buried    uint64 // messages that became dead letters
	Cancelled uint64 // cancelled messages
	Crashed   uint64 // deliveries that ended because their leases expired
	Trimmed   uint64 // dead letters that were dropped because of their number, size or age
	Expired   uint64 // messages that were removed after their ExpireAt instead of being delivered
}

// AuditReport is the result of an audit.
type AuditReport struct {
	Records    int64 // records that were read
	Orphans    int64 // records in no set
	Strays     int64 // set members, or states, without a record
	Unreadable int64 // records that are damaged or of a newer version; they are kept
	Wrong      int64 // wrong sums, such as Counts.DeadBytes
	Repaired   int64 // faults that were repaired
}

// Hint announces that a message in a partition is due at Due, before the partition's other
// scheduled messages. Due 0 means that only a claim can tell when.
type Hint struct {
	Partition int
	Due       Instant
	ID        string // a firing message that Cancel has marked with Change.Interrupt; Due is 0
}

var (
	stateNames = []string{"Scheduled", "Leased", "Firing", "Dead"}
	opNames    = []string{
		"Begin", "Ack", "Retry", "Bury", "Release", "Extend",
		"Cancel", "Reschedule", "Replay", "Purge", "Expire", "Repeat",
	}
	statusNames = []string{
		"Done", "Duplicate", "Firing", "NotFound", "LeaseLost", "Early", "Paused", "Dead", "Interrupted",
	}
)

// String returns the name of the state without its prefix, or "State(n)" for an undeclared value.
func (s State) String() string { return nameOf("State", stateNames, uint8(s)) }

// String returns the name of the transition without its prefix, or "Op(n)" for an undeclared value.
func (o Op) String() string { return nameOf("Op", opNames, uint8(o)) }

// String returns the name of the status without its prefix, or "Status(n)" for an undeclared value.
func (s Status) String() string { return nameOf("Status", statusNames, uint8(s)) }

// nameOf returns the name of a value of a type whose declared values start at 1.
func nameOf(kind string, names []string, n uint8) string {
	if n == 0 || int(n) > len(names) {
		return kind + "(" + strconv.Itoa(int(n)) + ")"
	}
	return names[n-1]
}

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
