package chaos

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Check applies the rules to all recorded events. The caller must first wait until the queue is
// empty: Check counts a message that is still queued as lost. The cost is linear in the history.
func (h *History) Check() *Report {
	r := &Report{}
	for i := range h.shards {
		s := &h.shards[i]
		s.mu.Lock()
		for id, m := range s.messages {
			countMessage(r, m)
			h.checkMessage(r, id, m)
		}
		s.mu.Unlock()
	}
	return r
}

func countMessage(r *Report, m *message) {
	if m.recurring {
		r.Series++
		r.Runs += len(m.acks)
		return
	}
	if m.enqueued > 0 {
		r.Enqueued++
	} else if m.maybe > 0 {
		r.MaybeEnqueued++
	}
	for _, c := range []struct {
		kind  Kind
		count *int
	}{{Handled, &r.Handled}, {Acked, &r.Acked}, {Dead, &r.Dead}, {Cancelled, &r.Cancelled}} {
		if m.ended(c.kind) {
			*c.count++
		}
	}
	r.Starts += len(m.starts)
	r.Failed += int(m.failed)
	if len(m.starts) > 0 {
		r.Delivered++
		r.Duplicates += max(0, len(m.starts)-1-int(m.failed))
	}
}

// checkMessage applies the rules to one message.
func (h *History) checkMessage(r *Report, id string, m *message) {
	if m.enqueued > 0 && !m.over() {
		r.Lost.add("%q: enqueued, started %d times, and never handled, acked, dead or cancelled; recurring: %v", id, len(m.starts), m.recurring)
	}
	if m.enqueued == 0 && m.maybe == 0 {
		r.Unknown.add("%q: started %d times, and never enqueued", id, len(m.starts))
	}
	if m.enqueued > 1 {
		r.EnqueuedTwice.add("%q: %d enqueues were acknowledged", id, m.enqueued)
	}
	if len(m.acks) > 1 && !m.recurring {
		r.AckedTwice.add("%q: %d acknowledgements succeeded", id, len(m.acks))
	}
	h.checkCancel(r, id, m)
	for _, s := range m.starts {
		if earliest := max(m.earliest(s.at), s.due); s.clock < earliest {
			r.Early.add("%q: started at %d with token %d, %d ms before %d", id, s.clock, s.token, earliest-s.clock, earliest)
		}
	}
	h.checkTokens(r, id, m)
	checkRuns(r, id, m)
}

// checkRuns finds starts with a higher token than an acknowledged one, and no later due time.
func checkRuns(r *Report, id string, m *message) {
	starts, acked := slices.Clone(m.starts), start{}
	slices.SortFunc(starts, func(a, b start) int { return cmp.Compare(a.token, b.token) })
	for _, s := range starts {
		if s.due != 0 && s.due <= acked.due {
			r.Repeated.add("%q: started with token %d, due at %d, although token %d, due at %d, was acknowledged",
				id, s.token, s.due, acked.token, acked.due)
		}
		if slices.Contains(m.acks, s.token) {
			acked = s
		}
	}
}

// earliest returns the earliest valid time of a start that was recorded at a given point. Three
// kinds of due times count: the one in effect at that point, those recorded later, because their
// calls may have taken effect earlier, and the effects of unanswered calls, which may take effect
// at any time.
func (m *message) earliest(at int64) int64 {
	valid := int64(0)
	for _, d := range m.dues {
		if !d.maybe && d.at < at {
			valid = max(valid, d.at)
		}
	}
	earliest := int64(math.MaxInt64)
	for _, d := range m.dues {
		if d.maybe || d.at >= valid {
			earliest = min(earliest, d.clock)
		}
	}
	if len(m.dues) == 0 {
		return math.MinInt64
	}
	return earliest
}

func (h *History) checkCancel(r *Report, id string, m *message) {
	if m.cancelled.at != 0 && !m.recurring && (m.ended(Handled) || m.ended(Acked)) {
		r.CancelledRun.add("%q: cancelled, and finished by a handler", id)
		return
	}
	if m.cancelled.at != 0 && m.interrupted.at != 0 {
		r.CancelledRun.add("%q: cancelled twice, once while it was running", id)
		return
	}
	last := 0 // starts after it was interrupted
	for _, s := range m.starts {
		unfinished := !h.options.Crashes && !m.recurring && !slices.Contains(m.failures, s.token)
		if m.cancelled.at != 0 && (m.cancelled.before(s) || unfinished) {
			r.CancelledRun.add("%q: cancelled, and started with token %d", id, s.token)
			return
		}
		if m.interrupted.before(s) {
			last++
		}
	}
	if last > 1 {
		r.CancelledRun.add("%q: cancelled while it was running, and started %d times after that", id, last)
	}
}

// checkTokens finds tokens that do not rise, and measures redeliveries.
func (h *History) checkTokens(r *Report, id string, m *message) {
	starts := slices.Clone(m.starts)
	switch {
	case h.options.Pauses:
		slices.SortFunc(starts, func(a, b start) int { return cmp.Compare(a.token, b.token) })
	case !h.options.ClockSteps:
		slices.SortFunc(starts, func(a, b start) int {
			return cmp.Or(cmp.Compare(a.clock, b.clock), cmp.Compare(a.token, b.token))
		})
	}
	for i := 1; i < len(starts); i++ {
		last, next := starts[i-1], starts[i]
		if next.token <= last.token {
			r.TokenOrder.add("%q: started at %d with token %d, after %d with token %d", id, next.clock, next.token, last.clock, last.token)
		}
		if !h.options.ClockSteps && !m.recurring && !slices.Contains(m.failures, last.token) {
			r.SlowestRedelivery = max(r.SlowestRedelivery, next.clock-last.clock)
		}
	}
	for _, token := range slices.Concat(m.handled, m.acks) {
		if !slices.ContainsFunc(m.starts, func(s start) bool { return s.token == token }) {
			r.Unknown.add("%q: finished with token %d, and never started with it", id, token)
		}
	}
}

// Finding is how often a rule was broken, with examples.
type Finding struct {
	Count    int
	Examples []string // the first maxExamples
}

const maxExamples = 5

func (f *Finding) add(format string, args ...any) {
	f.Count++
	if len(f.Examples) < maxExamples {
		f.Examples = append(f.Examples, fmt.Sprintf(format, args...))
	}
}
