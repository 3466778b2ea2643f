package keyed

import (
	"cmp"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
)

// The states of a key: it is absent, or expires soon, or expires in an hour.
const (
	absent = iota
	soon
	distant
)

// event is a call with its result, or an expiry. It took effect at some time between begin and end.
type event struct {
	begin, end time.Duration
	name       string
	answer     bool
	next       func(state int) (after int, answer bool) // the new state and the result if applied to state
}

// linearizable reports whether there is an order of the events that agrees with their times, in
// which each event has its result, and after which the key is in a wanted state.
func linearizable(events []event, wanted func(state int) bool) bool {
	type position struct {
		done  uint64
		state int
	}
	seen := map[position]bool{}
	var search func(p position) bool
	search = func(p position) bool {
		if bits.OnesCount64(p.done) == len(events) {
			return wanted(p.state)
		}
		if seen[p] {
			return false
		}
		seen[p] = true
		first := time.Duration(1<<63 - 1) // the next event must begin before all other events have ended
		for i, e := range events {
			if p.done>>i&1 == 0 {
				first = min(first, e.end)
			}
		}
		for i, e := range events {
			if p.done>>i&1 != 0 || e.begin > first {
				continue
			}
			if after, answer := e.next(p.state); answer == e.answer && search(position{p.done | 1<<i, after}) {
				return true
			}
		}
		return false
	}
	return search(position{state: absent})
}

// history has the events of one key.
type history struct {
	mu     sync.Mutex
	events []event
}

func (h *history) add(e event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
}

// targets are the states into which a Set or Touch brings a key, and the delays for it.
var targets = []struct {
	state int
	d     func() time.Duration
}{
	{soon, func() time.Duration { return 0 }},
	{soon, func() time.Duration { return rand.N(60 * time.Microsecond) }},
	{distant, func() time.Duration { return time.Hour }},
}

// call makes a random call with the key and returns it as an event.
func call(k *Keys[uint64], key uint64, now func() time.Duration) event {
	w := targets[rand.IntN(len(targets))]
	d := w.d()
	e := event{begin: now()}
	switch rand.IntN(8) {
	case 0, 1:
		e.answer = k.Set(key, d)
		e.name, e.next = fmt.Sprint("Set ", d), func(state int) (int, bool) { return w.state, state == absent }
	case 2:
		e.answer = k.SetAt(key, k.Now().Add(d))
		e.name, e.next = fmt.Sprint("SetAt ", d), func(state int) (int, bool) { return w.state, state == absent }
	case 3, 4:
		e.answer = k.Touch(key, d)
		e.name, e.next = fmt.Sprint("Touch ", d), func(state int) (int, bool) {
			if state == absent {
				return absent, false
			}
			return w.state, true
		}
	case 5:
		e.answer = k.Delete(key)
		e.name, e.next = "Delete", func(state int) (int, bool) { return absent, state != absent }
	case 6:
		e.answer = k.Has(key)
		e.name, e.next = "Has", func(state int) (int, bool) { return state, state != absent }
	default:
		at, ok := k.Deadline(key)
		e.answer = ok && at.After(k.Now().Add(time.Minute))
		e.name, e.next = "Deadline", func(state int) (int, bool) { return state, state == distant }
	}
	e.end = now()
	return e
}

// Goroutines call random methods with the same keys while the keys expire. For each key there must
// be an order of the calls and expiries in which each result is right, no key expires early, and
// every key that was to expire soon has expired. This covers all guarantees of Keys.
func TestRaceIsLinearizable(t *testing.T) {
	t.Parallel()
	for name, opts := range executors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raceLinearizable(t, opts, func(k *Keys[uint64], over <-chan struct{}) { <-over })
		})
	}
	t.Run("manual", func(t *testing.T) {
		t.Parallel()
		opts := timingwheel.Options{Manual: true, Tick: 20 * time.Microsecond, WheelSize: 4, Shards: 3}
		raceLinearizable(t, opts, func(k *Keys[uint64], over <-chan struct{}) {
			for {
				select {
				case <-over:
					return
				default:
					k.Advance(k.Now().Add(10 * time.Microsecond))
					runtime.Gosched()
				}
			}
		})
	})
}

