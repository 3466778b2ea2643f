package impl

import (
	"fmt"
	"io"
	"log"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard) // gost logs its end
	os.Exit(m.Run())
}

func TestConformance(t *testing.T) {
	t.Parallel()
	conforms(t, Std)
	conforms(t, Wheel)
	conforms(t, Wheel.AtCoarseTick())
	conforms(t, Timeouts)
	conforms(t, GoZero)
	conforms(t, GoZero.AtCoarseTick())
	conforms(t, Gost)
	conforms(t, Siddontang)
	conforms(t, Siddontang.AtCoarseTick())
	conforms(t, RussellLuo)
	conforms(t, RussellLuo.AtCoarseTick())
	conforms(t, Antlabs)
	conforms(t, Rfyiamcool)
	conforms(t, Rfyiamcool.AtCoarseTick())
	conforms(t, Ouqiang)
}

const (
	far     = 30 * time.Second // after the end of every test
	soon    = 20 * time.Millisecond
	maxWait = 20 * time.Second // for timers that are due within milliseconds
)

// conforms checks the traits of an implementation that has a clock.
func conforms[H any](t *testing.T, i Implementation[H]) {
	t.Helper()
	conformsTo(t, i, false)
	if i.Reset > MayDeadlock {
		conformsTo(t, i, true)
	}
}

func conformsTo[H any](t *testing.T, i Implementation[H], resets bool) {
	t.Helper()
	t.Run(fmt.Sprintf("%s/resets=%t", i.Name, resets), func(t *testing.T) {
		t.Parallel()
		if i.Unsupported != "" {
			t.Skip(i.Unsupported)
		}
		c := &calls{}
		timers, err := i.Open(Config{Tick: i.Tick, Horizon: far + time.Second, Resets: resets, Fire: c.call})
		require.NoError(t, err)
		defer timers.Close()
		for id := range uint64(100) {
			timers.After(time.Duration(id)*time.Millisecond/4, id, func() { c.call(id) })
		}
		c.await(t, 100)

		last := timers.After(far, 100, func() { c.call(100) })
		if i.Stop > MayDeadlock {
			assert.Equal(t, i.Stop.HasResult(), timers.Stop(last), "Stop, pending timer")
		}
		if i.Stop == Exact {
			assert.False(t, timers.Stop(last), "Stop, stopped timer")
		}
		if resets {
			moved := timers.After(far, 101, func() { c.call(101) })
			assert.Equal(t, i.Reset.HasResult(), timers.Reset(moved, soon), "Reset, pending timer")
			c.await(t, 101)
			assert.Equal(t, uint32(1), c.of[101].Load(), "calls of the timer that was reset")
		}
		for id := range 100 {
			assert.Equal(t, uint32(1), c.of[id].Load(), "timer %d", id)
		}
		assert.Zero(t, c.of[100].Load(), "calls of the timer far ahead")
	})
}

// calls counts the calls to callbacks.
type calls struct {
	all atomic.Int64
	of  [102]atomic.Uint32
}

func (c *calls) call(id uint64) {
	c.of[id].Add(1)
	c.all.Add(1)
}

func (c *calls) await(t *testing.T, n int64) {
	t.Helper()
	require.Eventually(t, func() bool { return c.all.Load() >= n }, maxWait, time.Millisecond)
}

func TestManualDoesNotFireUntilItsClockIsMoved(t *testing.T) {
	t.Parallel()
	timers, err := Manual.Open(Config{})
	require.NoError(t, err)
	h := timers.After(0, 0, func() { t.Error("ran") })
	assert.True(t, timers.Reset(h, soon))
	assert.True(t, timers.Stop(h))
	assert.False(t, timers.Stop(h))
	timers.Close()
}

func TestSupportSaysWhetherACallIsReliableAndHasAResult(t *testing.T) {
	t.Parallel()
	for support, want := range map[Support]struct{ reliable, hasResult bool }{
		Absent: {false, false}, MayDeadlock: {false, false}, MayDrop: {false, false}, WrongDeadline: {true, false}, NoResult: {true, false}, WrongResults: {true, true}, Exact: {true, true},
	} {
		assert.Equal(t, want.reliable, support.Reliable(), "%v", support)
		assert.Equal(t, want.hasResult, support.HasResult(), "%v", support)
	}
}

func TestSupportNames(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"no", "may deadlock", "may be dropped", "may be a revolution off", "no result", "results may be wrong", "yes"},
		[]string{Absent.String(), MayDeadlock.String(), MayDrop.String(), WrongDeadline.String(), NoResult.String(), WrongResults.String(), Exact.String()})
}
