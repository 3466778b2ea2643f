package timingwheel

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// families of parents that tw knows, and notes of parents with one child.
func familiesOf(tw *TimingWheel) (known, notes int) {
	for i := range tw.families.stripes {
		known += len(tw.families.stripes[i].by)
	}
	for i := range tw.families.known {
		if tw.families.known[i].Load() != 0 {
			notes++
		}
	}
	return known, notes
}

// An only child watches its parent alone. Those that come while it lives share a family, whoever
// leaves first.
func TestFamiliesAreForSeveralChildren(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		parent, end := context.WithCancel(context.Background())
		defer end()
		expect := func(families, notes int, when string) {
			t.Helper()
			f, n := familiesOf(tw)
			assert.Equal(t, families, f, when)
			assert.Equal(t, notes, n, when)
		}
		for range 3 { // one after the other
			_, cancel := tw.WithTimeout(parent, time.Minute)
			expect(0, 1, "an only child")
			cancel()
			expect(0, 0, "no child")
		}
		_, first := tw.WithTimeout(parent, time.Minute)
		_, second := tw.WithTimeout(parent, time.Minute)
		_, third := tw.WithTimeout(parent, time.Minute)
		expect(1, 1, "three")
		second()
		first()
		expect(1, 0, "the third")
		third()
		expect(0, 0, "nobody")
	})
}

// The end of the parent reaches the only child and the family, at once where it is asked for, and
// gives back their timers.
func TestParentEndsOnlyChildAndFamily(t *testing.T) {
	t.Parallel()
	for _, children := range []int{1, 2, 50} {
		contextBubble(t, func(t *testing.T, tw *TimingWheel) {
			parent, end := context.WithCancelCause(context.Background())
			var all []context.Context
			for range children {
				ctx, cancel := tw.WithTimeout(parent, time.Minute)
				defer cancel()
				below, cancelBelow := tw.WithTimeout(ctx, time.Second)
				defer cancelBelow()
				all = append(all, ctx, below)
			}
			require.Equal(t, 2*children, tw.Len())
			end(errCause)
			assertAllEnded(t, all, context.Canceled, errCause) // nobody waits for the goroutine that tells them
			synctest.Wait()
			known, notes := familiesOf(tw)
			assert.Zero(t, known)
			assert.Zero(t, notes)
			assert.Zero(t, tw.Len())
		})
	}
}

// The same where nobody asks.
func TestParentEndsThoseThatNobodyAsks(t *testing.T) {
	t.Parallel()
	for _, children := range []int{1, 2, 50} {
		contextBubble(t, func(t *testing.T, tw *TimingWheel) {
			parent, end := context.WithCancel(context.Background())
			for range children {
				_, cancel := tw.WithTimeout(parent, time.Minute)
				defer cancel()
			}
			end()
			synctest.Wait()
			known, _ := familiesOf(tw)
			assert.Zero(t, known)
			assert.Zero(t, tw.Len())
		})
	}
}

// What has ended before it could join a family is not in it, and the family does not stay for it.
func TestContextThatEndedBeforeItJoined(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		parent, end := context.WithCancel(context.Background())
		defer end()
		for name, join := range map[string]func(c *deadlineContext){
			"alone":    func(c *deadlineContext) { c.tieAlone(above(parent), &tw.families) },
			"a family": func(c *deadlineContext) { tw.families.enter(c, above(parent)) },
			"of ours": func(c *deadlineContext) {
				p, cancel := tw.WithTimeout(parent, time.Minute)
				defer cancel()
				p.(*deadlineContext).adopt(c)
				assert.Nil(t, p.(*deadlineContext).children.Load().members)
			},
		} {
			c := &deadlineContext{parent: parent}
			c.endWith(&timedOut)
			join(c)
			known, notes := familiesOf(tw)
			assert.Zero(t, known, name)
			assert.Zero(t, notes, name)
			assertEnded(t, c, context.DeadlineExceeded, context.DeadlineExceeded)
		}
	})
}

// A note may outlive the child that it is of. It goes with the family that it leads to.
func TestNoteGoesWithTheFamily(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		parent, end := context.WithCancel(context.Background())
		defer end()
		require.False(t, tw.families.knows(parent.Done()))
		_, cancel := tw.WithTimeout(parent, time.Hour)
		known, notes := familiesOf(tw)
		assert.Equal(t, 1, known)
		assert.Equal(t, 1, notes)
		cancel()
		_, notes = familiesOf(tw)
		assert.Zero(t, notes)
	})
}

// Where the notes of two parents meet the later one stands, and the earlier parent's child does not
// take it away.
func TestNotesThatMeet(t *testing.T) {
	t.Parallel()
	var all families
	one := make(chan struct{})
	slot, _ := all.mark(one)
	for {
		other := make(chan struct{})
		if at, _ := all.mark(other); at != slot {
			continue
		}
		require.False(t, all.knows(one))
		require.True(t, all.knows(one))
		require.False(t, all.knows(other))
		all.unknow(one)
		assert.True(t, all.knows(other))
		all.unknow(other)
		assert.Zero(t, slot.Load())
		return
	}
}

// One after the other costs no more than alone, as a family that comes and goes would.
func TestAllocationsOfOnlyChildren(t *testing.T) {
	if underRace {
		t.Skip("the race detector allocates")
	}
	tw := startWheel(t, Options{})
	parent, end := context.WithCancel(context.Background())
	defer end()
	assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
		_, cancel := tw.WithTimeout(parent, time.Hour)
		cancel()
	}), 8.0)
}

// Questions cost nothing once Done has been asked for, nor does it cost anything to say that a
// parent was cancelled.
func TestAllocationsOfQuestions(t *testing.T) {
	if underRace {
		t.Skip("the race detector allocates")
	}
	tw := startWheel(t, Options{})
	parent, end := context.WithCancel(context.Background())
	ctx, cancel := tw.WithTimeout(parent, time.Hour)
	defer cancel()
	ask := func() {
		_, _ = ctx.Deadline()
		_, _, _ = ctx.Done(), ctx.Err(), context.Cause(ctx)
	}
	assert.Zero(t, testing.AllocsPerRun(100, ask))
	end()
	assert.Zero(t, testing.AllocsPerRun(100, func() { endOf(parent) }))
	assert.Zero(t, testing.AllocsPerRun(100, ask))
}

// Stop discards the deadlines of the wheel's contexts, but not that of the one that Shutdown waits
// with.
func TestShutdownWithAContextOfItsOwn(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		begun, end := make(chan struct{}), make(chan struct{})
		tw.AfterFunc(0, func() {
			close(begun)
			<-end
		})
		<-begun
		ctx, cancel := tw.WithTimeout(context.Background(), time.Second)
		defer cancel()
		assert.ErrorIs(t, tw.Shutdown(ctx), context.DeadlineExceeded)
		close(end)
	})
}
