package main

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

const (
	stallStep  = 5 * time.Millisecond  // how long a measuring goroutine sleeps
	leastStall = 10 * time.Millisecond // a shorter delay is not counted, because each bound covers it
)

// span is a period of time.
type span struct{ from, to time.Time }

// stalls measures for how long the machine stalls. Measuring goroutines sleep repeatedly and record
// how much later than planned they wake up. During that time the server could not run either.
type stalls struct {
	mu      sync.Mutex
	spans   []span    // may overlap; ordered by their ends
	lastRun time.Time // when a measuring goroutine last ran
}

// measureStalls measures until ctx ends. There is a goroutine for each processor, because a
// processor may stall, with the goroutine that was running on it, while the others continue.
func measureStalls(ctx context.Context) *stalls {
	s := &stalls{lastRun: time.Now()}
	for range runtime.GOMAXPROCS(0) {
		go s.measure(ctx)
	}
	return s
}

func (s *stalls) measure(ctx context.Context) {
	for ctx.Err() == nil {
		planned := time.Now().Add(stallStep)
		time.Sleep(stallStep)
		runtime.Gosched() // wait in the run queue like a goroutine that the network wakes
		s.record(planned, time.Now())
	}
}

// record records that a measuring goroutine runs now and was planned to run earlier. A stall may
// have begun during the sleep before, so that time counts too.
func (s *stalls) record(planned, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastRun = now
	if now.Sub(planned) >= leastStall {
		s.spans = append(s.spans, span{planned.Add(-stallStep), now})
	}
}

// longestSince returns the length of the longest stall since from. A stall counts only from then
// on, and a stall that has not ended counts until now. The second rule is needed because other
// goroutines may run before the measuring goroutines after a stall.
func (s *stalls) longestSince(from, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	longest := now.Sub(later(s.lastRun.Add(stallStep), from))
	for _, sp := range slices.Backward(s.spans) {
		if !sp.to.After(from) {
			break
		}
		longest = max(longest, sp.to.Sub(later(sp.from, from)))
	}
	return longest
}

// merged returns the stalls in order of time, with overlapping ones merged.
func (s *stalls) merged() []span {
	s.mu.Lock()
	defer s.mu.Unlock()
	return merge(s.spans)
}

func merge(spans []span) []span {
	spans = slices.SortedFunc(slices.Values(spans), func(a, b span) int { return a.from.Compare(b.from) })
	var out []span
	for _, sp := range spans {
		if n := len(out); n > 0 && !sp.from.After(out[n-1].to) {
			if sp.to.After(out[n-1].to) {
				out[n-1].to = sp.to
			}
			continue
		}
		out = append(out, sp)
	}
	return out
}

// stalledWithin returns how long the machine stalled between from and to. The spans must be a
// result of merged.
func stalledWithin(spans []span, from, to time.Time) (sum time.Duration) {
	first, _ := slices.BinarySearchFunc(spans, from, func(sp span, t time.Time) int {
		return cmp.Or(sp.to.Compare(t), -1) // the first span that ends after from
	})
	for _, sp := range spans[first:] {
		if !sp.from.Before(to) {
			break
		}
		sum += earlier(sp.to, to).Sub(later(sp.from, from))
	}
	return sum
}

// longestOf returns the length of the longest span.
func longestOf(spans []span) (d time.Duration) {
	for _, s := range spans {
		d = max(d, s.to.Sub(s.from))
	}
	return d
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
