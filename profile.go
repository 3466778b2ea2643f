package timingwheel

import (
	"fmt"
	"io"
	"reflect"
	"slices"

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
		s.armMu.Lock()
		samples := slices.Clone(s.samples.All)
		s.armMu.Unlock()
		now := s.reading()
		for _, x := range samples {
			if _, w, ok := x.Timer.pending(); ok {
				yield(x.Origin, now-x.Origin.Armed, s.ticks.Begin(w.Tick())-now)
			}
		}
	}
}

// sample samples a timer that is being armed. armMu is held.
func (s *shardOf[T]) sample(t Timer) {
	s.inbox.untilSample = s.samples.Distance()
	s.samples.Set(t, sampling.Here(s.reading()))
}

// ended reports whether the timer has ended.
func (t Timer) ended() bool {
	_, _, pending := t.pending()
	return !pending
}

// origin returns the origin of the timer if it was sampled, or else nil.
func (t Timer) origin() (o *sampling.Origin) {
	t.withSamples(func(all *sampling.Table[Timer]) { o = all.Origin(t) })
	return o
}

// sampleAs makes o the origin of the timer. A nil o removes the timer from the sample. A ticker
// arms a timer for each tick, and a plan for each run. sampleAs passes the origin of the first one
// on to the others.
func (t Timer) sampleAs(o *sampling.Origin) {
	t.withSamples(func(all *sampling.Table[Timer]) { all.Set(t, o) })
}

// withSamples calls f with the samples of the timer's shard, unless the wheel takes none. armMu
// is held during the call.
func (t Timer) withSamples(f func(all *sampling.Table[Timer])) {
	if t.ref == nil || t.ref.shard.profileRate == 0 {
		return
	}
	s := t.ref.shard.host.(*shardOf[func()])
	s.armMu.Lock()
	defer s.armMu.Unlock()
	if !s.closed.Load() {
		f(&s.samples)
	}
}
