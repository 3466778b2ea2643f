package timingwheel

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// These tests stop contexts at moments that otherwise last for some instructions, or let two meet
// there over and over.

// halfEnded is a context that somebody is ending: how is decided, and nothing else has been done.
func halfEnded(t *testing.T, tw *TimingWheel, e *ending, asked bool) *deadlineContext {
	t.Helper()
	ctx, cancel := tw.WithTimeout(context.Background(), time.Hour)
	t.Cleanup(cancel)
	c := ctx.(*deadlineContext)
	if asked {
		require.False(t, ended(c))
	}
	require.True(t, c.end.CompareAndSwap(nil, e))
	c.timer.Stop()
	return c
}

// Whoever asks a context that is being ended does what is still to be done for the answer.
func TestQuestionsWhileAContextIsBeingEnded(t *testing.T) {
	t.Parallel()
	for _, asked := range []bool{false, true} {
		for name, question := range map[string]func(t *testing.T, c *deadlineContext){
			"Err": func(t *testing.T, c *deadlineContext) {
				s := c.standIn.Load()
				assert.Equal(t, context.DeadlineExceeded, c.Err())
				if s != nil {
					select {
					case <-s.ctx.Done():
					default:
						assert.Fail(t, "an error, and the channel is open")
					}
				}
			},
			"Done":  func(t *testing.T, c *deadlineContext) { assert.True(t, ended(c)) },
			"Cause": func(t *testing.T, c *deadlineContext) { assert.Equal(t, errCause, context.Cause(c)) },
			"a child": func(t *testing.T, c *deadlineContext) {
				child, cancel := context.WithCancel(c)
				defer cancel()
				assertEnded(t, child, context.DeadlineExceeded, errCause)
			},
			"a cause above": func(t *testing.T, c *deadlineContext) {
				assert.Equal(t, errCause, context.Cause(overriding{c, context.Canceled}))
			},
			"AfterFunc": func(t *testing.T, c *deadlineContext) {
				ran := make(chan struct{})
				stop := c.AfterFunc(func() { close(ran) })
				<-ran
				assert.False(t, stop())
			},
			"a child of the wheel": func(t *testing.T, c *deadlineContext) {
				child := &deadlineContext{parent: c}
				c.adopt(child)
				assertEnded(t, child, context.DeadlineExceeded, errCause)
				assert.Nil(t, c.children.Load().members)
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				contextBubble(t, func(t *testing.T, tw *TimingWheel) {
					c := halfEnded(t, tw, timedOutBy(errCause), asked)
					question(t, c)
					assertEnded(t, c, context.DeadlineExceeded, errCause)
				})
			})
		}
	}
}

// slowToEnd makes the end of what hangs onto a context in package context as slow as if that were a
// million children: it comes when proceed is closed.
func slowToEnd(ctx context.Context) (proceed chan struct{}) {
	s := ctx.(*deadlineContext).standIn.Load()
	theirs, lock := s.cancel, make(chan struct{}, 1)
	proceed = make(chan struct{})
	s.cancel = func() {
		lock <- struct{}{}
		<-proceed
		theirs()
		<-lock
	}
	return proceed
}

// A second cancel returns when the first has ended what hangs onto the context in package context,
// not earlier.
func TestSecondCancelWaits(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		ctx, cancel := tw.WithTimeout(context.Background(), time.Hour)
		child, cancelChild := context.WithCancel(ctx)
		defer cancelChild()
		proceed := slowToEnd(ctx)
		var returned atomic.Int32
		for range 3 {
			go func() {
				cancel()
				assert.Error(t, child.Err())
				returned.Add(1)
			}()
		}
		synctest.Wait()
		assert.Zero(t, returned.Load())
		close(proceed)
		synctest.Wait()
		assert.EqualValues(t, 3, returned.Load())
	})
}

// The channel of a context is closed before those of its children, as in package context.
func TestChannelsAreClosedFromAbove(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		parent, cancel := tw.WithTimeout(context.Background(), time.Hour)
		done := parent.Done()
		child, cancelChild := tw.WithTimeout(parent, time.Minute)
		defer cancelChild()
		require.False(t, ended(child))
		s := child.(*deadlineContext).standIn.Load()
		theirs, closed := s.cancel, false
		s.cancel = func() {
			select {
			case <-done:
				closed = true
			default:
			}
			theirs()
		}
		cancel()
		assert.True(t, ended(child))
		assert.True(t, closed)
	})
}

// endsWhenAsked is a parent that has ended. Its child ends otherwise while the parent is asked how.
type endsWhenAsked struct {
	context.Context
	child *deadlineContext
}

func (e *endsWhenAsked) Err() error {
	e.child.endWith(&timedOut)
	return context.Canceled
}

// Whoever finds the parent ended, and comes second with that, says what the first has set.
func TestContextThatEndsWhileItIsAsked(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	close(done)
	c := &deadlineContext{parent: context.Background()}
	c.tie = &tie{to: &endsWhenAsked{context.Background(), c}, done: done, forget: func() bool { return true }, known: new(families)}
	require.True(t, c.made(&tiedAlone))
	assert.Equal(t, context.DeadlineExceeded, c.Err())
	assertEnded(t, c, context.DeadlineExceeded, context.DeadlineExceeded)
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

// Many end a context: one of them has done it, and it has ended as that one says.
func TestOneEndsTheContext(t *testing.T) {
	t.Parallel()
	for range scaled(3000) {
		c := &deadlineContext{parent: context.Background()}
		var winner atomic.Pointer[ending]
		var won atomic.Int32
		together(2, func(int) {
			e := timedOutBy(errCause)
			if c.finish(e) {
				won.Add(1)
				winner.Store(e)
			}
		})
		require.EqualValues(t, 1, won.Load())
		require.Same(t, winner.Load(), c.look())
	}
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
