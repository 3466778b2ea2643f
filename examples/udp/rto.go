package main

import "time"

// timing says how long to wait for acknowledgements.
type timing struct {
	initial time.Duration // before anything was measured
	least   time.Duration
	most    time.Duration
	tick    time.Duration // of the clock that measures
	tries   int           // timeouts in a row after which the other side counts as gone
}

// giveUpAfter is an upper bound of how long a message is tried.
func (t timing) giveUpAfter() time.Duration { return t.most * time.Duration(t.tries+1) }

// rtoEstimator computes the retransmission timeout from measured round trips, as RFC 6298 says: the
// mean and four times the mean deviation, both smoothed.
type rtoEstimator struct {
	timing
	smoothed  time.Duration
	deviation time.Duration
	rto       time.Duration
	measured  bool
}

func newEstimator(t timing) rtoEstimator { return rtoEstimator{timing: t, rto: t.initial} }

// sample takes a measured round trip of a message that was sent once. One that was sent twice says
// nothing: nobody knows which of the two was answered (Karn). Until there is a sample, the timeout
// stays as long as it has become: else a path on which every round trip takes longer than the
// timeout would have everything sent twice, and never be measured.
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

// usual is the time in which most acknowledgements come.
func (e *rtoEstimator) usual() time.Duration { return e.smoothed + 2*e.deviation }

// backOff doubles the timeout, after one.
func (e *rtoEstimator) backOff() { e.rto = e.clamp(2 * e.rto) }

func (e *rtoEstimator) clamp(d time.Duration) time.Duration { return min(max(d, e.least), e.most) }
