package chaos

import (
	"fmt"
	"reflect"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func ev(kind Kind, id string) Event               { return Event{Kind: kind, ID: id} }
func enq(id string, due int64) Event              { return Event{Kind: Enqueued, ID: id, Due: due} }
func resched(kind Kind, id string, d int64) Event { return Event{Kind: kind, ID: id, Due: d} }
func with(kind Kind, id string, token uint64) Event {
	return Event{Kind: kind, ID: id, Token: token}
}
func beginning(id string, token uint64, due, clock int64) Event {
	return Event{Kind: Started, ID: id, Token: token, Due: due, Clock: clock}
}
func started(id string, token uint64, clock int64) Event {
	return Event{Kind: Started, ID: id, Token: token, Clock: clock, Attempt: 1}
}

// broken returns the violations of a report by name.
func broken(r *Report) map[string]int {
	counts := map[string]int{}
	for _, f := range r.findings() {
		if f.Count > 0 {
			counts[f.name] = f.Count
		}
	}
	return counts
}

type violations = map[string]int

var rules = []struct {
	name    string
	options Options
	events  []Event
	want    violations
}{
	{"nothing", Options{}, nil, violations{}},
	{"delivered once", Options{}, []Event{enq("a", 10), started("a", 1, 10), with(Handled, "a", 1), with(Acked, "a", 1)}, violations{}},
	{"start is recorded before the enqueue", Options{}, []Event{started("a", 1, 10), with(Acked, "a", 1), enq("a", 10)}, violations{}},

	{"lost immediately", Options{}, []Event{enq("a", 10)}, violations{"lost": 1}},
	{"lost after a start", Options{Crashes: true}, []Event{enq("a", 10), started("a", 1, 10)}, violations{"lost": 1}},
	{"lost after a failure", Options{}, []Event{enq("a", 10), started("a", 1, 10), with(Failed, "a", 1)}, violations{"lost": 1}},
	{"handled only", Options{}, []Event{enq("a", 10), started("a", 1, 10), with(Handled, "a", 1)}, violations{}},
	{"dead", Options{}, []Event{enq("a", 10), ev(Dead, "a")}, violations{}},
	{"dead, replayed and acked", Options{}, []Event{enq("a", 1), ev(Dead, "a"), started("a", 7, 10), with(Acked, "a", 7)}, violations{}},
	{"cancelled", Options{}, []Event{enq("a", 10), ev(Cancelled, "a")}, violations{}},
	{"kept and lost", Options{}, []Event{enq("a", 10), ev(MaybeCancelled, "a"), ev(Kept, "a")}, violations{"lost": 1}},
	{"started before the cancel, recorded later", Options{Crashes: true},
		[]Event{enq("a", 10), {Kind: Cancelled, ID: "a", Clock: 12}, started("a", 1, 12), with(Failed, "a", 1)},
		violations{}},
	{"started after the cancel, recorded before", Options{Crashes: true},
		[]Event{enq("a", 10), started("a", 1, 13), with(Failed, "a", 1), {Kind: Cancelled, ID: "a", Clock: 12}},
		violations{"cancelled and run": 1}},
	{"perhaps cancelled", Options{}, []Event{enq("a", 10), ev(MaybeCancelled, "a")}, violations{}},
	{"perhaps enqueued and not there", Options{}, []Event{{Kind: MaybeEnqueued, ID: "a", Due: 10}}, violations{}},

	{"unknown", Options{}, []Event{started("a", 1, 10), with(Acked, "a", 1)}, violations{"unknown": 1}},
	{"unknown dead letter", Options{}, []Event{ev(Dead, "a")}, violations{"unknown": 1}},
	{"perhaps enqueued, and there", Options{},
		[]Event{{Kind: MaybeEnqueued, ID: "a", Due: 10}, started("a", 1, 10), with(Acked, "a", 1)},
		violations{}},
	{"acked with a token of no start", Options{}, []Event{enq("a", 1), started("a", 1, 10), with(Acked, "a", 2)}, violations{"unknown": 1}},

	{"early", Options{}, []Event{enq("a", 10), started("a", 1, 9), with(Acked, "a", 1)}, violations{"early": 1}},
	{"early, recorded before", Options{}, []Event{started("a", 1, 9), enq("a", 10), with(Acked, "a", 1)}, violations{"early": 1}},
	{"early though perhaps enqueued only", Options{},
		[]Event{{Kind: MaybeEnqueued, ID: "a", Due: 10}, started("a", 1, 9)},
		violations{"early": 1}},
	{"twice early", Options{}, []Event{enq("a", 10), started("a", 1, 8), started("a", 2, 9), with(Acked, "a", 2)}, violations{"early": 2}},
	{"early after a reschedule to later", Options{},
		[]Event{enq("a", 10), resched(Rescheduled, "a", 20), started("a", 1, 15), with(Acked, "a", 1)},
		violations{"early": 1}},
	{"not early before it", Options{},
		[]Event{enq("a", 10), started("a", 1, 15), with(Failed, "a", 1), resched(Rescheduled, "a", 20), started("a", 2, 20),
			with(Acked, "a", 2)},
		violations{}},
	{"rescheduled to earlier, recorded late", Options{},
		[]Event{enq("a", 10), started("a", 1, 5), resched(Rescheduled, "a", 5), with(Acked, "a", 1)},
		violations{}},
	{"early for both", Options{},
		[]Event{enq("a", 10), started("a", 1, 4), resched(Rescheduled, "a", 5), with(Acked, "a", 1)},
		violations{"early": 1}},
	{"perhaps rescheduled to earlier", Options{},
		[]Event{enq("a", 10), resched(MaybeRescheduled, "a", 5), started("a", 1, 5), with(Acked, "a", 1)},
		violations{}},
	{"perhaps rescheduled to later", Options{},
		[]Event{enq("a", 10), resched(MaybeRescheduled, "a", 20), started("a", 1, 12), with(Acked, "a", 1)},
		violations{}},
	{"the last of two reschedules", Options{},
		[]Event{enq("a", 1), resched(Rescheduled, "a", 5), resched(Rescheduled, "a", 20), started("a", 1, 12), with(Acked, "a", 1)},
		violations{"early": 1}},

	{"cancelled, then run", Options{Crashes: true},
		[]Event{enq("a", 1), ev(Cancelled, "a"), started("a", 1, 10)},
		violations{"cancelled and run": 1}},
	{"run, then cancelled", Options{}, []Event{enq("a", 1), started("a", 1, 10), ev(Cancelled, "a")}, violations{"cancelled and run": 1}},
	{"crashed, then cancelled", Options{Crashes: true}, []Event{enq("a", 1), started("a", 1, 10), ev(Cancelled, "a")}, violations{}},
	{"failed, then cancelled", Options{},
		[]Event{enq("a", 1), started("a", 1, 10), with(Failed, "a", 1), ev(Cancelled, "a")},
		violations{}},
	{"failed, cancelled, run again", Options{},
		[]Event{enq("a", 1), started("a", 1, 10), with(Failed, "a", 1), ev(Cancelled, "a"), started("a", 2, 11)},
		violations{"cancelled and run": 1}},
	{"finished, then cancelled", Options{Crashes: true},
		[]Event{enq("a", 1), started("a", 1, 10), with(Acked, "a", 1), ev(Cancelled, "a")},
		violations{"cancelled and run": 1}},
	{"perhaps cancelled and run", Options{},
		[]Event{enq("a", 1), ev(MaybeCancelled, "a"), started("a", 1, 10), with(Acked, "a", 1)},
		violations{}},

	{"token again", Options{},
		[]Event{enq("a", 1), started("a", 1, 10), started("a", 1, 20), with(Acked, "a", 1)},
		violations{"token order": 1}},
	{"token falls", Options{},
		[]Event{enq("a", 1), started("a", 2, 10), started("a", 1, 20), with(Acked, "a", 1)},
		violations{"token order": 1}},
	{"token again at the same time", Options{},
		[]Event{enq("a", 1), started("a", 3, 10), started("a", 3, 10), with(Acked, "a", 3)},
		violations{"token order": 1}},
	{"token rises", Options{}, []Event{enq("a", 1), started("a", 1, 10), started("a", 3, 20), with(Acked, "a", 3)}, violations{}},
	{"a paused consumer records late", Options{Crashes: true},
		[]Event{enq("a", 1), started("a", 2, 20), started("a", 1, 10), with(Acked, "a", 2)},
		violations{}},
	{"the clock is set back", Options{ClockSteps: true},
		[]Event{enq("a", 1), started("a", 1, 20), started("a", 2, 10), with(Acked, "a", 2)},
		violations{}},
	{"the clock is set back, token falls", Options{ClockSteps: true},
		[]Event{enq("a", 1), started("a", 2, 20), started("a", 1, 10), with(Acked, "a", 2)},
		violations{"token order": 1}},

	{"a paused consumer starts late", Options{Pauses: true},
		[]Event{enq("a", 1), started("a", 2, 10), started("a", 1, 20), with(Acked, "a", 2)},
		violations{}},
	{"a paused consumer, token again", Options{Pauses: true},
		[]Event{enq("a", 1), started("a", 2, 10), started("a", 1, 20), started("a", 2, 30), with(Acked, "a", 2)},
		violations{"token order": 1}},

	{"early on its own clock", Options{}, []Event{enq("a", 10), beginning("a", 1, 21, 20), with(Acked, "a", 1)}, violations{"early": 1}},
	{"acked and run again", Options{},
		[]Event{enq("a", 1), beginning("a", 2, 10, 20), beginning("a", 1, 10, 10), with(Acked, "a", 1)},
		violations{"repeated": 1}},
	{"handled and run again", Options{},
		[]Event{enq("a", 1), beginning("a", 2, 10, 20), beginning("a", 1, 10, 10), with(Handled, "a", 1)},
		violations{}},

	{"interrupted", Options{Crashes: true},
		[]Event{enq("a", 1), beginning("a", 1, 10, 10), {Kind: Interrupted, ID: "a", Clock: 20}, beginning("a", 2, 10, 21)},
		violations{}},
	{"interrupted and run twice", Options{Crashes: true},
		[]Event{enq("a", 1), beginning("a", 1, 10, 21), beginning("a", 2, 10, 22), {Kind: Interrupted, ID: "a", Clock: 20}},
		violations{"cancelled and run": 1}},
	{"interrupted and still there", Options{Crashes: true},
		[]Event{enq("a", 1), beginning("a", 1, 10, 10), ev(Interrupted, "a"), ev(Cancelled, "a")},
		violations{"cancelled and run": 1}},
	{"interrupted without a clock", Options{Crashes: true},
		[]Event{enq("a", 1), beginning("a", 1, 10, 10), ev(Interrupted, "a"), beginning("a", 2, 10, 11), beginning("a", 3, 10, 12), with(Handled, "a", 3)},
		violations{"cancelled and run": 1}},

	{"recurring", Options{},
		[]Event{ev(Recurring, "a"), enq("a", 0), beginning("a", 1, 10, 10), with(Acked, "a", 1), beginning("a", 2, 20, 20), beginning("a", 3, 20, 25),
			with(Acked, "a", 3), {Kind: Cancelled, ID: "a", Clock: 30}},
		violations{}},
	{"recurring, acked and lost", Options{},
		[]Event{ev(Recurring, "a"), enq("a", 0), beginning("a", 1, 10, 10), with(Handled, "a", 1), with(Acked, "a", 1)},
		violations{"lost": 1}},
	{"recurring, cancelled and run", Options{},
		[]Event{enq("a", 0), beginning("a", 1, 10, 10), with(Acked, "a", 1), {Kind: Cancelled, ID: "a", Clock: 15}, beginning("a", 2, 20, 20), ev(Recurring, "a")},
		violations{"cancelled and run": 1}},
	{"recurring, one run twice", Options{},
		[]Event{ev(Recurring, "a"), enq("a", 0), beginning("a", 1, 10, 10), with(Acked, "a", 1), beginning("a", 4, 20, 20), with(Acked, "a", 4),
			beginning("a", 5, 10, 25), beginning("a", 6, 20, 26), beginning("a", 7, 30, 30), ev(Interrupted, "a")},
		violations{"repeated": 2}},

	{"enqueued twice", Options{},
		[]Event{enq("a", 1), enq("a", 1), started("a", 1, 10), with(Acked, "a", 1)},
		violations{"enqueued twice": 1}},
	{"perhaps enqueued, then enqueued", Options{},
		[]Event{{Kind: MaybeEnqueued, ID: "a", Due: 1}, enq("a", 2), started("a", 1, 1), with(Acked, "a", 1)},
		violations{}},
	{"acked twice", Options{},
		[]Event{enq("a", 1), started("a", 1, 10), started("a", 2, 20), with(Acked, "a", 1), with(Acked, "a", 2)},
		violations{"acked twice": 1}},
	{"handled twice", Options{},
		[]Event{enq("a", 1), started("a", 1, 10), with(Handled, "a", 1), started("a", 2, 20), with(Handled, "a", 2)},
		violations{}},
	{"several together", Options{},
		[]Event{started("a", 1, 1), enq("b", 1), enq("c", 9), started("c", 1, 8), with(Acked, "c", 1)},
		violations{"unknown": 1, "lost": 1, "early": 1}},
}

func TestEachRuleFindsItsViolations(t *testing.T) {
	t.Parallel()
	for _, rule := range rules {
		t.Run(rule.name, func(t *testing.T) {
			t.Parallel()
			h := New(rule.options)
			require.NoError(t, h.Record(rule.events...))
			r := h.Check()
			assert.Equal(t, rule.want, broken(r), r)
			if len(rule.want) == 0 {
				require.NoError(t, r.Err())
				return
			}
			require.ErrorIs(t, r.Err(), ErrViolated)
			for name, n := range rule.want {
				assert.ErrorContains(t, r.Err(), fmt.Sprintf("%s: %d, such as", name, n))
				assert.Contains(t, r.String(), fmt.Sprintf("; %s %d", name, n))
			}
		})
	}
}

func TestEveryFindingIsReported(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for _, rule := range rules {
		for name := range rule.want {
			found[name] = true
		}
	}
	fields := 0
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Report]()) {
		if f.Type == reflect.TypeFor[Finding]() {
			fields++
		}
	}
	assert.Len(t, (&Report{}).findings(), fields)
	assert.Len(t, found, fields, "each rule has a history that breaks it")
}

