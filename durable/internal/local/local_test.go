package local

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
	"github.com/timingwheel-go/timingwheel/durable/internal/transition"
)

func TestDueInstantsAreNeverEarly(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 123_456_789) // a part of a millisecond has passed
	const floor driver.Instant = 1_700_000_000_123
	assert.Equal(t, floor, transition.Floor(now))
	assert.Equal(t, driver.Instant(1), transition.Floor(time.Unix(0, 0)), "0 stands for none")
	assert.Equal(t, driver.Instant(1), transition.Floor(time.Unix(-5, 0)))
	for name, c := range map[string]struct {
		d    time.Duration
		want driver.Instant
	}{
		"no delay":             {0, floor},
		"a negative delay":     {math.MinInt64, floor},
		"within a millisecond": {1, floor + 1},
		"to a millisecond":     {543_211, floor + 1},
		"a nanosecond after":   {543_212, floor + 2},
		"a whole millisecond":  {time.Millisecond, floor + 2},
		"the longest duration": {math.MaxInt64, floor + math.MaxInt64/1_000_000 + 2},
	} {
		got := transition.After(now, c.d)
		assert.Equal(t, c.want, got, name)
		assert.Equal(t, c.want, transition.DueAt(now, 0, c.d), name)
		if c.d > 0 {
			assert.False(t, got.Time().Before(now.Add(c.d)), name)
		}
	}
	assert.Equal(t, floor, transition.DueAt(now, 5, time.Hour), "a past instant is due now")
	assert.Equal(t, floor+5, transition.DueAt(now, floor+5, time.Hour), "an instant and no delay")
	assert.Equal(t, driver.Never, transition.DueAt(now, math.MaxInt64, 0))
	assert.Equal(t, floor+1001, transition.LeaseEnd(now, floor-50, time.Second), "after now")
	assert.Equal(t, floor+6000, transition.LeaseEnd(now, floor+5000, time.Second), "after the due time")
	assert.Equal(t, driver.Never, transition.LeaseEnd(now, driver.Never, math.MaxInt64))
}

// names returns the names of members.
func names(members []driver.Member) (names []string) {
	for _, m := range members {
		names = append(names, m.Name)
	}
	return names
}

func TestMembersExpireAndFollowClock(t *testing.T) {
	t.Parallel()
	m := &new(Shared).of("q").members
	now := time.Unix(1_700_000_000, 0)
	assert.Empty(t, names(m.beat(now, driver.Member{Name: "gone"}, 0)), "a consumer that is not a member may leave")
	assert.Equal(t, []string{"b"}, names(m.beat(now, driver.Member{Name: "b"}, time.Second)))
	assert.Equal(t, []string{"a", "b"}, names(m.beat(now, driver.Member{Name: "a"}, 3*time.Second)))
	now = now.Add(time.Second)
	assert.Equal(t, []string{"a", "c"}, names(m.beat(now, driver.Member{Name: "c"}, time.Second)), "b has not been seen for a second")
	assert.Equal(t, []string{"c"}, names(m.beat(now, driver.Member{Name: "a"}, -1)))
	assert.Equal(t, []string{"b", "c"}, names(m.beat(now, driver.Member{Name: "b"}, time.Second)), "a member may return")
}

func TestHintsNeverBlockAndEndWithContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &new(Shared).of("q").hints
		h.send(driver.Hint{Partition: 1}) // without a watcher
		first, leave := context.WithCancel(t.Context())
		a, b := h.watch(first), h.watch(t.Context())
		h.send(driver.Hint{Partition: 2})
		assert.Equal(t, driver.Hint{Partition: 2}, <-a)
		assert.Equal(t, driver.Hint{Partition: 2}, <-b)
		leave()
		_, open := <-a
		assert.False(t, open)
		for i := range hintBuffer + 10 { // more than the buffer of b, which does not receive
			h.send(driver.Hint{Partition: i})
		}
		require.Len(t, b, hintBuffer)
		c := h.watch(first)
		_, open = <-c
		assert.False(t, open, "the context of the watcher has ended already")
	})
}

// A settlement or a crash sets Postponed to 0. Other transitions keep it.
func TestSettlementsEndPostponements(t *testing.T) {
	t.Parallel()
	s, b := openTest(t, new(Map), time.Now)
	for op, want := range map[driver.Op]int{driver.OpRelease: 7, driver.OpRetry: 0, driver.OpBury: 0, driver.OpExtend: 0} {
		id := op.String()
		_, err := b.Put(t.Context(), driver.Put{Items: []driver.PutItem{{ID: id, Repeat: "k"}}})
		require.NoError(t, err)
		p := s.queues["q"].partitions[0]
		r, err := p.table.load(id)
		require.NoError(t, err)
		r.msg.Postponed = 7
		p.table.set(r)
		claimed, err := b.Claim(t.Context(), driver.Claim{Max: 1, Begin: 1, MaxBytes: 1, Visibility: time.Hour})
		require.NoError(t, err)
		assert.Equal(t, 7, claimed.Records[0].Postponed)
		change := driver.Change{ID: id, Token: claimed.Records[0].Token, Delay: time.Hour}
		if op == driver.OpExtend { // to a lease that ends now
			change.Delay = 0
		}
		_, err = b.Apply(t.Context(), driver.Batch{Op: op, Changes: []driver.Change{change}})
		require.NoError(t, err)
		_, err = b.Claim(t.Context(), driver.Claim{})
		require.NoError(t, err)
		got, err := b.Get(t.Context(), 0, id)
		require.NoError(t, err)
		assert.Equal(t, want, got.Postponed, id)
		assert.Equal(t, "k", got.Repeat)
		_, err = b.Apply(t.Context(), driver.Batch{Op: driver.OpReschedule, Changes: []driver.Change{{ID: id, Delay: time.Hour}}})
		require.NoError(t, err)
	}
}

// lateRunner runs calls on a state. If late is set, the caller of the next one does not wait.
type lateRunner struct {
	mu    sync.Mutex
	state *State
	late  bool
}

func (*lateRunner) Check(context.Context) error { return nil }

func (r *lateRunner) Run(_ context.Context, call *Call) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.late {
		return call.Do(r.state)
	}
	r.late = false
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.mu.Lock()
		defer r.mu.Unlock()
		_ = call.Do(r.state)
	}()
	return &contract.UnderWayError{Cause: context.Canceled, Done: done}
}

// The context of a claim ends while the claim is in progress. Its messages are scheduled again, and
// those that began count no crash.
func TestClaimWithoutACallerIsReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := Shared{Name: "local", Now: time.Now}
		state, err := Load(new(Map), &shared, nil)
		require.NoError(t, err)
		r := &lateRunner{state: state}
		b, err := NewStore(r, &shared).Open(t.Context(), driver.Config{
			Queue: "q", Partitions: 1, DeadLimit: 1, DeadBytes: 1, DeadAge: 1,
		})
		require.NoError(t, err)
		_, err = b.Put(t.Context(), driver.Put{Items: []driver.PutItem{{ID: "a"}, {ID: "b"}}})
		require.NoError(t, err)
		claim := driver.Claim{Max: 2, MaxBytes: 1, Begin: 1, Visibility: time.Hour, MaxCrashes: 1}
		r.late = true
		_, err = b.Claim(t.Context(), claim)
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		claimed, err := b.Claim(t.Context(), claim)
		require.NoError(t, err)
		require.Len(t, claimed.Records, 2)
		assert.Zero(t, claimed.Records[0].Crashes)
	})
}
