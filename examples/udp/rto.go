package main

import "time"

// timing has the parameters of the retransmission timeout.
type timing struct {
	initial time.Duration // before the first measurement
	least   time.Duration
	most    time.Duration
	tick    time.Duration // resolution of the clock
	tries   int           // consecutive timeouts after which the sender gives up
}

// giveUpAfter returns an upper bound of the time until a sender gives up.
func (t timing) giveUpAfter() time.Duration { return t.most * time.Duration(t.tries+1) }

// rtoEstimator computes the retransmission timeout from measured round trips, as in RFC 6298: the
// smoothed mean plus four times the smoothed mean deviation.
type rtoEstimator struct {
	timing
	smoothed  time.Duration
	deviation time.Duration
	rto       time.Duration
	measured  bool
}

func newEstimator(t timing) rtoEstimator { return rtoEstimator{timing: t, rto: t.initial} }

// sample adds the round trip of a message that was sent once. A retransmitted message gives no
// sample, because the acknowledgement may answer either transmission (Karn's algorithm). Until the
// next sample the timeout keeps its backoff. Otherwise, on a path whose round trips exceed the
// timeout, every message would be sent twice and no round trip would be measured.
func (e *rtoEstimator) sample(r time.Duration) {
	if !e.measured {
		e.measured = true
		e.smoothed, e.deviation = r, r/2
	} else {
		e.deviation += ((e.smoothed - r).Abs() - e.deviation) / 4 // before the mean moves
		e.smoothed += (r - e.smoothed) / 8
	}
	e.rto = e.clamp(e.smoothed + max(e.tick, 4*e.deviation))
}

// usual returns the time within which most acknowledgements arrive.
func (e *rtoEstimator) usual() time.Duration { return e.smoothed + 2*e.deviation }

// backOff doubles the timeout after a timeout.
func (e *rtoEstimator) backOff() { e.rto = e.clamp(2 * e.rto) }

func (e *rtoEstimator) clamp(d time.Duration) time.Duration { return min(max(d, e.least), e.most) }
