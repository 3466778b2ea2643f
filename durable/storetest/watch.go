package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

var watchTests = []test{
	{"Watch/Transitions", inBubble(watchTransitions)},
	{"Watch/Several", watchSeveral},
	{"Watch/Interrupted", watchInterrupted},
	{"Watch/End", watchEnd},
	{"Watch/UnreadHintsBlockNothing", watchUnread},
}

// hintTimeout is the maximum time that a test waits for a hint. Stores send hints within
// milliseconds.
const hintTimeout = 15 * time.Second

// awaitHint creates new heads until the hint of one of them arrives, because hints may be lost and
// a store may need time to subscribe. Each head must be earlier than all previous ones. Late hints
// of other messages and hints with Due 0 are ignored.
func awaitHint(t *testing.T, hints <-chan driver.Hint, partition int, makeHead func(try int) driver.Instant) {
	t.Helper()
	known := make(map[driver.Instant]bool)
	deadline := time.Now().Add(hintTimeout)
	for try := 0; time.Now().Before(deadline); try++ {
		known[makeHead(try)] = true
		select {
		case h, open := <-hints:
			require.True(t, open, "the channel was closed")
			if known[h.Due] {
				require.Equal(t, partition, h.Partition)
				return
			}
		case <-time.After(50 * time.Millisecond):
		}
	}
	require.Fail(t, "no hint arrived", "within %v", hintTimeout)
}

// head stores a message that is earlier than those of earlier tries.
func (q *queue) head(partition, try int) driver.Instant {
	q.t.Helper()
	return q.headAt(partition, try, q.now())
}

// headAt is head with a reading of the store's clock.
func (q *queue) headAt(partition, try int, now time.Time) driver.Instant {
	q.t.Helper()
	at := driver.InstantOf(now.Add(100*far)) - driver.Instant(try)*driver.Instant(far/time.Millisecond/10)
	put := driver.Put{Partition: partition, Items: []driver.PutItem{itemAt(fmt.Sprintf("head%d", try), at)}}
	assert.Equal(q.t, []driver.Status{driver.StatusDone}, q.statuses(put))
	return at
}

// drain receives the hints that have already arrived.
func drain(hints <-chan driver.Hint) {
	for {
		select {
		case <-hints:
		case <-time.After(100 * time.Millisecond):
			return
		}
	}
}

// watchTransitions creates a new head by transitions other than Put.
func watchTransitions(t *testing.T, newStore Factory) {
	for _, op := range []driver.Op{driver.OpRetry, driver.OpRelease, driver.OpReschedule, driver.OpReplay} {
		q := open(t, newStore)
		hints, err := q.Watch(t.Context())
		require.NoError(t, err)
		awaitHint(t, hints, 0, func(try int) driver.Instant { return q.head(0, try) })
		awaitHint(t, hints, 0, func(try int) driver.Instant {
			if try > 0 { // the message may be due, and would be claimed first
				q.done(driver.OpCancel, driver.Change{ID: fmt.Sprintf("m%d", try-1)})
			}
			c := q.deliver(fmt.Sprintf("m%d", try))
			switch op {
			case driver.OpReplay:
				q.done(driver.OpBury, c)
			case driver.OpReschedule:
				c.Delay = 200 * far
				q.done(driver.OpRetry, c)
			}
			drain(hints)
			c.Delay = far - time.Duration(try)*time.Minute/10
			q.done(op, c)
			return q.get(c.ID).Due
		})
	}
}

// laterTries is the number of a first try whose heads differ from those of the tries from 0 on.
const laterTries = 500

// watchSeveral watches both partitions of one queue, and another queue that gets no hints.
func watchSeveral(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	one, err := q.Watch(t.Context())
	require.NoError(t, err)
	two, err := openAs(t, q.fixture, q.config).Watch(t.Context())
	require.NoError(t, err)
	other, err := q.in("other").Watch(t.Context())
	require.NoError(t, err)
	awaitHint(t, one, 0, func(try int) driver.Instant { return q.head(0, try) })
	awaitHint(t, two, 1, func(try int) driver.Instant { return q.head(1, laterTries+try) })
	for quiet := time.After(50 * time.Millisecond); quiet != nil; {
		select {
		case h, open := <-other:
			require.True(t, open, "the channel was closed")
			require.Zero(t, h.Due, "a hint of another queue: %v", h) // 0 names no message
		case <-quiet:
			quiet = nil
		}
	}
}

func watchEnd(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	ctx, cancel := context.WithCancel(t.Context())
	ending, err := q.Watch(ctx)
	require.NoError(t, err)
	staying, err := q.Watch(t.Context())
	require.NoError(t, err)
	cancel()
	deadline := time.After(hintTimeout)
	for closed := false; !closed; {
		select {
		case _, open := <-ending:
			closed = !open
		case <-deadline:
			require.Fail(t, "the channel was not closed when its context ended")
		}
	}
	awaitHint(t, staying, 0, func(try int) driver.Instant { return q.head(0, try) })
}

// watchUnread watches without receiving. No other call is blocked.
func watchUnread(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	_, err := q.Watch(t.Context())
	require.NoError(t, err)
	now := q.now()
	for try := range 300 {
		q.headAt(0, try, now)
	}
	assert.Equal(t, int64(300), q.count().Scheduled)
}

// watchInterrupted interrupts a firing message until the hint with its id arrives.
func watchInterrupted(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	hints, err := openAs(t, q.fixture, q.config).Watch(t.Context())
	require.NoError(t, err)
	id := "id \x00\xff:1"
	q.deliver(id)
	for deadline := time.Now().Add(hintTimeout); time.Now().Before(deadline); {
		require.Equal(t, driver.StatusInterrupted, q.status(driver.OpCancel, driver.Change{ID: id, Interrupt: true}))
		for quiet := time.After(50 * time.Millisecond); quiet != nil; {
			select {
			case h, open := <-hints:
				require.True(t, open, "the channel was closed")
				if h.ID != "" {
					require.Equal(t, driver.Hint{ID: id}, h)
					return
				}
			case <-quiet:
				quiet = nil
			}
		}
	}
	require.Fail(t, "no hint arrived", "within %v", hintTimeout)
}
