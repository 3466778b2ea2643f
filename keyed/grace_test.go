package keyed

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
)

// manualMonitor has a timeout of 2 s in Manual mode. Its members beat every 0.5 s.
type manualMonitor struct {
	*Heartbeats[int]
	live     []int
	reported []int
	at       []time.Duration // since begin, of each report
	begin    time.Time
}

func newManualMonitor(t *testing.T, grace time.Duration, members int) *manualMonitor {
	m := &manualMonitor{}
	h, err := NewHeartbeats(timingwheel.Options{Manual: true}, 2*time.Second, func(keys []int) {
		for _, key := range keys {
			m.reported = append(m.reported, key)
			m.at = append(m.at, m.Now().Sub(m.begin))
		}
	})
	require.NoError(t, err)
	t.Cleanup(h.Stop)
	h.Grace = grace
	m.Heartbeats, m.begin = h, h.Now()
	for key := range members {
		require.True(t, m.Beat(key))
		m.live = append(m.live, key)
	}
	return m
}

// run moves the clock by d in small steps. The live members beat in turn, each every 0.5 s.
func (m *manualMonitor) run(d time.Duration) {
	const step = 10 * time.Millisecond
	for ; d > 0; d -= step {
		m.Advance(m.Now().Add(step))
		turn := int(m.Now().Sub(m.begin) / step)
		for _, key := range m.live {
			if key%50 == turn%50 {
				m.Beat(key)
			}
		}
	}
}

// stall moves the clock in one step, as if the process had been stopped.
func (m *manualMonitor) stall(d time.Duration) { m.Advance(m.Now().Add(d)) }

// The monitor is stopped for 5 s while 1,000 members go on beating, and their beats are read
// afterwards. Without grace, members that beat all the time are reported.
func TestGraceSparesLiveMembersAfterStall(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		grace    time.Duration
		reported int
	}{{0, 1000}, {-1, 1000}, {time.Second, 0}, {time.Hour, 0}} {
		m := newManualMonitor(t, row.grace, 1000)
		m.run(7 * time.Second)
		require.Empty(t, m.reported)
		m.stall(5 * time.Second)
		m.run(7 * time.Second)
		require.Len(t, m.reported, row.reported, "grace %v", row.grace)
		assert.Equal(t, 1000, m.Len())
	}
}

// Grace postpones the report of a silent member to one Grace after the stall.
func TestGracePostponesReportsOnce(t *testing.T) {
	t.Parallel()
	m := newManualMonitor(t, time.Second, 100)
	m.run(10 * time.Second)
	m.live = m.live[1:] // member 0 has beaten for the last time, at 10 s
	m.run(1500 * time.Millisecond)
	m.stall(5 * time.Second)
	m.run(990 * time.Millisecond)
	require.Empty(t, m.reported)
	require.True(t, m.Alive(0))
	m.run(20 * time.Millisecond)
	require.Equal(t, []int{0}, m.reported)
	require.InDelta(t, float64(17500*time.Millisecond), float64(m.at[0]), float64(20*time.Millisecond))
	m.live = m.live[1:]
	m.run(10 * time.Second)
	require.Equal(t, []int{0, 1}, m.reported, "without a stall a member is reported after the timeout")
	require.Less(t, m.at[1]-m.at[0], 2500*time.Millisecond)
}

// The timer of the only member is hardly late, because its deadline passed at the end of the stall
// or soon after it. The wheel was late all the same.
func TestGraceAppliesIfOnlyTheWheelWasLate(t *testing.T) {
	t.Parallel()
	for stall := 1100 * time.Millisecond; stall < 4*time.Second; stall += 50 * time.Millisecond {
		m := newManualMonitor(t, time.Second, 1)
		m.run(2500 * time.Millisecond)
		m.live = nil
		m.stall(stall)
		m.run(990 * time.Millisecond) // the beats wait in the socket for nearly as long as Grace
		require.Empty(t, m.reported, "a stall of %v", stall)
	}
}

