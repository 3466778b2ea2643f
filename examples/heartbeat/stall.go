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
	stallStep  = 5 * time.Millisecond  // how often the machine is tried
	leastStall = 10 * time.Millisecond // what counts as a stall; less is within anyone's bound
)

// span is a time during which a goroutine that was to run did not.
type span struct{ from, to time.Time }

// stalls measures the machine: goroutines that do nothing but sleep note how much later than
// planned they run. What they could not do in that time the server could not do either.
type stalls struct {
	mu    sync.Mutex
	spans []span    // overlapping, in the order in which they ended
	ran   time.Time // when one of the goroutines last ran
}

// measureStalls measures until ctx ends. There is a goroutine for each processor: one processor may
// stall, with what was running on it, while another goes on.
func measureStalls(ctx context.Context) *stalls {
	s := &stalls{ran: time.Now()}
	for range runtime.GOMAXPROCS(0) {
		go s.measure(ctx)
	}
	return s
}

func (s *stalls) measure(ctx context.Context) {
	for ctx.Err() == nil {
		planned := time.Now().Add(stallStep)
		time.Sleep(stallStep)
		s.note(planned, time.Now())
	}
}

// note notes that a goroutine ran now which was to run at the planned time.
func (s *stalls) note(planned, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ran = now
	if now.Sub(planned) >= leastStall {
		s.spans = append(s.spans, span{planned, now})
	}
}

// worstSince returns the longest stall after from, or part of one, including one that goes on at
// now: after a stall other goroutines may run before those that measure it.
func (s *stalls) worstSince(from, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	worst := now.Sub(later(s.ran.Add(stallStep), from))
	for _, sp := range slices.Backward(s.spans) {
		if !sp.to.After(from) {
			break
		}
		worst = max(worst, sp.to.Sub(later(sp.from, from)))
	}
	return worst
}

// merged returns the stalls without overlaps, in order of time.
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

// stalledWithin returns for how much of the time between from and to the machine was stalled; the
// spans are those of merged.
func stalledWithin(spans []span, from, to time.Time) (sum time.Duration) {
	first, _ := slices.BinarySearchFunc(spans, from, func(sp span, t time.Time) int {
		return cmp.Or(sp.to.Compare(t), -1) // the first that ends after from
	})
	for _, sp := range spans[first:] {
		if !sp.from.Before(to) {
			break
		}
		sum += earlier(sp.to, to).Sub(later(sp.from, from))
	}
	return sum
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
