package durable

import (
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// admission decides how much a consumer claims and begins. It limits how many messages each
// partition may have claimed and not begun (its share of Prefetch and PrefetchBytes), and how many
// messages may begin, which is about the number of takers. It has no lock and no clock, and is
// guarded by the dispatcher's mutex.
//
// A message that is due when it is claimed may begin with the claim. This saves the call that would
// begin it, which is about a third of the store's work, and half of the latency of a message
// without a delay. A claim begins at most as many messages as it was granted takers. These takers
// are reserved while the claim is in progress.
//
// If there are many fast takers, a partition with overdue messages claims only as many as it was
// granted, because every other message would need a call of its own to begin. A partition without a
// grant waits for one. Partitions are granted takers in turn.
type admission struct {
	opts      *ConsumerOptions
	handover  *handover // the waiting takers, and the messages that have begun
	owned     int       // number of owned partitions
	readAhead readAhead
	waiting   fifo[*share] // partitions that wait for a grant

	// beginning counts the messages that the store was asked to begin and has not answered, the
	// messages that have begun and wait for their due time, and the granted takers. Stalled
	// partitions are excluded.
	beginning int
}

// share is the share of one partition in a consumer: what it has claimed and what it was granted.
type share struct {
	partition int
	wake      func() // makes the partition's claimer plan its next claim; does not block

	unbegun int  // messages claimed and not begun
	bytes   int  // size of the bodies of these messages
	full    bool // the claimer would claim more if these were fewer

	paused    bool          // as of the last claim; nothing is claimed, begun or delivered
	overdue   bool          // the store is believed to have messages that are due
	granted   int           // takers reserved for the claim in progress
	waiting   bool          // the share is in admission.waiting
	claims    uint          // number of finished claims
	roundTrip time.Duration // of the last claim, at most stallTime

	unanswered int  // messages whose begin was not answered yet
	call       uint // odd while a begin call is in progress; incremented at its start and end
	stalled    bool // the begin call is slow
}

// urgent returns how long before its due time a message is claimed without delay: see
// partitionClaimer.
func (o *ConsumerOptions) urgent() time.Duration { return o.Horizon / 5 }

// hold returns the lease of a message that has not begun.
func (o *ConsumerOptions) hold() time.Duration { return min(o.Membership, o.Visibility) }

// quota returns the number of messages that each owned partition may have claimed and not begun.
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
		return 0, 1, a.opts.Horizon
	}
	if m, b := messages-a.quota()/4, bytes-most/4; m > 0 && b > 0 {
		return m, b, a.opts.Horizon
	}
	return messages, bytes, 2 * a.opts.urgent()
}

// fastReadAhead is the number of messages ahead from which takers count as fast.
const fastReadAhead = 64

// fastTakers reports whether there are many fast takers.
func (a *admission) fastTakers() bool { return a.readAhead.messages >= fastReadAhead }

// takers returns the number of takers that wait or are expected soon.
func (a *admission) takers() int { return a.handover.takers.len() + a.readAhead.messages }

// free returns the number of takers for which no message has begun or is beginning. It may be
// negative.
func (a *admission) free() int { return a.takers() - a.beginning - a.handover.begun.len() }

// leastGrant returns the size of the smallest grant. If takers are fast, it is a quarter of them,
// because a small claim costs nearly as much as a large one.
func (a *admission) leastGrant() int {
	if !a.fastTakers() {
		return 1
	}
	return max(1, min(driver.MaxBatch/2, a.takers()/4))
}

// grant reserves takers for the next claim of a partition. Messages that the partition has already
// claimed and that are about to begin take precedence.
func (a *admission) grant(s *share) {
	n := a.free()
	if s.granted > 0 || !s.overdue || s.unanswered > 0 || n < a.leastGrant() {
		return
	}
	if !a.fastTakers() {
		n = (n + 1) / 2 // other partitions may need takers as well
	}
	s.granted = min(n, driver.MaxBatch)
	a.beginning += s.granted
}

// ungrant returns the takers of a claim that has ended or is slow.
func (a *admission) ungrant(s *share) {
	a.beginning -= s.granted
	s.granted = 0
}

// emptyClaim returns a claim of no messages.
func (a *admission) emptyClaim(s *share) driver.Claim {
	return driver.Claim{
		Partition: s.partition, Visibility: a.opts.Visibility, Hold: a.opts.hold(),
		MaxCrashes: a.opts.MaxCrashes,
	}
}

