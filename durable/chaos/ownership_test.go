//go:build unix

package chaos

import (
	"fmt"
	"maps"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
)

// Consumers join and leave gracefully while messages are delivered. Each message is delivered once.
func TestJoiningAndLeavingConsumersDuplicateNothing(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	r := newRun(t, target{Redis: redistest.Start(t, redistest.Options{}).Addr()})
	consumer := role{Consume: true, Visibility: 30 * time.Second, Handle: time.Millisecond}
	consumers := []*child{r.start(consumer)}
	messages := scaled(3000, 50_000)
	producer := r.start(role{Messages: messages, Batch: 20, Pace: 10 * time.Millisecond, MaxDelay: 2 * time.Second})
	for range 4 {
		time.Sleep(scaled(200*time.Millisecond, 2*time.Second))
		consumers = append(consumers, r.start(consumer))
	}
	time.Sleep(scaled(500*time.Millisecond, 5*time.Second))
	for _, c := range consumers[:4] {
		c.stop()
	}
	producer.wait()
	r.waitUntilDrained()
	consumers[4].stop()
	report := r.checkAll(messages, Options{})
	assert.Zero(t, report.Duplicates, "a leaving consumer releases messages that have not begun, and finishes the others")
}

// The number of consumers grows from one to five and falls to one again: the others leave
// gracefully, or are killed. Each partition is delivered again within twice the Membership of the
// consumers, and in the end by a present consumer.
func TestPartitionsAreReassignedWithinTwiceMembership(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	for _, end := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(end.String(), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.Options{})
			// A lease that ends early causes duplicates, so leases are long. The leases of a killed
			// consumer delay its messages, so they are short.
			visibility := 15 * time.Second
			if end == syscall.SIGKILL {
				visibility = 3 * time.Second
			}
			o := &owners{run: newRun(t, target{Redis: server.Addr()}), visibility: visibility, joined: map[string]int{}}
			producer := o.start(role{Messages: endless, Batch: 4, Pace: 10 * time.Millisecond})
			require.Eventually(t, producer.recorded, waitLimit, 5*time.Millisecond)
			o.join(1)
			o.waitUntilShared(server.Client(t), 1)
			for range scaled(1, 2) {
				o.join(4)
				o.waitUntilShared(server.Client(t), 5)
				o.leave(4, end)
				o.waitUntilShared(server.Client(t), 1)
			}
			producer.stop()
			o.waitUntilDrained()
			o.consumers[0].stop()
			o.check(end == syscall.SIGKILL)
		})
	}
}

// owners are consumers that join and leave.
type owners struct {
	*run
	visibility time.Duration
	consumers  []*child
	joined     map[string]int // the number of each consumer, by its file of events
	changes    []change
}

// change is a change of the number of consumers.
type change struct {
	at         time.Time
	count      int
	present    []int         // the numbers of the consumers
	knownAfter time.Duration // until the store had the right number of members
	until      time.Time     // the next change comes later
}

const (
	membership = time.Second
	endless    = 1 << 30 // messages; the test stops the producer
)

// join starts n consumers.
func (o *owners) join(n int) {
	for range n {
		c := o.start(role{Consume: true, Visibility: o.visibility, Membership: membership})
		o.consumers = append(o.consumers, c)
		o.joined[c.role.Events] = len(o.joined)
	}
	for _, c := range o.consumers {
		c.waitUntilOpen()
	}
	o.changed()
}

// leave ends the n oldest consumers.
func (o *owners) leave(n int, end syscall.Signal) {
	for _, c := range o.consumers[:n] {
		c.signal(end)
	}
	gone := o.consumers[:n]
	o.consumers = o.consumers[n:]
	o.changed()
	for _, c := range gone {
		<-c.done
	}
}

// changed records a change of the consumers.
func (o *owners) changed() {
	c := change{at: time.Now(), count: len(o.consumers)}
	for _, consumer := range o.consumers {
		c.present = append(c.present, o.joined[consumer.role.Events])
	}
	o.changes = append(o.changes, c)
}

