//go:build unix

package chaos

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/internal/faultproxy"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
)

// underLoad calls fault while messages are enqueued and delivered, and returns when all messages
// have been delivered. The producer takes at least as long as pauses, so that it runs during a
// fault of at most that length. On a slow machine the fault may take longer, so some more messages
// are enqueued after it. A fault that loses no acknowledged call is also met by recurring messages.
func (r *run) underLoad(pauses time.Duration, recurring int, fault func()) (messages int) {
	r.t.Helper()
	const batch, pace, after = 20, 20 * time.Millisecond, 100
	messages = batch * int(pauses/pace)
	consumer := role{Consume: true, Visibility: time.Second, FailEvery: 40}
	consumers := []*child{r.start(consumer), r.start(consumer)}
	for _, c := range consumers {
		c.waitUntilOpen()
	}
	producers := []*child{r.start(role{Messages: messages, Batch: batch, Pace: pace, MaxDelay: 500 * time.Millisecond, Series: recurring})}
	require.Eventually(r.t, func() bool { return consumers[0].recorded() || consumers[1].recorded() }, waitLimit, time.Millisecond)
	fault()
	producers = append(producers, r.start(role{Messages: after, Batch: batch, Pace: pace}))
	for _, p := range producers {
		p.wait()
	}
	r.waitUntilDrained()
	for _, c := range consumers {
		c.stop()
	}
	return messages + after
}

func TestKilledServerLosesOnlyUnsyncedMessages(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	for _, test := range []struct {
		fsync string
		doubt time.Duration
	}{{"always", 0}, {"everysec", 2 * time.Second}} {
		t.Run(test.fsync, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.Options{AppendOnly: true, AppendFsync: test.fsync})
			r := newRun(t, target{Redis: server.Addr()})
			var out outages
			r.underLoad(scaled(2*time.Second, 30*time.Second), 0, func() {
				for range scaled(1, 8) {
					time.Sleep(scaled(time.Second, 3*time.Second))
					out = append(out, newOutage(test.doubt, server.Kill))
					time.Sleep(300 * time.Millisecond)
					server.Restart()
				}
			})
			report := r.check(Options{Crashes: true}, out.edit)
			out.resumed(t)
			assert.Positive(t, report.Handled)
		})
	}
}

func TestDeliveryResumesAfterSentinelFailover(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	s := redistest.StartSentinel(t, redistest.SentinelOptions{})
	o := s.FailoverOptions()
	r := newRun(t, target{Sentinel: o.SentinelAddrs, Master: o.MasterName})
	var out *outage
	r.underLoad(scaled(4*time.Second, 20*time.Second), 0, func() {
		time.Sleep(time.Second)
		var old *redistest.Server
		out = newOutage(time.Second, func() { old = s.KillMaster() }) // replication is asynchronous
		s.WaitFailover(old)
	})
	r.check(Options{Crashes: true}, out.edit)
	out.resumed(t)
}

// The server is made to forget all scripts and to close all connections.
func TestFlushedScriptsAndKilledClientsLoseNothing(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	client := server.Client(t)
	r := newRun(t, target{Redis: server.Addr()})
	messages := r.underLoad(scaled(2*time.Second, 20*time.Second), 8, func() {
		for range scaled(8, 80) {
			time.Sleep(200 * time.Millisecond)
			require.NoError(t, client.ScriptFlush(t.Context()).Err())
			require.NoError(t, client.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err())
			require.NoError(t, client.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err())
		}
	})
	r.checkAll(messages, Options{Crashes: true})
}

// Some replies are lost after the server has executed the request. No message is enqueued twice,
// and no handled message is delivered again.
func TestLostRepliesEnqueueNothingTwice(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	proxy := faultproxy.Start(t, server.Addr())
	r := newRun(t, target{Redis: proxy.Addr()})
	messages := r.underLoad(scaled(2*time.Second, 20*time.Second), 8, func() {
		proxy.Drop("evalsha", 0.1, math.MaxInt) // the name of the command in a request
		time.Sleep(scaled(2*time.Second, 20*time.Second))
		require.Eventually(t, func() bool { return proxy.Dropped() > 0 }, waitLimit, time.Millisecond)
		proxy.Drop("", 0, 0)
	})
	t.Logf("%d replies were lost", proxy.Dropped())
	r.checkAll(messages, Options{Crashes: true})
}

// The network stalls for longer than all leases, and all connections are cut.
func TestStalledNetworkLosesNothing(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	proxy := faultproxy.Start(t, server.Addr())
	r := newRun(t, target{Redis: proxy.Addr()})
	messages := r.underLoad(scaled(3*time.Second, 20*time.Second), 8, func() {
		for range scaled(1, 5) {
			time.Sleep(500 * time.Millisecond)
			proxy.Stall()
			time.Sleep(2500 * time.Millisecond)
			proxy.Resume()
			proxy.CutAll()
		}
	})
	r.checkAll(messages, Options{Crashes: true})
}
