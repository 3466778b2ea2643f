package local

import (
	"encoding/binary"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// counters are the counters of a partition in the DB, and their changes that are not yet there.
type counters struct {
	state
	spans map[uint64]int64 // changes of the counters of spans
}

// dueCount is the number of scheduled messages of the DB, leased ones included, up to a time.
// Calls that count advance the time, and others keep the number up to date, so each message is
// visited once.
type dueCount struct {
	until driver.Instant
	n     int64
}

func (d *dueCount) add(due driver.Instant, delta int64) {
	if due <= d.until {
		d.n += delta
	}
}

// scheduled counts a scheduled message that has entered the DB (1) or left it (-1).
func (c *counters) scheduled(due driver.Instant, delta int64) {
	c.Records += delta
	span := spanOf(due)
	if c.spans[span] += delta; c.spans[span] == 0 {
		delete(c.spans, span)
	}
}

// died counts a dead letter that has entered the DB (1) or left it (-1).
func (c *counters) died(size int, delta int64) {
	c.Records += delta
	c.Dead += delta
	c.DeadBytes += delta * int64(size)
}

func spanOf(due driver.Instant) uint64 { return uint64(due) >> spanBits } //nolint:gosec // not negative

func (c *counters) flush(t *table) {
	t.db.Set(t.kindKey(kindCounters), c.encode())
	for span, delta := range c.spans {
		t.db.Add(t.spanKey(span), delta)
	}
	clear(c.spans)
}

// estimate returns the number of messages that are due after from and at most at to. It assumes
// that the messages of a span are spread evenly.
func (c *counters) estimate(t *table, from, to driver.Instant) (int64, error) {
	if from >= to {
		return 0, nil
	}
	sum := 0.0
	add := func(span, n int64) (inRange bool) {
		begin := max(driver.Instant(span<<spanBits), from+1)
		end := min(driver.Instant((span+1)<<spanBits), to+1)
		sum += float64(n) * float64(max(0, end-begin)) / (1 << spanBits)
		return begin < end
	}
	for span, n := range c.spans {
		add(int64(span), n) //nolint:gosec // a part of an instant
	}
	err := t.scan(kindSpan, t.spanKey(spanOf(from+1)), func(k, value []byte) bool {
		return add(int64(binary.BigEndian.Uint64(k[prefixSize:])), Number(value)) //nolint:gosec // as written
	})
	return int64(sum + 0.5), err
}