// waitUntilShared waits until the store has the right number of members, the consumers have had
// time to share the partitions, and they have begun messages of each partition that became due
// after that.
func (o *owners) waitUntilShared(client *redis.Client, members int64) {
	o.t.Helper()
	last := &o.changes[len(o.changes)-1]
	require.Eventually(o.t, func() bool {
		now, err := client.Time(o.t.Context()).Result()
		require.NoError(o.t, err)
		n, err := client.ZCount(o.t.Context(), "tw:{chaos}:members", fmt.Sprint("(", now.UnixMilli()), "+inf").Result()
		require.NoError(o.t, err)
		return n == members
	}, waitLimit, 10*time.Millisecond)
	last.knownAfter = time.Since(last.at)
	time.Sleep(scaled(2*membership, 4*membership))
	shared := time.Now().UnixMilli()
	require.Eventually(o.t, func() bool {
		delivered := map[int]bool{}
		for _, s := range o.starts() {
			if s.due >= shared && slices.Contains(last.present, s.consumer) {
				delivered[s.partition] = true
			}
		}
		return len(delivered) == partitions
	}, waitLimit, 200*time.Millisecond, "none of %d consumers delivers one of the partitions", last.count)
	last.until = time.Now()
}

// starts returns the calls to handlers so far.
func (o *owners) starts() (starts []ownedStart) {
	o.t.Helper()
	due := map[string]int64{}
	o.read(Options{}, func(file string, e Event) Event {
		switch e.Kind {
		case MaybeEnqueued:
			due[e.ID] = e.Due
		case Started:
			p := contract.PartitionOf(e.ID, partitions)
			starts = append(starts, ownedStart{consumer: o.joined[file], partition: p, due: due[e.ID], clock: e.Clock})
		}
		return e
	})
	return starts
}

// check checks the events of the consumers.
func (o *owners) check(crashes bool) {
	o.t.Helper()
	report := o.run.check(Options{Crashes: crashes}, nil)
	assert.GreaterOrEqual(o.t, report.Handled, report.Enqueued, "the producer may be stopped before it records its last enqueues")
	if !crashes {
		assert.Zero(o.t, report.Duplicates)
	}
	starts := o.starts()
	for _, c := range o.changes {
		o.checkChange(c, starts)
	}
}

// ownedStart is the call to a handler in a consumer. Consumers are numbered in the order of their
// starts.
type ownedStart struct {
	consumer, partition int
	due, clock          int64 // in milliseconds
}

// checkChange checks how long after a change each partition delivered messages that became due
// after it.
func (o *owners) checkChange(c change, starts []ownedStart) {
	o.t.Helper()
	first, last := map[int]int64{}, map[int]ownedStart{}
	for _, s := range starts {
		if s.due < c.at.UnixMilli() || s.clock > c.until.UnixMilli() {
			continue
		}
		if clock, ok := first[s.partition]; !ok || s.clock < clock {
			first[s.partition] = s.clock
		}
		if s.clock >= last[s.partition].clock {
			last[s.partition] = s
		}
	}
	if !assert.Len(o.t, first, partitions, "a partition delivers no message after the change to %d consumers", c.count) {
		return
	}
	took := time.UnixMilli(slices.Max(slices.Collect(maps.Values(first)))).Sub(c.at)
	owner := map[int]int{}
	for p, s := range last {
		owner[p] = s.consumer
	}
	o.t.Logf("%d consumers: known after %v, all partitions deliver after %v, partitions belong to consumers %v", c.count, c.knownAfter, took, owner)
	// Twice the membership, and a margin for a busy machine.
	assert.Less(o.t, took, 2*membership+scaled(18*time.Second, 2*time.Second))
	for p, consumer := range owner {
		assert.Contains(o.t, c.present, consumer, "partition %d belongs to a consumer that has left", p)
	}
}
