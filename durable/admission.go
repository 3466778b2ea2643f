package durable

import (
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// admission decides how much a consumer claims and begins. It is guarded by the dispatcher's mutex.
//
// Messages of its own partitions are claimed ahead of their due times, up to a share of Prefetch
// and PrefetchBytes. Claims of other partitions, and all claims of a crowded consumer, only take
// messages that are due, at most as many as takers were granted. Claims of own partitions with
// overdue messages also take what slow takers handle within lateTime. Thus messages that this
// consumer cannot handle soon stay in the store, where any consumer can claim them. Partitions wait
// for free takers in turn.
//
// A message of an own partition that is due when it is claimed begins with the claim. This saves
// the call that would begin it, which is about a third of the store's work, and half of the latency
// of a message without a delay.
type admission struct {
	opts      *ConsumerOptions
	handover  *handover // the waiting takers, and the messages that have begun
	budget    budget    // bounds what begins beside the takers
	owned     int       // number of own partitions
	readAhead readAhead
	waiting   fifo[*share]           // partitions that wait for free takers, in turn
	ready     lazyFIFO[*heldMessage] // messages that are due and wait for free takers
	suspects  lazyFIFO[*heldMessage] // suspects that are due and wait for their turn

	freeOthers    int // other members that have a free taker
	freeElsewhere int // of these, the ones in other processes

	// crowded means that a message has waited too long for a taker, and that no taker has waited
	// for a message since then.
	crowded bool

	checks uint // number of calls to check

	// reserved counts the takers for which a call to the store is in progress or a message waits
	// for its due time. Takers of slow partitions count in slow instead.
	reserved, slow int
}

// share is the share of one partition in a consumer: what it has claimed and what it was granted.
type share struct {
	partition int
	wake      func() // makes the partition's claimer plan its next claim; does not block
	own       bool   // the consumer owns the partition

	unbegun int  // messages claimed and not begun
	bytes   int  // size of the bodies of these messages
	full    bool // the claimer would claim more if these were fewer

	paused    bool // as of the last answered claim; nothing is claimed, begun or delivered
	overdue   bool // the store may have messages that are due
	granted   int  // takers reserved for the next claim
	claiming  int  // takers reserved for the claim in progress
	waiting   bool // the share is in admission.waiting
	beginning int  // messages whose begin was not answered yet
	reserved  int  // takers reserved for the partition
	answered  uint // admission.checks when the store last answered or had no call
	slow      bool // the store has not answered for long
}

// A message that is due waits for a taker for about lateTime before other consumers get it. For
// the same time an unanswered call keeps takers from other partitions, for example if a master of a
// Cluster is unreachable.
const (
	checkPeriod = 50 * time.Millisecond
	lateChecks  = 3 // number of checks that a wait of at least lateTime includes
	lateTime    = (lateChecks - 1) * checkPeriod
)

// leavePause is the time between two releases of suspects that wait for their turn.
const leavePause = 10 * time.Second

// urgent returns how long before its due time a message is claimed without delay: see
// partitionClaimer.
func (o *ConsumerOptions) urgent() time.Duration { return o.Horizon / 5 }

// hold returns the lease of a message that has not begun.
func (o *ConsumerOptions) hold() time.Duration { return min(o.Membership, o.Visibility) }

// quota returns the number of messages that each own partition may have claimed and not begun.
func (a *admission) quota() int { return max(1, a.opts.Prefetch/max(1, a.owned)) }

// quotaBytes returns the maximum size of the bodies of these messages, in bytes.
func (a *admission) quotaBytes() int { return max(1, a.opts.PrefetchBytes/max(1, a.owned)) }

// claimed counts a message that was claimed and has not begun.
func (a *admission) claimed(s *share, size int) {
	s.unbegun++
	s.bytes += size
}

// unclaimed reverses claimed: the message has begun or is gone.
func (a *admission) unclaimed(s *share, size int) {
	s.unbegun--
	s.bytes -= size
	if s.full && s.unbegun <= a.quota()/2 && s.bytes <= a.quotaBytes()/2 {
		s.full = false
		s.wake()
	}
}

// capacity returns how many messages and bytes a partition may claim, and how far ahead. A quarter
// of the quota is reserved for messages that are due soon, so that they do not wait behind later
// ones.
func (a *admission) capacity(s *share) (messages, bytes int, horizon time.Duration) {
	most := a.quotaBytes()
	messages, bytes = a.quota()-s.unbegun, most-s.bytes
	s.full = messages <= 0 || bytes <= 0
	if s.full {
		return 0, 0, 0
	}
	if m, b := messages-a.quota()/4, bytes-most/4; m > 0 && b > 0 {
		return m, b, a.opts.Horizon
	}
	return messages, bytes, 2 * a.opts.urgent()
}

// pushReady adds a message that has become due.
func (a *admission) pushReady(h *heldMessage) {
	h.state, h.since = heldReady, a.checks
	a.readyList(h).push(h)
}

// readyList returns the list in which a message waits when it is due.
func (a *admission) readyList(h *heldMessage) *lazyFIFO[*heldMessage] {
	if h.suspect() {
		return &a.suspects
	}
	return &a.ready
}

// popReady removes and returns the next message to begin, or returns false if there is none. A
// suspect whose turn it is comes first.
func (a *admission) popReady() (*heldMessage, bool) {
	if h, ok := a.suspects.first(); ok && turn.CompareAndSwap(nil, h) {
		return a.suspects.pop()
	}
	return a.ready.pop()
}

// takers returns the number of takers that wait or are expected soon.
func (a *admission) takers() int { return a.handover.takers.len() + a.readAhead.messages }

// spare returns the number of takers, up to limit, for which no message has begun or is beginning,
// and which the budget allows to be used. It may be negative.
func (a *admission) spare(limit int) int {
	return a.budget.reserve(a, min(limit, a.takers()-a.reserved-a.handover.begun.len()))
}

// reserve reserves n takers for a partition, or frees them if n is negative.
func (a *admission) reserve(s *share, n int) {
	if s.reserved == 0 {
		s.answered = a.checks
	}
	s.reserved += n
	if s.slow {
		a.slow += n
	} else {
		a.reserved += n
	}
}

// grant reserves spare takers for the next claim of a partition, and reports whether it did. It
// leaves some to other partitions, but reserves at least a quarter of the takers that the budget
// allows, because a small claim costs nearly as much as a large one.
func (a *admission) grant(s *share) bool {
	n := a.spare(a.takers())
	least := max(1, min(driver.MaxBatch/2, (n+a.reserved+a.handover.begun.len())/4))
	if n < least {
		return false
	}
	s.granted = min(driver.MaxBatch, max(least, (n+1)/2))
	a.reserve(s, s.granted)
	return true
}

// ungrant frees the takers of a claim that is not made.
func (a *admission) ungrant(s *share) {
	a.reserve(s, -s.granted)
	s.granted = 0
}

// emptyClaim returns a claim of no messages.
func (a *admission) emptyClaim(s *share) driver.Claim {
	return driver.Claim{
		Partition: s.partition, MaxBytes: maxBatchBytes, Visibility: a.opts.Visibility, Hold: a.opts.hold(),
		MaxCrashes: a.opts.MaxCrashes,
	}
}

// plan returns the next claim of a partition. It returns false if no claim is necessary now. If the
// partition waits for a taker or for room, its claimer is woken. If must is set, plan returns a
// claim in any case, because claims also end expired leases.
func (a *admission) plan(s *share, must bool) (claim driver.Claim, ok bool) {
	claim = a.emptyClaim(s)
	ahead := s.own && !a.crowded
	if ahead && !s.overdue {
		a.ungrant(s)
		a.claimAhead(&claim, s, driver.MaxBatch)
		return claim, must || claim.Max > 0
	}
	if s.granted == 0 && a.waiting.len() == 0 { // else others come first
		a.grant(s)
	}
	claim.Max, s.claiming, s.granted = s.granted, s.granted, 0
	if s.own && s.beginning == 0 { // else the messages would overtake those that are beginning
		claim.Begin = claim.Max
	}
	if ahead && a.readAhead.messages < fastReadAhead {
		a.claimAhead(&claim, s, claim.Max+a.readAhead.within(lateTime)-a.ready.len())
	}
	if claim.Max == 0 && !s.paused && !s.waiting {
		s.waiting = true
		a.waiting.push(s)
	}
	return claim, must || claim.Max > 0
}

// claimAhead makes a claim take up to most messages if its partition has room for them, including
// messages that are not due yet.
func (a *admission) claimAhead(claim *driver.Claim, s *share, most int) {
	messages, bytes, horizon := a.capacity(s)
	if n := min(messages, most, driver.MaxBatch); n > claim.Max {
		claim.Max, claim.MaxBytes, claim.Horizon = n, min(bytes, maxBatchBytes), horizon
	}
}

// grantNext grants takers to waiting partitions, in turn.
func (a *admission) grantNext() {
	for a.waiting.len() > 0 && a.grant(a.waiting.first()) {
		s := a.waiting.pop()
		s.waiting = false
		s.wake()
	}
}

// claimEnded records the end of a claim.
func (a *admission) claimEnded(s *share, overdue bool) {
	a.reserve(s, -s.claiming)
	s.claiming = 0
	a.callEnded(s)
	s.overdue = overdue
}

// callEnded records an answer of the store, or the failure of a call.
func (a *admission) callEnded(s *share) {
	s.answered = a.checks
	if s.slow {
		s.slow = false
		a.slow -= s.reserved
		a.reserved += s.reserved
	}
}

// check is called every checkPeriod while takers are reserved or messages wait. It frees the takers
// of partitions whose calls are slow. The calls continue, and the messages that they begin wait for
// later takers.
func (a *admission) check(s *share) {
	if s.reserved > 0 && !s.slow && a.checks-s.answered >= lateChecks {
		s.slow = true
		a.reserved -= s.reserved
		a.slow += s.reserved
	}
}

// readAhead is the number of messages that may begin before a taker waits: about as many as the
// takers recently took in five milliseconds. Fast handlers then need not wait for the store between
// two messages, and many messages share a call. If handlers are slow, no message begins before a
// taker waits.
type readAhead struct {
	messages int // number of messages
	since    time.Time
	count    int // deliveries since then
}

const (
	readAheadTime   = 5 * time.Millisecond
	readAheadWindow = 2 * readAheadTime
	maxReadAhead    = 1024
	fastReadAhead   = 64 // from here on, takers are so fast that all messages begin with their claims
)

// within returns the number of messages that the takers take within d at their recent rate.
func (r *readAhead) within(d time.Duration) int { return r.messages * int(d/readAheadTime) }

// delivered records n deliveries.
func (r *readAhead) delivered(n int, now time.Time) {
	r.count += n
	passed := now.Sub(r.since)
	if passed < readAheadWindow {
		return
	}
	r.messages = min(maxReadAhead, int(float64(r.count)*float64(readAheadTime)/float64(passed)))
	r.since, r.count = now, 0
}
