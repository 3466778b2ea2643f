package timingwheel

import (
	"fmt"
	"io"
	"reflect"

	"github.com/timingwheel-go/timingwheel/internal/arena"
	"github.com/timingwheel-go/timingwheel/internal/sampling"
)

// writeProfile is [TimingWheel.WriteProfile].
func (e *engine[T]) writeProfile(w io.Writer) error {
	if e.profileRate == 0 {
		return fmt.Errorf("%w: Options.ProfileRate is 0, so there is no profile; it must be from 1 to 2^30", ErrOption)
	}
	p := sampling.NewProfile(reflect.TypeFor[Timer]().PkgPath(), e.name, e.profileRate)
	e.eachSample(p.Add)
	return p.Write(w)
}

// eachSample calls yield for each sampled timer that is pending. age is the time since the timer
// was armed, and expires the time until its deadline, in ns.
func (e *engine[T]) eachSample(yield func(o *sampling.Origin, age, expires int64)) {
	for _, s := range e.shards {
		eachSampleOf(&s.shard, yield)
	}
}

// eachSampleOf holds armMu for a quantum of samples at a time, and calls yield without it.
func eachSampleOf(s *shard, yield func(o *sampling.Origin, age, expires int64)) {
	type found struct {
		origin *sampling.Origin
		tick   int64
	}
	now := s.reading()
	all := make([]found, 0, quantum)
	note := func(o *sampling.Origin, pg *arena.Page, w arena.Word, i uint32) {
		if w.Kind() == arena.Staged || w.Kind() == arena.Placed { // not a run of a plan
			all = append(all, found{o, w.Tick()})
		}
	}
	for from, more := 0, true; more; {
		s.armMu.Lock()
		if s.inbox.samples == nil { // the wheel is stopped
			s.armMu.Unlock()
			return
		}
		from, more = s.inbox.samples.Each(from, quantum, note)
		s.armMu.Unlock()
		for _, f := range all {
			yield(f.origin, now-f.origin.Armed, s.ticks.Begin(f.tick)-now)
		}
		all = all[:0]
	}
}

// sampled returns the timer as package sampling identifies it, or false if its wheel takes no
// samples.
func (t Timer) sampled() (sampling.Timer, bool) {
	if t.ref == nil || t.ref.shard.profileRate == 0 {
		return sampling.Timer{}, false
	}
	return sampling.Timer{Page: &t.ref.page, Index: t.index, Gen: t.gen}, true
}

// origin returns the origin of the timer if it was sampled, or else nil.
func (t Timer) origin() *sampling.Origin {
	sampled, ok := t.sampled()
	if !ok {
		return nil
	}
	s := t.ref.shard
	s.armMu.Lock()
	defer s.armMu.Unlock()
	if s.closed.Load() {
		return nil
	}
	return s.inbox.samples.Origin(sampled)
}

// sampleAs makes o the origin of the timer in profiles. A nil o removes the timer from the sample.
// A ticker arms a timer for each tick; sampleAs passes the origin of the first one on to the
// others.
func (t Timer) sampleAs(o *sampling.Origin) {
	sampled, ok := t.sampled()
	if !ok {
		return
	}
	s := t.ref.shard
	s.armMu.Lock()
	defer s.armMu.Unlock()
	if !s.closed.Load() {
		s.inbox.samples.Set(sampled, o)
	}
}
