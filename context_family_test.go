package timingwheel

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Families: the contexts of a wheel that share a parent watch it together, an only child alone.

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

// A parent of package context has families with each wheel, which know nothing of each other.
func TestFamiliesOfTwoWheels(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, one *TimingWheel) {
		other := startWheel(t, Options{})
		parent, end := context.WithCancelCause(context.Background())
		var all []context.Context
		var cancels []func()
		for range 3 {
			for _, tw := range []*TimingWheel{one, other} {
				ctx, cancel := tw.WithTimeout(parent, time.Hour)
				all, cancels = append(all, ctx), append(cancels, cancel)
			}
		}
		for _, cancel := range cancels[:4] { // all but one of each
			cancel()
		}
		for _, tw := range []*TimingWheel{one, other} {
			known, _ := familiesOf(tw)
			assert.Equal(t, 1, known)
			assert.Equal(t, 1, tw.Len())
		}
		end(errCause)
		assertEnded(t, all[4], context.Canceled, errCause)
		assertEnded(t, all[5], context.Canceled, errCause)
		synctest.Wait()
		known, _ := familiesOf(other)
		assert.Zero(t, known)
		assert.Zero(t, other.Len())
	})
}

// The only member of a family leaves before the family is watched: it is not watched then.
func TestFamilyThatIsOverBeforeItIsWatched(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		parent, end := context.WithCancel(context.Background())
		defer end()
		c := &deadlineContext{parent: parent}
		f, fresh := tw.families.admit(c, above(parent))
		require.True(t, fresh)
		c.endWith(&cancelled)
		f.watch()
		assert.Zero(t, childrenInPackageContext(t, parent))
		known, _ := familiesOf(tw)
		assert.Zero(t, known)
		// Others come meanwhile: then it is watched for them.
		first, second := &deadlineContext{parent: parent}, &deadlineContext{parent: parent}
		f, fresh = tw.families.admit(first, above(parent))
		require.True(t, fresh)
		again, fresh := tw.families.admit(second, above(parent))
		require.False(t, fresh)
		require.Same(t, f, again)
		first.endWith(&cancelled)
		f.watch()
		assert.Equal(t, 1, childrenInPackageContext(t, parent))
		second.endWith(&cancelled)
		assert.Zero(t, childrenInPackageContext(t, parent))
	})
}

// What a family that is over leaves is its own, not what stands in its place by then.
func TestFamilyAfterOneThatIsOver(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		parent, end := context.WithCancel(context.Background())
		defer end()
		first, second := &deadlineContext{parent: parent}, &deadlineContext{parent: parent}
		old, _ := tw.families.admit(first, above(parent))
		old.watch()
		first.endWith(&cancelled)
		f, fresh := tw.families.admit(second, above(parent))
		require.True(t, fresh)
		require.NotSame(t, old, f)
		f.watch()
		tw.families.leave(old, first)
		third, _ := tw.families.admit(&deadlineContext{parent: parent}, above(parent))
		assert.Same(t, f, third)
	})
}

// A family ends while one comes: that one has ended, too, and nothing is left of it.
func TestFamilyThatEndsWhileOneComes(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		parent, end := context.WithCancelCause(context.Background())
		first, second := &deadlineContext{parent: parent}, &deadlineContext{parent: parent}
		f, _ := tw.families.admit(first, above(parent))
		f.watch()
		up := above(parent)
		end(errCause)
		f.mu.Lock() // as finish does, which then takes the family out
		f.over = true
		f.mu.Unlock()
		tw.families.enter(second, up)
		assertEnded(t, second, context.Canceled, errCause)
		assert.Same(t, first, f.members)
		tw.families.drop(f)
		f.over = false
		f.finish(endOf(parent))
		assertEnded(t, first, context.Canceled, errCause)
		f.mu.Lock()
		defer f.mu.Unlock()
		assert.False(t, f.add(&deadlineContext{}), "nobody would be told any more")
	})
}

// Who ends by itself while its family ends gives back what it holds, and leaves the list to whoever
// goes through it.
func TestMemberThatEndsWhileItsFamilyDoes(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		top, cancel := tw.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		var members [3]*deadlineContext
		for i := range members {
			ctx, cancel := tw.WithTimeout(top, time.Minute)
			defer cancel()
			members[i] = ctx.(*deadlineContext)
		}
		f := top.(*deadlineContext).children.Load()
		list := []*deadlineContext{f.members, f.members.next, f.members.next.next}
		f.mu.Lock() // as finish does
		f.over, f.members = true, nil
		f.mu.Unlock()
		members[1].endWith(&timedOut)
		assert.Same(t, list[1], list[0].next)
		assert.Same(t, list[2], list[1].next)
		assert.Same(t, list[1], list[2].prev)

		// The other way round: it has been decided how it ends, and the family comes first.
		require.True(t, members[2].end.CompareAndSwap(nil, &timedOut))
		f.mu.Lock()
		f.over, f.members = false, list[0]
		f.mu.Unlock()
		f.finish(&cancelled)
		assert.NotEqual(t, Timer{}, members[2].timer)
		assert.Same(t, f, members[2].bond.Load())
		members[2].timer.Stop()
		members[2].leave()
		assertEnded(t, members[0], context.Canceled, context.Canceled)
		assertEnded(t, members[1], context.DeadlineExceeded, context.DeadlineExceeded)
		assertEnded(t, members[2], context.DeadlineExceeded, context.DeadlineExceeded)
		assert.Equal(t, 1, tw.Len(), "that of the parent")
	})
}

