package durable

import (
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// admission decides how much a consumer claims and begins: how many messages each partition may
// have claimed and not begun (its share of Prefetch and PrefetchBytes), and how many messages may
// begin, which is about as many as there are takers. It has no lock and no clock. The dispatcher's
// mutex guards it.
//
// A message that is due when it is claimed may begin with the claim. That saves the call by which
// it would begin, about a third of the store's work, and half of the latency of a message without a
// delay. A claim begins at most as many messages as it was granted takers; these takers are set
// aside while the claim is under way.
//
// If takers are many and quick, a partition with overdue messages claims only what it was granted,
// because each other message would need a call of its own to begin. A partition that gets no grant
// is hungry and waits for its turn.
type admission struct {
	opts    *ConsumerOptions
	owned   int // partitions
	waiting int // takers that wait
	begun   int // messages that have begun and wait for a taker
	pace    pace
	hungry  fifo[*share]

	// beginning counts the messages that the store was asked to begin and has not answered, those
	// that have begun and wait for their due time, and the granted takers. Partitions that stand
	// aside do not count.
	beginning int
}

// share is what one partition has of a consumer.
type share struct {
	partition int
	wake      func() // makes the partition's pump plan its next claim; it does not block

	unbegun int  // messages claimed and not begun
	bytes   int  // of their bodies
	starved bool // the pump would claim more if there were fewer

	paused  bool          // the last claim said so; nothing is claimed, begun or handed to a taker
	overdue bool          // the store has messages that are due, as far as is known
	granted int           // takers set aside for the claim under way
	hungry  bool          // the share is in admission.hungry
	claims  uint          // the claims that have ended
	trip    time.Duration // of the last claim, at most beginPatience

	asked int  // messages whose begin has not been answered
	call  uint // odd while a begin call is under way; it rises by one at the start and end of each
	away  bool // that call takes long, and the partition stands aside
}

// urgent is how far ahead messages are claimed at once; see pump.
func (o *ConsumerOptions) urgent() time.Duration { return o.Horizon / 5 }

// quota is the number of messages that each owned partition may have claimed and not begun.
func (a *admission) quota() int { return max(1, a.opts.Prefetch/max(1, a.owned)) }

// quotaBytes is the number of bytes of these messages.
func (a *admission) quotaBytes() int { return max(1, a.opts.PrefetchBytes/max(1, a.owned)) }

// claimed counts a message that was claimed and has not begun.
func (a *admission) claimed(s *share, size int) {
	s.unbegun++
	s.bytes += size
}

// unclaimed ends what claimed began: the message has begun or is gone.
func (a *admission) unclaimed(s *share, size int) {
	s.unbegun--
	s.bytes -= size
	if s.starved && s.unbegun <= a.quota()/2 && s.bytes <= a.quotaBytes()/2 {
		s.starved = false
		s.wake()
	}
}

// room is how many messages and bytes a partition may claim, and how far ahead. A quarter is
// reserved for messages that are due soon, so that they need not wait behind later ones.
func (a *admission) room(s *share) (messages, bytes int, horizon time.Duration) {
	most := a.quotaBytes()
	messages, bytes = a.quota()-s.unbegun, most-s.bytes
	s.starved = messages <= 0 || bytes <= 0
	if s.starved {
		return 0, 1, a.opts.Horizon
	}
	if m, b := messages-a.quota()/4, bytes-most/4; m > 0 && b > 0 {
		return m, b, a.opts.Horizon
	}
	return messages, bytes, 2 * a.opts.urgent()
}

// quickPace is the number of messages ahead from which takers are quick.
const quickPace = 64

func (a *admission) quick() bool { return a.pace.ahead >= quickPace }

// free is the number of takers for which no message is under way.
func (a *admission) free() int { return a.waiting + a.pace.ahead - a.beginning - a.begun }

// least is the smallest grant. If takers are quick it is a quarter of them, as a small claim costs
// nearly as much as a large one.
func (a *admission) least() int {
	if !a.quick() {
		return 1
	}
	return max(1, min(driver.MaxBatch/2, (a.waiting+a.pace.ahead)/4))
}

// grant sets takers aside for the next claim of a partition, unless messages that it claimed before
// are about to begin; these come first.
func (a *admission) grant(s *share) {
	n := a.free()
	if s.granted > 0 || !s.overdue || s.asked > 0 || n < a.least() {
		return
	}
	if !a.quick() {
		n = (n + 1) / 2 // other partitions may need takers, too
	}
	s.granted = min(n, driver.MaxBatch)
	a.beginning += s.granted
}

// ungrant returns the takers of a claim that has ended or takes long.
func (a *admission) ungrant(s *share) {
	a.beginning -= s.granted
	s.granted = 0
}

// plan is what the next claim of a partition may take. It reports false if the partition has to
// wait for a grant. A partition that is stale, that is, was not claimed from for long, does not
// wait, because claims also end leases.
func (a *admission) plan(s *share, stale bool) (claim driver.Claim, ok bool) {
	claim = driver.Claim{Partition: s.partition, MaxCrashes: a.opts.MaxCrashes}
	claim.Max, claim.MaxBytes, claim.Horizon = a.room(s)
	if a.hungry.len() == 0 && (claim.Max > 0 || a.quick()) { // else hungry partitions come first
		a.grant(s)
	}
	claim.Begin = s.granted
	switch {
	case stale || !s.overdue || !a.quick():
		if claim.Begin > claim.Max { // there is no room for as many that are not due yet
			claim.Max, claim.Horizon = claim.Begin, 0
		}
	case s.granted > 0:
		claim.Max, claim.MaxBytes, claim.Horizon = claim.Begin, maxBatchBytes, 0
	default:
		if !s.hungry && !s.away { // a partition that stands aside is woken when it comes back
			s.hungry = true
			a.hungry.push(s)
		}
		return claim, false
	}
	a.sated(s)
	claim.Max, claim.MaxBytes = min(claim.Max, driver.MaxBatch), min(claim.MaxBytes, maxBatchBytes)
	return claim, true
}

// feed grants takers to hungry partitions in turn.
func (a *admission) feed() {
	for range a.hungry.len() {
		if a.quick() && a.free() < a.least() {
			return
		}
		s := a.hungry.pop()
		if a.quick() {
			if a.grant(s); s.granted == 0 && s.overdue && !s.away {
				a.hungry.push(s)
				continue
			}
		}
		s.hungry = false
		s.wake()
	}
}

// sated ends a partition's wait for a grant. A claim that goes without one could not use a grant
// that comes while it is under way, and might keep it for long.
func (a *admission) sated(s *share) {
	if s.hungry {
		s.hungry = false
		a.hungry.keep(func(other *share) bool { return other != s })
	}
}

// disowned ends a partition's wait for a grant, and what it was granted.
func (a *admission) disowned(s *share) {
	a.sated(s)
	a.ungrant(s)
	s.overdue = false
}

// claimEnded notes the end of a claim; trip is negative if it failed.
func (a *admission) claimEnded(s *share, trip time.Duration, overdue bool) {
	a.ungrant(s)
	s.claims++
	s.overdue = overdue
	if trip >= 0 {
		s.trip = min(trip, beginPatience)
	}
}

// asked counts a message that the store is asked to begin.
func (a *admission) asked(s *share) {
	a.beginning++
	s.asked++
}

// answered notes the store's answer. The message counts as beginning until arrived is called.
func (a *admission) answered(s *share) { s.asked-- }

// arrived ends the account of a message that was beginning or waited for its due time.
func (a *admission) arrived() { a.beginning-- }

// beginPatience is how long a call by which messages of a partition begin, or a claim with a grant,
// may keep takers from other partitions. It is long for a call and short for a waiting message.
const beginPatience = 100 * time.Millisecond

// callStarts notes the start of a begin call, and returns its number for standAside.
func (a *admission) callStarts(s *share) (call uint) {
	s.call++
	return s.call
}

// standAside takes a partition out of the account of beginning messages if the call is still under
// way, so that messages of other partitions begin. One master of a Cluster may be away.
func (a *admission) standAside(s *share, call uint) {
	if s.call == call {
		s.away = true
		a.beginning -= s.asked
	}
}

// callEnds takes the partition in again. It reports whether the partition stood aside.
func (a *admission) callEnds(s *share) (away bool) {
	s.call++
	if away = s.away; away {
		s.away = false
		a.beginning += s.asked
	}
	return away
}

// pace is how many messages may begin ahead of takers: about as many as the takers have taken in
// five milliseconds lately. Quick handlers then need not wait for the store between two messages,
// and many messages share a call. If handlers are slow, no message begins before a taker waits.
type pace struct {
	ahead int  // messages
	fixed bool // ahead stays 0
	since time.Time
	count int // of deliveries since then
}

const (
	paceWindow = 10 * time.Millisecond
	mostAhead  = 1024
)

// delivered notes a delivery.
func (p *pace) delivered(now time.Time) {
	p.count++
	passed := now.Sub(p.since)
	if p.fixed || passed < paceWindow {
		return
	}
	p.ahead = min(mostAhead, int(float64(p.count)*float64(paceWindow/2)/float64(passed)))
	p.since, p.count = now, 0
}
