//go:build unix

package chaos

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
)

// slowScript is how long a script may block the server.
const slowScript = 5 * time.Millisecond

// Very many messages are due in one millisecond. No script blocks the server for long, so the
// messages of another queue on the server are delivered in time.
//
// The server measures scripts on the wall clock, so the slowest scripts of a busy machine are
// scripts that waited for a processor. With TIMINGWHEEL_CHAOS=full the test asserts the 99th
// percentile.
func TestManyMessagesDueAtOnceDelayNoOtherQueue(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	server := redistest.Start(t, redistest.Options{ExtraArgs: []string{
		"--slowlog-log-slower-than", fmt.Sprint(slowScript.Microseconds()), "--slowlog-max-len", "10000",
	}})
	r := newRun(t, target{Redis: server.Addr()})
	messages := scaled(50_000, 1_000_000)
	at := time.Now().Add(scaled(7*time.Second, 45*time.Second))
	r.enqueueAt(at, messages)
	if late := time.Since(at); late > 0 {
		t.Logf("the last messages were enqueued %v after their due time: the machine is busy", late)
	}
	consumer := r.start(role{Consume: true, Concurrency: 64, Visibility: 30 * time.Second})
	time.Sleep(time.Until(at.Add(-sideAhead)))
	other := startSideQueue(t, target{Redis: server.Addr(), Queue: "other"})
	r.waitUntilDrained()
	drained := time.Since(at)
	lateness := other.stop()
	consumer.stop()
	report := r.check(Options{}, nil)
	assert.Equal(t, messages, report.Handled)
	assert.Zero(t, report.Duplicates)
	t.Logf("drained within %v; the other queue was late by %v (50%%), %v (99%%), %v (all) with %d messages",
		drained, lateness.P50, lateness.P99, lateness.Max, lateness.Histogram.Count())
	// If the machine stalls, only few messages are late, because none are enqueued meanwhile.
	assert.Less(t, lateness.P50, scaled(5*time.Second, 50*time.Millisecond))
	assert.Less(t, lateness.P99, scaled(30*time.Second, 50*time.Millisecond))
	checkScripts(t, server.Client(t))
}

// enqueueAt enqueues messages that are due at one time.
func (r *run) enqueueAt(at time.Time, n int) {
	r.t.Helper()
	q := openHere(r.t, r.target)
	events, err := OpenFile(r.events)
	require.NoError(r.t, err)
	defer events.Close()
	const batch = 5000
	for first := 0; first < n; first += batch {
		messages, done := make([]durable.Message, batch), make([]Event, batch)
		for i := range messages {
			messages[i] = durable.Message{ID: fmt.Sprint("m", first+i), Body: make([]byte, 128), At: at}
			done[i] = Event{Kind: Enqueued, ID: messages[i].ID, Due: int64(driver.InstantOf(at))}
		}
		_, err := q.EnqueueBatch(r.t.Context(), messages)
		require.NoError(r.t, err)
		require.NoError(r.t, events.Record(done...))
	}
}

// sideQueue is a queue with little load, with a producer and a consumer in this process.
type sideQueue struct {
	t       *testing.T
	q       *durable.Queue
	cancel  context.CancelFunc
	made    chan int
	consume func() // ends the consumer
}

// The side queue starts sideAhead before the many messages are due, and receives messages from
// sideListen after its start on. The consumer needs that time to subscribe to hints; earlier
// messages may wait for its fallback, regardless of the load.
const (
	sideAhead  = 3 * time.Second
	sideListen = 2 * time.Second
)

func startSideQueue(t *testing.T, tg target) *sideQueue {
	t.Helper()
	o := &sideQueue{t: t, q: openHere(t, tg), made: make(chan int, 1)}
	o.consume = consumeHere(t, o.q, discard{})
	time.Sleep(sideListen)
	ctx, cancel := context.WithCancel(t.Context())
	o.cancel = cancel
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			if _, err := o.q.Enqueue(t.Context(), durable.Message{Delay: 100 * time.Millisecond}); !assert.NoError(t, err) {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		o.made <- n
	}()
	return o
}

// stop waits until all messages have been delivered, and returns their lateness.
func (o *sideQueue) stop() durable.Lateness {
	o.t.Helper()
	o.cancel()
	made := <-o.made
	waitUntilEmpty(o.t, o.q)
	o.consume()
	s, err := o.q.Stats(o.t.Context())
	require.NoError(o.t, err)
	assert.EqualValues(o.t, made, s.Lateness.Histogram.Count(), "each message is delivered once")
	return s.Lateness
}

// checkScripts checks how long scripts have blocked the server.
func checkScripts(t *testing.T, client *redis.Client) {
	t.Helper()
	info, err := client.Info(t.Context(), "commandstats", "latencystats").Result()
	require.NoError(t, err)
	var p50, p99, p999 float64 // in µs
	for line := range strings.Lines(info) {
		if strings.HasPrefix(line, "cmdstat_evalsha:") {
			t.Log(strings.TrimSpace(line))
		}
		if rest, ok := strings.CutPrefix(line, "latency_percentiles_usec_evalsha:"); ok {
			_, err := fmt.Sscanf(rest, "p50=%g,p99=%g,p99.9=%g", &p50, &p99, &p999)
			require.NoError(t, err, line)
		}
	}
	logs, err := client.SlowLogGet(t.Context(), -1).Result()
	require.NoError(t, err)
	var slowest redis.SlowLog
	for _, l := range logs {
		if l.Duration > slowest.Duration {
			slowest = l
		}
	}
	t.Logf("scripts took %g µs (50%%), %g µs (99%%), %g µs (99.9%%); %d commands took more than %v, the slowest %v: %.100s",
		p50, p99, p999, len(logs), slowScript, slowest.Duration, strings.Join(slowest.Args, " "))
	if p99 == 0 {
		t.Log("this server does not report how long scripts take")
	}
	assert.Less(t, p99, float64(scaled(100*time.Millisecond, slowScript).Microseconds()))
	assert.Less(t, slowest.Duration, scaled(30*time.Second, 2*time.Second)) // a busy machine stalls scripts
}

// discard is a recorder that discards all events.
type discard struct{}

func (discard) Record(...Event) error { return nil }
