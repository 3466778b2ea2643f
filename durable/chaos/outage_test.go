//go:build unix

package chaos

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/timingwheel-go/timingwheel/durable/internal/checker"
)

// outage is one fault of an engine, and what a history tells of it.
type outage struct {
	from   time.Time     // the fault is about to come
	until  time.Time     // the engine is gone: what was acknowledged before is noted by now
	doubt  time.Duration // enqueues that were acknowledged so long before from, or later, may be lost. 0: none may
	resume int64         // when a message was handled that was enqueued after it, in milliseconds; 0: none
	after  map[string]bool
}

// noting is the time that a process may take to note an answer that it has got.
const noting = 300 * time.Millisecond

// newOutage calls fault, which lets an engine end. No other answers within [noting] after that.
func newOutage(doubt time.Duration, fault func()) *outage {
	o := &outage{from: time.Now(), doubt: doubt, after: map[string]bool{}}
	fault()
	o.until = time.Now().Add(noting)
	return o
}

// edit takes acknowledgements for doubtful that the fault may have undone, and notes when messages come through again.
func (o *outage) edit(e checker.Event) checker.Event {
	switch {
	case e.Kind == checker.Enqueued && e.Clock > o.until.UnixMilli():
		o.after[e.ID] = true
	case e.Kind == checker.Enqueued && o.doubt > 0 && e.Clock > o.from.Add(-o.doubt).UnixMilli():
		e.Kind = checker.MaybeEnqueued
	case e.Kind == checker.Started && o.after[e.ID] && (o.resume == 0 || e.Clock < o.resume):
		o.resume = e.Clock
	}
	return e
}

// resumed reports how long it took until a message came through that was enqueued after the fault.
func (o *outage) resumed(t *testing.T) {
	t.Helper()
	if assert.NotZero(t, o.resume, "nothing was delivered that was enqueued after the fault") {
		took := time.UnixMilli(o.resume).Sub(o.from)
		t.Logf("resumed after %v", took)
		assert.Less(t, took, 30*time.Second) // see what is logged: the machine may be busy
	}
}

// outages are faults that have come one after the other.
type outages []*outage

func (os outages) edit(e checker.Event) checker.Event {
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

// An enqueue is excused if any of the faults may have undone it, and none is for the sake of a fault after which nothing may be missing.
func TestOutagesExcuse(t *testing.T) {
	t.Parallel()
	at := func(second int64) time.Time { return time.UnixMilli(1000 * second) }
	made := func(doubt time.Duration, seconds ...int64) (os outages) {
		for _, s := range seconds {
			os = append(os, &outage{from: at(s), until: at(s).Add(noting), doubt: doubt, after: map[string]bool{}})
		}
		return os
	}
	kinds := func(os outages) (kinds []checker.Kind) {
		for _, ms := range []int64{7999, 8001, 10_100, 10_400, 17_999, 18_001, 20_100, 20_400} {
			kinds = append(kinds, os.edit(checker.Event{Kind: checker.Enqueued, ID: "m", Clock: ms}).Kind)
		}
		return kinds
	}
	const yes, maybe = checker.Enqueued, checker.MaybeEnqueued
	assert.Equal(t, []checker.Kind{yes, maybe, maybe, yes, yes, maybe, maybe, yes}, kinds(made(2*time.Second, 10, 20)))
	assert.Equal(t, []checker.Kind{yes, yes, yes, yes, yes, yes, yes, yes}, kinds(made(0, 10, 20)))
	os := made(2*time.Second, 10, 20)
	kinds(os)
	os.edit(checker.Event{Kind: checker.Started, ID: "m", Clock: 21_000})
	assert.EqualValues(t, []int64{21_000, 21_000}, []int64{os[0].resume, os[1].resume})
}