func raceLinearizable(t *testing.T, opts timingwheel.Options, drive func(k *Keys[uint64], over <-chan struct{})) {
	histories := make([]history, scaled(4000))
	base := time.Now()
	now := func() time.Duration { return time.Since(base) }
	var begins sync.Map // of batches, by their first elements' addresses
	k := &Keys[uint64]{expire: func(keys []uint64) {
		end := now()
		begin, _ := begins.Load(&keys[0])
		for _, key := range keys {
			histories[key].add(event{begin.(time.Duration), end, "expiry", true, func(state int) (int, bool) { return absent, state == soon }})
		}
		if rand.IntN(20) == 0 {
			panic("must lose no other key")
		}
	}}
	opts.OnPanic = func(any, []byte) {}
	require.NoError(t, k.init(opts, nil, func(claimed []uint64) {
		begins.Store(&claimed[0], now())
		if rand.IntN(4) == 0 {
			runtime.Gosched()
		}
		k.sweep(claimed)
	}))
	t.Cleanup(k.Stop)

	over := make(chan struct{})
	driven := make(chan struct{})
	go func() {
		defer close(driven)
		drive(k, over)
	}()
	callAll(k, histories, now)
	settled := func() bool {
		pending := 0
		for _, deadline := range k.All() {
			if deadline.Before(k.Now().Add(time.Minute)) {
				return false
			}
			pending++
		}
		return k.Stats().Running == 0 && k.Len() == pending
	}
	require.Eventually(t, settled, time.Minute, ms, "a key is lost")
	close(over)
	<-driven
	for key := range histories {
		last := absent
		if k.Has(uint64(key)) {
			last = distant
		}
		if events := histories[key].events; !linearizable(events, func(state int) bool { return state == last }) {
			slices.SortFunc(events, func(a, b event) int { return cmp.Compare(a.begin, b.begin) })
			for _, e := range events {
				t.Logf("%v to %v: %s: %v", e.begin, e.end, e.name, e.answer)
			}
			t.Fatalf("key %d: no order of these events explains the results and the final state %d", key, last)
		}
	}
}

// callAll makes random calls from several goroutines, which all use the same key at a time.
func callAll(k *Keys[uint64], histories []history, now func() time.Duration) {
	const goroutines, calls = 3, 4
	var arrived atomic.Int64
	var group sync.WaitGroup
	for range goroutines {
		group.Go(func() {
			for key := range histories {
				for arrived.Add(1); arrived.Load() < int64(goroutines*(key+1)); {
					runtime.Gosched()
				}
				for range calls {
					histories[key].add(call(k, uint64(key), now))
				}
			}
		})
	}
	group.Wait()
}

func TestCheckerFindsViolations(t *testing.T) {
	t.Parallel()
	set := func(begin, end time.Duration, answer bool, to int) event {
		return event{begin, end, "Set", answer, func(state int) (int, bool) { return to, state == absent }}
	}
	expiry := func(begin, end time.Duration) event {
		return event{begin, end, "expiry", true, func(state int) (int, bool) { return absent, state == soon }}
	}
	for name, c := range map[string]struct {
		events []event
		last   int
		want   bool
	}{
		"set and expired":         {[]event{set(1, 2, true, soon), expiry(3, 4)}, absent, true},
		"lost":                    {[]event{set(1, 2, true, soon)}, absent, false},
		"twice":                   {[]event{set(1, 2, true, soon), expiry(3, 4), expiry(3, 4)}, absent, false},
		"early":                   {[]event{set(1, 2, true, distant), expiry(3, 4)}, absent, false},
		"before it was set":       {[]event{set(3, 4, true, soon), expiry(1, 2)}, absent, false},
		"replaced in time":        {[]event{set(1, 2, true, soon), set(3, 4, false, distant)}, distant, true},
		"replaced, but expired":   {[]event{set(1, 2, true, soon), set(3, 4, false, distant), expiry(5, 6)}, absent, false},
		"set again during expiry": {[]event{set(1, 2, true, soon), set(3, 6, true, distant), expiry(4, 5)}, distant, true},
	} {
		assert.Equal(t, c.want, linearizable(c.events, func(state int) bool { return state == c.last }), name)
	}
}
