package boltstore

import (
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/local"
)

// tooManyDead reports whether there are dead letters to drop.
func (p *partition) tooManyDead(now time.Time, limits local.DeadLimits) bool {
	return limits.Exceeded(p.state.dead, p.state.deadBytes, p.oldestDead, local.Floor(now))
}

// judge counts a crash of each message that was firing when its lease ended, and buries those that had too many.
func (w *partitionWriter) judge(ids []string, maxCrashes int, limits local.DeadLimits) error {
	w.dirty = true
	for _, id := range ids {
		r := w.get(id)
		l, ok := w.leaseOf(id)
		if !ok || l.end > local.Floor(w.now) || r == nil || r.State != driver.StateScheduled {
			continue // it was extended, or is gone
		}
		is := *r
		if l.firing {
			is.Crashes, is.last, is.Token, is.suspect = counted(is.Crashes), 0, l.token, false
			w.state.crashed++
		} else if !r.suspect {
			continue
		}
		if err := w.begun.Delete([]byte(id)); err != nil {
			return err
		}
		if maxCrashes > 0 && is.Crashes >= maxCrashes {
			w.die(&is)
		}
		if err := w.move(r, &is, effect{}); err != nil {
			return err
		}
	}
	return w.trimDead(limits)
}

// trimDead drops the dead letters that are too many, too large or too old, the oldest first and at most two batches: a request adds at most
// one, so that a backlog shrinks with each.
func (w *partitionWriter) trimDead(limits local.DeadLimits) error {
	now := local.Floor(w.now)
	if !w.dead && !limits.Exceeded(w.state.dead, w.state.deadBytes, w.p.oldestDead, now) {
		return nil
	}
	for range 2 * driver.MaxBatch {
		b, _ := w.buckets.dead.Cursor().First()
		k, ok := parseKey(b)
		if !ok || !limits.Exceeded(w.state.dead, w.state.deadBytes, k.at, now) {
			return nil
		}
		if err := w.dropDead(k); err != nil {
			return err
		}
	}
	return nil
}

// dropDead drops a dead letter, or a key without one.
func (w *partitionWriter) dropDead(k key) error {
	if r := w.get(k.id); r != nil && r.State == driver.StateDead && r.Died == k.at {
		w.state.trimmed++
		return w.move(r, nil, effect{})
	}
	w.dirty, w.dead = true, true
	w.state.dead--
	return w.buckets.dead.Delete(k.bytes())
}