func TestReportCountsMessagesAndDeliveries(t *testing.T) {
	t.Parallel()
	h := New(Options{})
	require.NoError(t, h.Record(
		enq("a", 1), started("a", 1, 10), started("a", 2, 250), with(Handled, "a", 2), with(Acked, "a", 2),
		enq("b", 1), started("b", 1, 10), with(Failed, "b", 1), Event{Kind: Started, ID: "b", Token: 2, Clock: 9000, Attempt: 2},
		with(Failed, "b", 2), ev(Dead, "b"),
		enq("c", 1), ev(Cancelled, "c"),
		Event{Kind: MaybeEnqueued, ID: "d", Due: 1}, Event{Kind: MaybeEnqueued, ID: "a", Due: 1}))
	assert.Equal(t, &Report{
		Enqueued: 3, MaybeEnqueued: 1, Delivered: 2, Handled: 1, Acked: 1, Dead: 1, Cancelled: 1,
		Starts: 4, Failed: 2, Duplicates: 1, SlowestRedelivery: 240,
	}, h.Check())
	assert.Equal(t, "3 enqueued (and 1 perhaps), 2 delivered in 4 starts, 1 handled, 1 acked, 1 dead, 1 cancelled"+
		"; 2 failed, 1 duplicates, redelivered after 240 ms at most"+
		"; lost 0; unknown 0; early 0; cancelled and run 0; repeated 0; token order 0; enqueued twice 0; acked twice 0", h.Check().String())
}

