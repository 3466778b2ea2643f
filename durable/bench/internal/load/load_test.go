package load

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"
)

func TestSleepEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Sleep(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestVerdictComparesFigureWithTarget(t *testing.T) {
	t.Parallel()
	b := New(io.Discard, 1000)
	b.Add("rate", 10_000, 10_000, false, PerSecond)
	b.Add("rate", 9_999, 10_000, false, PerSecond)
	b.Add("late", 5, 5, true, Millis)
	b.Add("late", 5.1, 5, true, Millis)
	b.Add("early", 3, NoTarget, true, Plain)
	b.Add("slow", 999, NoTarget, false, PerSecond)
	want := []row{
		{"rate", "≥ 10.0k/s", "10.0k/s", "reached"}, {"rate", "≥ 10.0k/s", "10.0k/s", "NOT reached"},
		{"late", "≤ 5.00 ms", "5.00 ms", "reached"}, {"late", "≤ 5.00 ms", "5.10 ms", "NOT reached"},
		{"early", "–", "3", ""}, {"slow", "–", "999/s", ""},
	}
	for i := range want {
		if b.rows[i] != want[i] {
			t.Errorf("%v, want %v", b.rows[i], want[i])
		}
	}
}

func TestLatenessPercentilesAreExact(t *testing.T) {
	t.Parallel()
	var l lateness
	if got := l.ms(0.5); got != 0 {
		t.Errorf("%v ms without a delivery", got)
	}
	for _, late := range []int{5, -3, 1, 2, 4, 3, 10, 9, 8, 7} {
		l.add(time.Duration(late) * time.Millisecond)
	}
	for share, want := range map[float64]float64{0: 0, 0.1: 0, 0.5: 4, 0.9: 9, 0.999: 10, 1: 10} {
		if got := l.ms(share); got != want {
			t.Errorf("%v of all: %v ms, want %v", share, got, want)
		}
	}
	if l.early != 1 || l.worst != 3*time.Millisecond {
		t.Errorf("%d early, by %v", l.early, l.worst)
	}
}