// plan returns the next claim of a partition, or false if the partition must wait for a grant. A
// stale partition, whose last claim was long ago, does not wait, because claims also end expired
// leases.
func (a *admission) plan(s *share, stale bool) (claim driver.Claim, ok bool) {
	claim = a.emptyClaim(s)
	claim.Max, claim.MaxBytes, claim.Horizon = a.capacity(s)
	if a.waiting.len() == 0 && (claim.Max > 0 || a.fastTakers()) { // else others come first
		a.grant(s)
	}
	claim.Begin = s.granted
	switch {
	case stale || !s.overdue || !a.fastTakers():
		if claim.Begin > claim.Max { // there is no room for that many messages that are not due yet
			claim.Max, claim.Horizon = claim.Begin, 0
		}
	case s.granted > 0:
		claim.Max, claim.MaxBytes, claim.Horizon = claim.Begin, maxBatchBytes, 0
	default:
		if !s.waiting && !s.stalled { // the end of its begin call wakes a stalled partition
			s.waiting = true
			a.waiting.push(s)
		}
		return claim, false
	}
	a.endWait(s)
	claim.Max, claim.MaxBytes = min(claim.Max, driver.MaxBatch), min(claim.MaxBytes, maxBatchBytes)
	return claim, true
}

// grantNext grants takers to waiting partitions, in turn.
func (a *admission) grantNext() {
	for range a.waiting.len() {
		if a.fastTakers() && a.free() < a.leastGrant() {
			return
		}
		s := a.waiting.pop()
		if a.fastTakers() {
			if a.grant(s); s.granted == 0 && s.overdue && !s.stalled {
				a.waiting.push(s)
				continue
			}
		}
		s.waiting = false
		s.wake()
	}
}

// endWait ends a partition's wait for a grant. A claim without a grant could not use a grant that
// arrives while the claim is in progress, and might hold it for long.
func (a *admission) endWait(s *share) {
	if s.waiting {
		s.waiting = false
		a.waiting.keep(func(other *share) bool { return other != s })
	}
}

// disowned ends a partition's wait for a grant and returns its grant.
func (a *admission) disowned(s *share) {
	a.endWait(s)
	a.ungrant(s)
	s.overdue = false
}

// claimEnded records the end of a claim. roundTrip is negative if the claim failed.
func (a *admission) claimEnded(s *share, roundTrip time.Duration, overdue bool) {
	a.ungrant(s)
	s.claims++
	s.overdue = overdue
	if roundTrip >= 0 {
		s.roundTrip = min(roundTrip, stallTime)
	}
}

// beginSent counts a message that the store is asked to begin.
func (a *admission) beginSent(s *share) {
	a.beginning++
	s.unanswered++
}

// beginAnswered records the store's answer. The message counts as beginning until beginDone is
// called.
func (a *admission) beginAnswered(s *share) { s.unanswered-- }

// beginDone ends the accounting of a message that was beginning or waited for its due time.
func (a *admission) beginDone() { a.beginning-- }

// stallTime is how long a claim with a grant, or a begin call, may keep takers from other
// partitions. It is long for a call and short for a waiting message.
const stallTime = 100 * time.Millisecond

// callStarts records the start of a begin call and returns its number for stall.
func (a *admission) callStarts(s *share) (number uint) {
	s.call++
	return s.call
}

// stall stalls a partition if its begin call is still in progress, for example because a Cluster
// master is unreachable. Messages of other partitions then begin in place of the messages of the
// call.
func (a *admission) stall(s *share, number uint) {
	if s.call == number {
		s.stalled = true
		a.beginning -= s.unanswered
	}
}

// callEnds records the end of a begin call and reports whether the partition was stalled.
func (a *admission) callEnds(s *share) (stalled bool) {
	s.call++
	if stalled = s.stalled; stalled {
		s.stalled = false
		a.beginning += s.unanswered
	}
	return stalled
}

// readAhead is the number of messages that may begin before a taker waits: about as many as the
// takers recently took in five milliseconds. Fast handlers then need not wait for the store between
// two messages, and many messages share a call. If handlers are slow, no message begins before a
// taker waits.
type readAhead struct {
	messages int  // number of messages
	disabled bool // messages stays 0
	since    time.Time
	count    int // deliveries since then
}

const (
	readAheadWindow = 10 * time.Millisecond
	maxReadAhead    = 1024
)

// delivered records a delivery.
func (r *readAhead) delivered(now time.Time) {
	r.count++
	passed := now.Sub(r.since)
	if r.disabled || passed < readAheadWindow {
		return
	}
	r.messages = min(maxReadAhead, int(float64(r.count)*float64(readAheadWindow/2)/float64(passed)))
	r.since, r.count = now, 0
}