// If the wheel is late by less than a quarter of the timeout, members are reported as without
// grace.
func TestGraceDoesNotApplyIfTheWheelIsHardlyLate(t *testing.T) {
	t.Parallel()
	m := newManualMonitor(t, time.Hour, 10)
	for range 100 {
		m.stall(500 * time.Millisecond)
		for _, key := range m.live[:9] {
			m.Beat(key)
		}
	}
	require.Equal(t, []int{9}, m.reported)
	require.Equal(t, 2*time.Second, m.at[0])
}

// A coarse tick, which rounds deadlines up, does not count as lateness.
func TestGraceAllowsForTheTick(t *testing.T) {
	t.Parallel()
	for _, tick := range []time.Duration{time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			start, reports := time.Now(), make(chan time.Duration, 1)
			h, err := NewHeartbeats(timingwheel.Options{Tick: tick}, 3*time.Second, func([]int) { reports <- time.Since(start) })
			require.NoError(t, err)
			defer h.Stop()
			h.Grace = time.Hour
			h.Beat(1)
			require.LessOrEqual(t, <-reports, 3*time.Second+tick)
		})
	}
}

// A set without members has no timer. The time without members is no stall.
func TestGraceNeedsNoTimerWithoutMembers(t *testing.T) {
	t.Parallel()
	m := newManualMonitor(t, time.Hour, 1)
	m.Leave(0)
	m.live = nil
	m.run(time.Second)
	_, pending := m.Next()
	require.False(t, pending)
	m.stall(24 * time.Hour)
	m.Beat(0)
	m.run(2500 * time.Millisecond)
	require.Equal(t, []int{0}, m.reported)
	m.run(time.Second)
	_, pending = m.Next()
	require.False(t, pending)
}

// A new member may be the first to notice a stall. It must not hide the stall.
func TestGraceNoticesStallBeforeNewMember(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		var mu sync.Mutex
		var reported []int
		h, err := NewHeartbeats(timingwheel.Options{Executor: timingwheel.Inline, Shards: 1}, 2*time.Second, func(keys []int) {
			mu.Lock()
			reported = append(reported, keys...)
			mu.Unlock()
			<-gate
		})
		require.NoError(t, err)
		defer h.Stop()
		h.Grace = 5 * time.Second
		h.Beat(-1)
		time.Sleep(1500 * time.Millisecond)
		for key := range 100 {
			h.Beat(key)
		}
		time.Sleep(5 * time.Second) // the report of -1 blocks the driver
		h.Beat(100)
		close(gate)
		time.Sleep(4 * time.Second)
		for key := range 100 {
			assert.False(t, h.Beat(key), "member %d was reported", key)
		}
		time.Sleep(5 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(reported)
		require.Equal(t, -1, reported[0])
		require.Len(t, reported, 102, "each member is reported once in the end")
	})
}

// With several shards and the default executor, members that stop beating are reported in time and
// once, while others beat, leave and join.
func TestGraceReportsSilentMembersInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		reported := map[int]time.Time{}
		h, err := NewHeartbeats(timingwheel.Options{Shards: 4}, time.Second, func(keys []int) {
			mu.Lock()
			defer mu.Unlock()
			for _, key := range keys {
				assert.Zero(t, reported[key], "member %d is reported twice", key)
				reported[key] = time.Now()
			}
		})
		require.NoError(t, err)
		defer h.Stop()
		h.Grace = time.Hour
		last := map[int]time.Time{}
		for now := range 200 {
			for key := now; key < now+50; key++ { // key beats from key-49 to key
				h.Beat(key)
				last[key] = time.Now()
			}
			if h.Leave(now + 1000); now%3 == 0 {
				h.Beat(now + 1000)
			}
			time.Sleep(100 * time.Millisecond)
		}
		for key := range 200 {
			h.Leave(key + 1000)
		}
		time.Sleep(2 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		for key, at := range last {
			late := reported[key].Sub(at) - time.Second
			assert.True(t, late >= 0 && late <= time.Millisecond, "member %d: %v late", key, late)
		}
	})
}
