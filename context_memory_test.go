package timingwheel

import (
	"context"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Ways in which contexts that share a parent end. They return when that has been done.
var contextEnds = map[string]func(t *testing.T, ctx context.Context, cancel, end func()){
	"cancel": func(_ *testing.T, _ context.Context, cancel, _ func()) { cancel() },
	"deadline": func(t *testing.T, ctx context.Context, _, _ func()) {
		receive(t, ctx.Done(), "the deadline")
	},
	"parent": func(t *testing.T, ctx context.Context, _, end func()) {
		end()
		receive(t, ctx.Done(), "the parent's end")
	},
}

type newParent func(tw *TimingWheel, r *resource) (parent context.Context, end func())

// parentsOfMemory are parents of contexts whose memory is looked at. The value is what the parent
// alone refers to.
var parentsOfMemory = map[string]newParent{
	"background": func(_ *TimingWheel, r *resource) (context.Context, func()) {
		return context.WithValue(context.Background(), testKey(1), r), func() {}
	},
	"of package context": func(_ *TimingWheel, r *resource) (context.Context, func()) {
		parent, end := context.WithCancel(context.Background())
		return context.WithValue(parent, testKey(1), r), end
	},
	"of the wheel": func(tw *TimingWheel, r *resource) (context.Context, func()) {
		parent, end := tw.WithTimeout(context.Background(), time.Hour)
		return context.WithValue(parent, testKey(1), r), end
	},
	"of neither": func(_ *TimingWheel, r *resource) (context.Context, func()) {
		parent := newPlainContext()
		return context.WithValue(parent, testKey(1), r), parent.end
	},
}

// belowParents runs f for each such parent and each way to end.
func belowParents(t *testing.T, f func(t *testing.T, newParent newParent, way string)) {
	for kind, newParent := range parentsOfMemory {
		for way := range contextEnds {
			if kind == "background" && way == "parent" {
				continue
			}
			t.Run(kind+"/"+way, func(t *testing.T) { f(t, newParent, way) })
		}
	}
}

// endAll makes contexts of each kind below the parent, ends them, and returns what is left of them:
// nobody but the library can hold it.
//
//go:noinline
func endAll(t *testing.T, tw *TimingWheel, parent context.Context, end func(), way string) (gone []weak.Pointer[deadlineContext]) {
	d := time.Hour
	if way == "deadline" {
		d = 5 * time.Millisecond
	}
	var endings []func()
	for i := range 6 {
		ctx, cancel := tw.WithTimeoutCause(parent, d, []error{nil, errCause}[i%2])
		gone = append(gone, weak.Make(ctx.(*deadlineContext)))
		if i >= 4 { // with relatives
			below, cancelBelow := tw.WithTimeout(context.WithValue(ctx, testKey(2), 2), time.Hour)
			gone = append(gone, weak.Make(below.(*deadlineContext)))
			_, cancelStd := context.WithCancel(below)
			_ = cancelStd // below's end is its end
			defer cancelBelow()
		}
		endings = append(endings, func() { contextEnds[way](t, ctx, cancel, end) })
	}
	for _, end := range endings {
		end()
	}
	return gone
}

// What has ended is for the collector, with its relatives and the values of its parent, though
// wheel, parent and siblings live.
func TestEndedContextsAreCollected(t *testing.T) {
	belowParents(t, func(t *testing.T, newParent newParent, way string) {
		tw := startWheel(t, Options{})
		r := new(resource)
		held := weak.Make(r)
		parent, end := newParent(tw, r)
		r = nil
		var sibling context.Context
		if way != "parent" {
			var leave func()
			sibling, leave = tw.WithTimeout(parent, time.Hour)
			defer leave()
		}
		for _, p := range endAll(t, tw, parent, end, way) {
			collected(t, p, "a context")
		}
		if sibling != nil {
			assert.NoError(t, sibling.Err())
			require.NotNil(t, held.Value(), "its parent has it")
		}
		end()
		runtime.KeepAlive(parent)
		runtime.KeepAlive(tw)
	})
}

// The same for what only the parent refers to, where nobody has the parent any more.
func TestValuesOfTheParentAreCollected(t *testing.T) {
	belowParents(t, func(t *testing.T, newParent newParent, way string) {
		tw := startWheel(t, Options{})
		held := func() weak.Pointer[resource] {
			r := new(resource)
			parent, end := newParent(tw, r)
			defer end()
			endAll(t, tw, parent, end, way)
			return weak.Make(r)
		}()
		collected(t, held, "a value of the parent")
		runtime.KeepAlive(tw)
	})
}

//go:noinline
func endMiddle(t *testing.T, tw *TimingWheel, parent context.Context, end func(), way string) (middle []context.Context, gone []weak.Pointer[deadlineContext]) {
	d := time.Hour
	if way == "deadline" {
		d = 5 * time.Millisecond
	}
	var all []context.Context
	var cancels []func()
	for range 9 {
		ctx, cancel := tw.WithTimeout(parent, d)
		all, cancels = append(all, ctx), append(cancels, cancel)
	}
	for _, i := range []int{4, 3, 5, 0, 8, 2, 1, 7, 6} {
		contextEnds[way](t, all[i], cancels[i], end)
	}
	for i, ctx := range all {
		if i == 4 || i == 5 {
			middle = append(middle, ctx)
		} else {
			gone = append(gone, weak.Make(ctx.(*deadlineContext)))
		}
	}
	return middle, gone
}

// Whoever keeps a context that has ended does not keep its siblings, nor the wheel.
func TestAnEndedContextKeepsNobody(t *testing.T) {
	for kind, newParent := range parentsOfMemory {
		for way := range contextEnds {
			if kind == "background" && way == "parent" || kind == "of the wheel" {
				continue // there the parent may have the wheel's timer
			}
			t.Run(kind+"/"+way, func(t *testing.T) {
				tw, err := New(Options{})
				require.NoError(t, err)
				parent, end := newParent(tw, nil)
				kept, gone := endMiddle(t, tw, parent, end, way)
				for _, p := range gone {
					collected(t, p, "a sibling")
				}
				tw.Stop()
				wheel := weak.Make(tw)
				tw = nil
				collected(t, wheel, "the wheel")
				for _, ctx := range kept {
					assert.Error(t, ctx.Err())
				}
				end()
				runtime.KeepAlive(parent)
			})
		}
	}
}
