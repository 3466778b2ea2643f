package boltstore

import (
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/local"
)

// deadLimits bound the dead letters of a partition.
type deadLimits struct {
	count int
	age   time.Duration
}

// tooManyDead reports whether there are dead letters to drop.
func (p *partition) tooManyDead(now time.Time, limits deadLimits) bool {
	return p.state.dead > int64(limits.count) || p.oldestDead != 0 && p.oldestDead.Add(limits.age) <= local.Floor(now)
}

// judge counts a crash of each message that was firing when its lease ended, and buries those that had too many.
func (w *partitionWriter) judge(ids []string, maxCrashes int, limits deadLimits) error {
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

// trimDead drops the dead letters that are too many or too old, the oldest first and at most two batches: a request adds at most one, so
// that a backlog shrinks with each.
func (w *partitionWriter) trimDead(limits deadLimits) error {
	excess, now := w.state.dead-int64(limits.count), local.Floor(w.now)
	if excess <= 0 && !w.dead && (w.p.oldestDead == 0 || w.p.oldestDead.Add(limits.age) > now) {
		return nil
	}
	var old []key
	c := w.buckets.dead.Cursor()
	for b, _ := c.First(); b != nil && len(old) < 2*driver.MaxBatch; b, _ = c.Next() {
		k, ok := parseKey(b)
		if !ok || int64(len(old)) >= excess && k.at.Add(limits.age) > now {
			break
		}
		old = append(old, k)
	}
	for _, k := range old {
		if err := w.dropDead(k); err != nil {
			return err
		}
	}
	return nil
}

// dropDead drops a dead letter, or a key without one.
func (w *partitionWriter) dropDead(k key) error {
	if r := w.get(k.id); r != nil && r.State == driver.StateDead && r.Died == k.at {
		return w.move(r, nil, effect{})
	}
	w.dirty, w.dead = true, true
	w.state.dead--
	return w.buckets.dead.Delete(k.bytes())
}