func TestExamplesAreBounded(t *testing.T) {
	t.Parallel()
	h := New(Options{})
	for i := range 1000 {
		require.NoError(t, h.Record(enq(fmt.Sprint("m", i), 1)))
	}
	r := h.Check()
	assert.Equal(t, 1000, r.Lost.Count)
	assert.Len(t, r.Lost.Examples, maxExamples)
	assert.Less(t, len(r.Err().Error()), 1000)
}

func TestConcurrentRecordsLoseNoEvent(t *testing.T) {
	t.Parallel()
	h := New(Options{})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 500 {
				id := fmt.Sprint("m", i) // all goroutines use the same ids
				err := h.Record(Event{Kind: MaybeEnqueued, ID: id}, started(id, uint64(g+1), 10), with(Handled, id, uint64(g+1)))
				if !assert.NoError(t, err) {
					return
				}
			}
		})
	}
	wg.Wait()
	r := h.Check()
	require.NoError(t, r.Err())
	assert.Equal(t, 500, r.Handled)
	assert.Equal(t, 4000, r.Starts)
	assert.Equal(t, 3500, r.Duplicates)
}

func TestMessageNeedsLessThan500Bytes(t *testing.T) { // not parallel, because it measures the heap
	const messages = 200_000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	h := New(Options{})
	for i := range messages {
		id := fmt.Sprintf("message-%08d", i)
		require.NoError(t, h.Record(enq(id, 1), started(id, 1, 2), with(Acked, id, 1)))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (after.HeapAlloc - before.HeapAlloc) / messages
	t.Logf("%d bytes for each message", each)
	assert.Less(t, each, uint64(500))
	require.NoError(t, h.Check().Err())
}

func BenchmarkRecord(b *testing.B) {
	h := New(Options{})
	b.ReportAllocs()
	for i := range b.N {
		id := fmt.Sprintf("message-%08d", i)
		_ = h.Record(enq(id, 1), started(id, 1, 2), with(Acked, id, 1))
	}
}