// A context ends while it is made, by its timer or by its parent. Nobody gives back twice what it
// holds, and nothing stays.
func TestContextThatEndsWhileItJoins(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	top, endTop := tw.WithTimeout(context.Background(), time.Hour)
	defer endTop()
	for name, join := range map[string]func(c *deadlineContext, parent context.Context){
		"alone":    func(c *deadlineContext, parent context.Context) { c.tieAlone(above(parent), &tw.families) },
		"a family": func(c *deadlineContext, parent context.Context) { tw.families.enter(c, above(parent)) },
		"of ours":  func(c *deadlineContext, _ context.Context) { top.(*deadlineContext).adopt(c) },
		"endless":  func(c *deadlineContext, _ context.Context) { tw.families.join(c, relation{}) },
	} {
		for i := range scaled(1000) {
			parent, end := context.WithCancel(context.Background())
			c := &deadlineContext{parent: parent}
			c.timer = tw.AfterFunc(time.Hour, func() {})
			timer := c.timer
			together(2, func(k int) {
				for n := 0; k != 0 && n < i; n++ { // so that each moment of joining has its turn
					_ = c.end.Load()
				}
				switch {
				case k == 0:
					join(c, parent)
				case i%2 == 0:
					c.expire()
				default:
					end()
				}
			})
			timer.Stop()
			if i%2 == 0 {
				require.Equal(t, Timer{}, c.timer, name)
			} else {
				c.endWith(&cancelled)
			}
			require.Error(t, c.Err())
			require.Zero(t, childrenInPackageContext(t, parent), name)
			require.Nil(t, top.(*deadlineContext).familyOfChildren().members, name)
			end()
		}
		await(t, "families are gone", func() bool { return noFamilies(tw) })
	}
}

// noFamilies reports whether a wheel that is in use knows no family.
func noFamilies(tw *TimingWheel) bool {
	for i := range tw.families.stripes {
		s := &tw.families.stripes[i]
		s.mu.Lock()
		known := len(s.by)
		s.mu.Unlock()
		if known != 0 {
			return false
		}
	}
	return true
}

// The parent ends while a context comes, whose own time may be over as well. Whoever keeps it does
// not keep the wheel by its timer.
func TestContextThatComesTooLateHoldsNothing(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		top, endTop := tw.WithTimeout(context.Background(), time.Hour)
		top.(*deadlineContext).familyOfChildren()
		endTop()
		parent, end := context.WithCancel(context.Background())
		up := above(parent)
		f, _ := tw.families.admit(&deadlineContext{parent: parent}, up)
		end()
		f.over = true // as in finish, which then takes the family out
		for _, expired := range []bool{false, true} {
			for name, join := range map[string]func(c *deadlineContext){
				"of ours":  func(c *deadlineContext) { top.(*deadlineContext).adopt(c) },
				"a family": func(c *deadlineContext) { tw.families.enter(c, up) },
			} {
				c := &deadlineContext{parent: parent}
				c.timer = tw.AfterFunc(time.Hour, c.expire)
				if expired {
					c.timer.Stop()
					c.expire()
				}
				join(c)
				assert.Error(t, c.Err(), name)
				assert.True(t, c.timer == Timer{}, name)
				assert.Same(t, &gone, c.bond.Load(), name)
			}
		}
		tw.families.drop(f)
		assert.Zero(t, tw.Len())
	})
}

// The first children come at the same time: they share one family, and all end.
func TestFirstChildrenAtTheSameTime(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	for range scaled(2000) {
		parent, end := tw.WithTimeout(context.Background(), 2*time.Hour)
		var all [2]context.Context
		var cancels [2]func()
		together(len(all), func(k int) { all[k], cancels[k] = tw.WithTimeout(parent, time.Hour) })
		first := parent.(*deadlineContext).children.Load().members
		require.NotNil(t, first.next)
		require.Nil(t, first.next.next)
		end()
		for k, ctx := range all {
			require.Equal(t, context.Canceled, ctx.(*deadlineContext).end.Load().err, "it has been told")
			cancels[k]()
		}
	}
	assert.Zero(t, tw.Len())
}

