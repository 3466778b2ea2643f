package wheelview

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The example of the comment in timingwheel.go.
func TestTimerOfTheExampleMovesDownThreeLevels(t *testing.T) {
	t.Parallel()
	w := New()
	require.True(t, w.Preset("cascade"))
	require.Equal(t, []Timer{{ID: 1, Deadline: 213, Level: 2, Slot: 3}}, w.View().Timers)
	require.Equal(t, 192, w.View().Next)
	for w.Skip() {
	}
	assert.Equal(t, []string{
		"5: Timer 1 is armed for tick 213: level 2, slot 3.",
		"192: Timer 1 moves from level 2 to level 1, slot 2.",
		"208: Timer 1 moves from level 1 to level 0, slot 5.",
		"213: Timer 1 runs at tick 213.",
	}, w.View().Log)
	assert.Equal(t, 3, w.View().Stops)
	assert.Equal(t, -1, w.View().Next)
}

func TestTimerBeyondTheLastLevelWaitsForItsRound(t *testing.T) {
	t.Parallel()
	w := New()
	require.True(t, w.Preset("rounds"))
	require.Equal(t, []Timer{{ID: 1, Deadline: 213, Level: 2, Slot: 3}, {ID: 2, Deadline: 1237, Level: 2, Slot: 3, Rounds: 2}}, w.View().Timers)
	w.Step(213 - 5)
	assert.Equal(t, []Timer{{ID: 2, Deadline: 1237, Level: 2, Slot: 3, Rounds: 2}}, w.View().Timers)
	for w.Skip() {
	}
	log := w.View().Log
	assert.Equal(t, []string{
		"1216: Timer 2 moves from level 2 to level 1, slot 2.",
		"1232: Timer 2 moves from level 1 to level 0, slot 5.",
		"1237: Timer 2 runs at tick 1237.",
	}, log[len(log)-3:])
	assert.Equal(t, 6, w.View().Stops, "six wake-ups, as the comment says")
}

func TestHeartbeatKeepsItsTimerAlive(t *testing.T) {
	t.Parallel()
	w := New()
	require.True(t, w.Preset("heartbeat"))
	w.Step(100)
	require.Len(t, w.View().Timers, 1)
	assert.Equal(t, 1, w.View().Timers[0].ID)
	assert.Contains(t, w.View().Log, "12: Timer 2 runs at tick 12.")
}

func TestStopAndRescheduleSayWhetherATimerWasPending(t *testing.T) {
	t.Parallel()
	w := New()
	id := w.Arm(10)
	assert.True(t, w.Reschedule(id, 3))
	assert.Equal(t, 3, w.View().Timers[0].Deadline)
	assert.True(t, w.Stop(id))
	assert.False(t, w.Stop(id))
	assert.False(t, w.Reschedule(id, 3))
	assert.False(t, w.Preset("none"))
	assert.Empty(t, w.View().Timers)
	assert.False(t, w.Skip())
}

func TestAtMostMaxTimersAreShown(t *testing.T) {
	t.Parallel()
	w := New()
	for range MaxTimers {
		require.NotZero(t, w.Arm(7))
	}
	assert.Zero(t, w.Arm(7))
	w.Step(7)
	assert.Empty(t, w.View().Timers)
	assert.Len(t, w.View().Log, 2*MaxTimers+1)
}

// Random steps: each timer is in exactly one slot, and runs at its deadline.
func TestEveryTimerIsInOneSlotAndRunsAtItsDeadline(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		w := New()
		for range 150 {
			switch rng.IntN(6) {
			case 0, 1:
				w.Arm(rng.IntN(1 << rng.IntN(11)))
			case 2:
				w.Stop(rng.IntN(w.last + 1))
			case 3:
				w.Reschedule(rng.IntN(w.last+1), rng.IntN(1<<rng.IntN(10)))
			case 4:
				w.Step(rng.IntN(10))
			case 5:
				w.Skip()
			}
			v := w.View()
			shown := 0
			for _, level := range v.Levels {
				for _, slot := range level.Slots {
					shown += len(slot)
				}
			}
			require.Len(t, v.Timers, shown, "seed %d", seed)
			require.Equal(t, w.tw.Len(), shown, "seed %d", seed)
			for _, timer := range v.Timers {
				require.Greater(t, timer.Deadline, v.Tick, "seed %d", seed)
			}
			for _, line := range v.Log {
				require.NotContains(t, line, "after its deadline", "seed %d", seed)
			}
		}
	}
}
