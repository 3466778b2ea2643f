package timingwheel

import (
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/clock"
)

const micro = time.Microsecond

// rangeTick is the tick of most tests of this file. With it the clock has a range of 27 years.
const rangeTick = 50 * micro

// The clock has a range of 2^44 ticks, but at most 292 years. A deadline beyond the range never
// passes, its Deadline is the end of the range, and Advance stops there.
func TestDeadlineBeyondTheRangeOfTheClockNeverPasses(t *testing.T) {
	t.Parallel()
	for _, tick := range []time.Duration{micro, rangeTick, time.Millisecond, time.Hour} {
		s := newRecordingWheel(t, Options{Tick: tick}, 0)
		end := time.Duration(math.MaxInt64)
		if tick < math.MaxInt64/(1<<44) {
			end = (1<<44 - 1) * tick
		}
		for _, d := range []time.Duration{end, math.MaxInt64} {
			at, ok := s.after(d, "beyond").Deadline()
			require.True(t, ok)
			require.Equal(t, modelStart.Add(end), at, "tick %v, delay %v", tick, d)
		}
		s.AtFunc(time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), s.note("year 9999"))
		last := s.after(end-2*tick, "last")
		s.verify()
		require.Equal(t, "last", s.to(math.MaxInt64), "tick %v", tick)
		require.Equal(t, modelStart.Add(end-1), s.Now())
		require.Equal(t, 3, s.Len())
		require.False(t, last.Stop())
		require.Empty(t, s.to(math.MaxInt64), "tick %v", tick)

		soon := s.after(0, "soon")
		s.after(tick, "after the end")
		require.True(t, soon.Reschedule(0))
		require.Equal(t, "soon", s.to(math.MaxInt64), "tick %v", tick)
		require.Equal(t, 4, s.Len())
		s.verify()
	}
}

// stall moves a wheel's clock by d without the clock of the bubble, as if the process had been
// stopped. The driver is requested if the alarm is due now.
func stall(e *engine, d time.Duration) {
	for _, s := range e.shards {
		s.own(func() {
			s.skip(d)
			if s.config.Read() >= s.config.ticks.Begin(max(0, s.alarm.at.Load())) {
				s.startDriver()
			}
		})
	}
}

// The process is stopped for days. Then the due timers fire immediately and exactly once, and the
// others fire in the ticks of their deadlines.
func TestTimersFireOnceAndInTheirTicksAfterALongStall(t *testing.T) {
	t.Parallel()
	for _, executor := range []Executor{nil, Inline, Goroutines} {
		for _, length := range []time.Duration{10*time.Hour + 1, 100 * 24 * time.Hour} {
			bubble(t, Options{Tick: rangeTick, Executor: executor, WheelSize: 256}, func(t *testing.T, tw *TimingWheel) {
				testLongStall(t, tw, length)
			})
		}
	}
}

func testLongStall(t *testing.T, tw *TimingWheel, length time.Duration) {
	t.Helper()
	sh := tw.engine.shards[0]
	start := time.Now()
	delays := []time.Duration{length - 1, length, length + rangeTick, length + time.Second}
	for _, d := range []time.Duration{time.Second, 10 * time.Hour, 1000 * time.Hour, 10 * 365 * 24 * time.Hour} {
		for _, off := range []time.Duration{-rangeTick - 1, -rangeTick, -1, 0, 1, rangeTick} {
			delays = append(delays, d+off)
		}
	}
	ran := make([]atomic.Int64, len(delays))
	timers := make([]Timer, len(delays))
	for k, d := range delays {
		timers[k] = tw.AfterFunc(d, func() {
			if now := time.Since(start) + length; !ran[k].CompareAndSwap(0, int64(now)) || now < d {
				assert.Fail(t, "early or twice", "timer of %v at %v", d, now)
			}
		})
		if k%2 == 0 {
			sh.placeAll()
		}
	}
	stall(tw.engine, length)
	tw.AfterFunc(0, func() {})
	pass(time.Hour)
	verifyShard(t, sh)
	for k, d := range delays {
		_, pending := timers[k].Deadline()
		if pending != (ran[k].Load() == 0) || pending != (d > length+time.Hour) {
			t.Fatalf("after a stall of %v a timer of %v is pending: %v", length, d, pending)
		}
	}
	pass(11 * 365 * 24 * time.Hour)
	for k, d := range delays {
		if got := time.Duration(ran[k].Load()); got != (d+rangeTick-1)/rangeTick*rangeTick && (d > length+time.Hour || got > length+time.Hour) {
			t.Fatalf("after a stall of %v a timer of %v ran at %v", length, d, got)
		}
	}
	require.Zero(t, tw.Len())
	verifyShard(t, sh)
}

// A caller is stopped for long between reading the clock and taking the lock. The timers that the
// caller then arms and reschedules are due immediately.
func TestTimersArmedWithAnOldReadingAreDueAtOnce(t *testing.T) {
	t.Parallel()
	bubble(t, Options{Tick: rangeTick}, func(t *testing.T, tw *TimingWheel) {
		s := tw.engine.shards[0]
		moved := tw.AfterFunc(100*time.Hour, func() {})
		now := s.config.Read()
		pass(17 * time.Hour)
		ran := false
		s.inbox.mu.Lock()
		armAndUnlock(s, now+int64(time.Second), now, func() { ran = true }, 0)
		require.True(t, moved.rescheduleTo(now+int64(time.Second), clock.Unread))
		pass(time.Second)
		require.True(t, ran)
		require.Zero(t, tw.Len())
	})
}