// Contexts below one of package context that is itself below one of the wheel: see farBelow.

// All that share such a parent learn of the end above it when they are asked, the only child and
// the family, and those of the wheel below these.
func TestFamiliesFarBelowHaveEnded(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	for first := range 9 { // whom somebody asks first
		top, end := context.WithCancelCause(context.Background())
		one, cancelOne := tw.WithTimeout(top, 5*time.Hour)
		std, cancelStd := context.WithCancel(one)
		cancels := []func(){cancelOne, cancelStd}
		var all []context.Context
		for range 3 { // an only child, and a family of two
			ctx := std
			for i := range 3 {
				var cancel func()
				ctx, cancel = tw.WithTimeout(ctx, time.Duration(4-i)*time.Hour)
				all, cancels = append(all, ctx), append(cancels, cancel)
			}
		}
		// The parent's end, and none of the goroutines that tell it.
		for _, c := range append([]context.Context{one}, all...) {
			if tie := c.(*deadlineContext).tie; tie != nil {
				tie.forget()
			}
		}
		require.True(t, all[3].(*deadlineContext).bond.Load().forget())
		end(errParent)
		assertEnded(t, all[first], context.Canceled, errParent)
		for _, c := range all {
			assertEnded(t, c, context.Canceled, errParent)
		}
		for _, cancel := range cancels {
			cancel()
		}
		await(t, "families are gone", func() bool { return noFamilies(tw) })
	}
}

// Whoever is asked while somebody ends what hangs on the context above waits for that.
func TestQuestionFarBelowWhileTheContextAboveEnds(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		top, end := tw.WithTimeout(context.Background(), 2*time.Hour)
		std, cancelStd := context.WithCancel(top)
		defer cancelStd()
		ctx, cancel := tw.WithTimeout(std, time.Hour)
		defer cancel()
		proceed := slowToEnd(top)
		go end()
		synctest.Wait()
		answer := make(chan error, 1)
		go func() { answer <- ctx.Err() }()
		synctest.Wait()
		require.Empty(t, answer)
		close(proceed)
		assert.Equal(t, context.Canceled, <-answer)
	})
}

// valuesOf has the values of another context, before its own.
type valuesOf struct {
	context.Context
	values context.Context
}

func (v valuesOf) Value(key any) any {
	if value := v.values.Value(key); value != nil {
		return value
	}
	return v.Context.Value(key)
}

// What one child has around a parent is no matter of the others, and the family does not hold on to
// it.
func TestFamilyDoesNotKeepWhatIsAroundItsParent(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	server, end := context.WithCancel(context.Background())
	_, only := tw.WithTimeout(server, time.Hour)
	defer only()
	request, other := func() (weak.Pointer[deadlineContext], context.CancelFunc) {
		request, cancelRequest := tw.WithTimeout(context.Background(), time.Hour)
		defer cancelRequest()
		_, first := tw.WithTimeout(valuesOf{server, context.WithoutCancel(request)}, time.Hour)
		defer first()
		other, cancel := tw.WithTimeout(server, time.Hour)
		f := other.(*deadlineContext).bond.Load()
		require.Nil(t, f.far)
		require.Same(t, f, tw.families.stripe(server.Done()).by[server])
		return weak.Make(request.(*deadlineContext)), cancel
	}()
	defer other()
	await(t, "the request is collected", func() bool {
		runtime.GC()
		return request.Value() == nil
	})
	end()
}

// One that goes on without the cancel of a context of the wheel does not ask that one for ever, nor
// does it cost it a stand-in.
func TestContextsBelowOneWithoutCancel(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		for _, asked := range []bool{false, true} {
			for _, siblings := range []int{0, 2} {
				request, cancelRequest := tw.WithTimeoutCause(context.Background(), time.Minute, errParent)
				if asked {
					require.NotNil(t, request.Done())
				}
				std, end := context.WithCancelCause(context.WithoutCancel(request))
				for range siblings {
					_, cancel := tw.WithTimeout(std, time.Hour)
					defer cancel()
				}
				ctx, cancel := tw.WithTimeout(std, time.Hour)
				assert.Equal(t, asked, request.(*deadlineContext).standIn.Load() != nil)
				far := above(ctx).far
				require.NotNil(t, far)
				assertGoesOn(t, ctx)
				assert.Same(t, request, far.up.Load())
				passDeadline(time.Minute)
				assertGoesOn(t, ctx)
				assert.Nil(t, far.up.Load())
				assertGoesOn(t, ctx)
				end(errCause)
				assertEnded(t, ctx, context.Canceled, errCause)
				cancel()
				cancelRequest()
			}
		}
	})
}
