//go:build unix

package chaos

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// outage is a fault of an engine, with its effects on a history.
type outage struct {
	from      time.Time        // just before the fault
	until     time.Time        // the engine answers no call that begins later
	uncertain time.Duration    // enqueues acknowledged less than this before from may be lost; 0: none
	resume    int64            // when a message enqueued after the fault was handled, in ms; 0: none
	began     map[string]int64 // when the enqueue of each message began, in milliseconds
}

// recordingTime is how long a process may take to record an answer.
var recordingTime = scaled(10*time.Second, 300*time.Millisecond)

// newOutage calls fault, which stops an engine.
func newOutage(doubt time.Duration, fault func()) *outage {
	o := &outage{from: time.Now(), uncertain: doubt, began: map[string]int64{}}
	fault()
	o.until = time.Now()
	return o
}

// edit marks acknowledgements that the fault may have undone as uncertain, and records when
// messages are delivered again. Acknowledgements from long after the fault were made by the
// successor of the engine, which must keep them.
func (o *outage) edit(e Event) Event {
	after := o.began[e.ID] > o.until.UnixMilli()
	switch {
	case e.Kind == MaybeEnqueued && o.began[e.ID] == 0: // not from another outage
		o.began[e.ID] = e.Clock
	case e.Kind == Enqueued && !after && o.uncertain > 0 &&
		e.Clock > o.from.Add(-o.uncertain).UnixMilli() && e.Clock < o.until.Add(recordingTime).UnixMilli():
		e.Kind = MaybeEnqueued
	case e.Kind == Started && after && (o.resume == 0 || e.Clock < o.resume):
		o.resume = e.Clock
	}
	return e
}

// resumed logs and checks the time from the fault until a message enqueued after it was delivered.
func (o *outage) resumed(t *testing.T) {
	t.Helper()
	if assert.NotZero(t, o.resume, "no message that was enqueued after the fault was delivered") {
		took := time.UnixMilli(o.resume).Sub(o.from)
		t.Logf("resumed after %v", took)
		assert.Less(t, took, 30*time.Second) // the limit allows for a busy machine; the log has the time
	}
}

// outages are successive faults.
type outages []*outage

func (os outages) edit(e Event) Event {
	for _, o := range os {
		e = o.edit(e)
	}
	return e
}

func (os outages) resumed(t *testing.T) {
	t.Helper()
	for _, o := range os {
		o.resumed(t)
	}
}

// An enqueue may be lost if one of the faults may have undone it. A fault that must lose nothing
// excuses no lost enqueue.
func TestOutageExcusesOnlyUncertainEnqueues(t *testing.T) {
	t.Parallel()
	at := func(second int64) time.Time { return time.UnixMilli(1000 * second) }
	made := func(doubt time.Duration, seconds ...int64) (os outages) {
		for _, s := range seconds {
			os = append(os, &outage{from: at(s), until: at(s).Add(300 * time.Millisecond), uncertain: doubt, began: map[string]int64{}})
		}
		return os
	}
	calls := []struct{ began, acknowledged int64 }{
		{7900, 7999}, {7900, 8001}, {10_300, 10_299 + recordingTime.Milliseconds()}, {10_300, 99_000}, {10_301, 10_302},
		{17_900, 17_999}, {17_900, 18_001}, {20_300, 20_301}, {20_301, 20_900},
	}
	kinds := func(os outages) (kinds []Kind) {
		for i, c := range calls {
			id := fmt.Sprint("m", i)
			os.edit(Event{Kind: MaybeEnqueued, ID: id, Clock: c.began})
			kinds = append(kinds, os.edit(Event{Kind: Enqueued, ID: id, Clock: c.acknowledged}).Kind)
		}
		return kinds
	}
	const yes, maybe = Enqueued, MaybeEnqueued
	assert.Equal(t, []Kind{yes, maybe, maybe, yes, yes, yes, maybe, maybe, yes}, kinds(made(2*time.Second, 10, 20)))
	assert.Equal(t, slices.Repeat([]Kind{yes}, len(calls)), kinds(made(0, 10, 20)))
	os := made(2*time.Second, 10, 20)
	kinds(os)
	for i, clock := range []int64{9000, 10_250, 10_350, 10_400, 10_500, 18_000, 18_100, 21_000, 21_500} {
		os.edit(Event{Kind: Started, ID: fmt.Sprint("m", i), Clock: clock})
	}
	assert.EqualValues(t, []int64{10_500, 21_500}, []int64{os[0].resume, os[1].resume})
}
