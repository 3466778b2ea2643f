package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
)

// changesSinceSave is the line of INFO that counts writes.
var changesSinceSave = regexp.MustCompile(`rdb_changes_since_last_save:\d+`)

// A Put is repeated. From Redis 7.2 on, WAIT returns immediately on a connection that has written
// nothing. If a repetition only read, the server would count replicas that may not have the
// messages.
func TestRepeatedPutWrites(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	q := openQueue(t, client, redisstore.Options{})
	writes := func() string { return changesSinceSave.FindString(client.Info(t.Context(), "persistence").Val()) }
	p := driver.Put{Call: calling("p", 1), Items: items("a", 2, 10, time.Hour)}
	first, err := q.Put(t.Context(), p)
	require.NoError(t, err)
	before := writes()
	require.NotEmpty(t, before)

	again, err := q.Put(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.NotEqual(t, before, writes())

	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "1mb").Err())
	again, err = q.Put(t.Context(), p)
	require.NoError(t, err, "a repetition succeeds when the memory is full")
	require.Equal(t, first, again)
	p.Call.Seq++
	_, err = q.Put(t.Context(), p)
	require.ErrorIs(t, err, driver.ErrFull)
}

// The other calls that Wait covers are repeated: see TestRepeatedPutWrites.
func TestRepeatedCallsWrite(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	q := openQueue(t, client, redisstore.Options{})
	writes := func() string { return changesSinceSave.FindString(client.Info(t.Context(), "persistence").Val()) }
	put(t, q, items("a", 4, 10, 0))
	dead := changes(claim(t, q, 2))
	apply(t, q, driver.OpBegin, dead...)
	apply(t, q, driver.OpBury, dead...)
	for op, change := range map[driver.Op]driver.Change{
		driver.OpReplay:     {ID: dead[0].ID, Delay: time.Hour},
		driver.OpPurge:      {ID: dead[1].ID},
		driver.OpReschedule: {ID: items("a", 4, 10, 0)[2].ID, Delay: time.Hour},
		driver.OpCancel:     {ID: items("a", 4, 10, 0)[3].ID},
	} {
		b := driver.Batch{Op: op, Call: calling(op.String(), 1), Changes: []driver.Change{change}}
		_, err := q.Apply(t.Context(), b)
		require.NoError(t, err)
		before := writes()
		outcomes, err := q.Apply(t.Context(), b)
		require.NoError(t, err)
		require.Equal(t, driver.StatusDone, outcomes[0].Status, op)
		require.NotEqual(t, before, writes(), op)
	}
}

// Each call that Wait covers is made on a server without replicas, twice: the copy waits as well.
// All calls have taken effect.
func TestCallsWithoutReplicasReturnErrUnavailable(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	alone := openQueue(t, client, redisstore.Options{})
	q := openQueue(t, client, redisstore.Options{Wait: 1, WaitTimeout: time.Millisecond})
	unanswered := func(what string, call func() error) {
		for range 2 {
			require.ErrorIs(t, call(), driver.ErrUnavailable, what)
		}
	}
	unanswered("put", func() error {
		_, err := q.Put(t.Context(), driver.Put{Call: calling("put", 1), Items: items("a", 4, 10, 0)})
		return err
	})
	dead := changes(claim(t, alone, 2))
	apply(t, alone, driver.OpBegin, dead...)
	apply(t, alone, driver.OpBury, dead...)
	for op, change := range map[driver.Op]driver.Change{
		driver.OpReplay:     {ID: dead[0].ID, Delay: time.Hour},
		driver.OpPurge:      {ID: dead[1].ID},
		driver.OpReschedule: {ID: items("a", 4, 10, 0)[2].ID, Delay: time.Hour},
		driver.OpCancel:     {ID: items("a", 4, 10, 0)[3].ID},
	} {
		unanswered(op.String(), func() error {
			_, err := q.Apply(t.Context(), driver.Batch{Op: op, Call: calling(op.String(), 1), Changes: []driver.Change{change}})
			return err
		})
	}
	for seq, paused := range []bool{true, false} {
		unanswered("pause", func() error {
			return q.Pause(t.Context(), driver.Pause{Call: calling("pause", uint64(seq+1)), Paused: paused})
		})
		counts, err := alone.Count(t.Context(), 0)
		require.NoError(t, err)
		require.Equal(t, paused, counts.Paused)
	}
}

// uncertain are calls whose results depend on changes of other calls: a message is known, has gone
// or is firing.
var uncertain = map[string]struct {
	call func(ctx context.Context, q driver.Backend, c driver.Call) (driver.Status, error)
	want driver.Status
}{
	"Put, known message": {func(ctx context.Context, q driver.Backend, c driver.Call) (driver.Status, error) {
		return first(q.Put(ctx, driver.Put{Call: c, Items: items("known", 1, 10, time.Hour)}))
	}, driver.StatusDuplicate},
	"Replace of a firing message": {func(ctx context.Context, q driver.Backend, c driver.Call) (driver.Status, error) {
		return first(q.Put(ctx, driver.Put{Call: c, Items: items("firing", 1, 10, time.Hour), Replace: true}))
	}, driver.StatusFiring},
	"Cancel of a firing message": {applyTo(driver.OpCancel, items("firing", 1, 0, 0)[0].ID), driver.StatusFiring},
	"Cancel of none":             {applyTo(driver.OpCancel, "none"), driver.StatusNotFound},
	"Reschedule, firing message": {applyTo(driver.OpReschedule, items("firing", 1, 0, 0)[0].ID), driver.StatusFiring},
	"Reschedule, none":           {applyTo(driver.OpReschedule, "none"), driver.StatusNotFound},
	"Replay of none":             {applyTo(driver.OpReplay, "none"), driver.StatusNotFound},
	"Purge of none":              {applyTo(driver.OpPurge, "none"), driver.StatusNotFound},
	"Resume of a running partition": {func(ctx context.Context, q driver.Backend, c driver.Call) (driver.Status, error) {
		return driver.StatusDone, q.Pause(ctx, driver.Pause{Call: c})
	}, driver.StatusDone},
}

// first returns the status of a call for one message.
func first(statuses []driver.Status, err error) (driver.Status, error) {
	if err != nil {
		return 0, err
	}
	return statuses[0], nil
}

// applyTo returns a call that makes a transition of one message.
func applyTo(op driver.Op, id string) func(context.Context, driver.Backend, driver.Call) (driver.Status, error) {
	return func(ctx context.Context, q driver.Backend, c driver.Call) (driver.Status, error) {
		outcomes, err := q.Apply(ctx, driver.Batch{Op: op, Call: c, Changes: []driver.Change{{ID: id, Delay: time.Hour}}})
		if err != nil {
			return 0, err
		}
		return outcomes[0].Status, nil
	}
}

// A result depends on changes that no replica has: a failover could undo them, so the call returns
// ErrUnavailable, with and without a caller. When a replica has the changes, the results arrive.
func TestResultsWaitForTheChangesTheyDependOn(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	client := newClient(t, server.Addr())
	alone := openQueue(t, client, redisstore.Options{})
	put(t, alone, append(items("firing", 1, 10, 0), items("known", 1, 10, time.Hour)...))
	apply(t, alone, driver.OpBegin, changes(claim(t, alone, 1))...)
	q := openQueue(t, client, redisstore.Options{Wait: 1, WaitTimeout: time.Millisecond})
	writes := func() string { return changesSinceSave.FindString(client.Info(t.Context(), "persistence").Val()) }
	for name, c := range uncertain {
		for _, caller := range []driver.Call{{}, calling(name, 1), calling(name, 1), calling(name, 2)} {
			before := writes()
			_, err := c.call(t.Context(), q, caller)
			require.ErrorIs(t, err, driver.ErrUnavailable, "%s: %+v", name, caller)
			require.NotEqual(t, before, writes(), "WAIT waits for nothing on a connection that has written nothing: %s: %+v", name, caller)
		}
	}

	host, port, _ := strings.Cut(server.Addr(), ":")
	redistest.Start(t, redistest.Options{ExtraArgs: []string{"--replicaof", host + " " + port}})
	q = openQueue(t, client, redisstore.Options{Wait: 1, WaitTimeout: 20 * time.Second})
	for name, c := range uncertain {
		for _, caller := range []driver.Call{{}, calling(name, 2), calling(name, 3)} {
			status, err := c.call(t.Context(), q, caller)
			require.NoError(t, err, name)
			require.Equal(t, c.want, status, name)
		}
	}
}

// A message is enqueued twice, and cancelled twice, while no replica follows. No answer says that
// the first call has succeeded.
func TestSecondCallDoesNotConfirmTheFirst(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	store := newStore(t, client, redisstore.Options{Wait: 1, WaitTimeout: time.Millisecond})
	q, err := durable.Open(t.Context(), store, durable.Options{RetryFor: 20 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(q.Close)
	for range 2 {
		_, err = q.Enqueue(t.Context(), durable.Message{ID: "order-42", Delay: time.Hour})
		require.ErrorIs(t, err, durable.ErrUnavailable)
		require.NotErrorIs(t, err, durable.ErrDuplicate)
	}
	for range 2 {
		_, err = q.Cancel(t.Context(), "order-42")
		require.ErrorIs(t, err, durable.ErrUnavailable)
		_, err = q.CancelAll(t.Context())
		require.ErrorIs(t, err, durable.ErrUnavailable)
		_, err = q.DeleteAllDead(t.Context(), durable.DeadFilter{All: true})
		require.ErrorIs(t, err, durable.ErrUnavailable)
		_, err = q.ReplayAll(t.Context(), durable.DeadFilter{Reason: "none"}, durable.ReplayOptions{})
		require.ErrorIs(t, err, durable.ErrUnavailable)
	}
}

// The client's user may not call WAIT. Open says so and names the server. If the permission is
// withdrawn later, the outcome of a call is unknown, because a failover may undo it.
func TestOpenRejectsWaitWithoutPermission(t *testing.T) {
	t.Parallel()
	allow := func(s *redistest.Server, rule string) {
		t.Helper()
		require.NoError(t, s.Client(t).Do(t.Context(), "acl", "setuser", "queue", "on", ">secret", "~*", "&*", "+@all", rule).Err())
	}
	open := func(client redis.UniversalClient, wait int) (driver.Backend, error) {
		return newStore(t, client, redisstore.Options{Wait: wait, WaitTimeout: time.Millisecond}).Open(t.Context(), config())
	}
	server := redistest.Start(t, redistest.Options{})
	allow(server, "-wait")
	o := redistest.ClientOptions(server.Addr())
	o.Username, o.Password = "queue", "secret"
	single := redis.NewClient(o)
	t.Cleanup(func() { _ = single.Close() })
	_, err := open(single, 1)
	require.ErrorIs(t, err, driver.ErrInvalid)
	for _, text := range []string{"Options.Wait 1", "the server " + server.Addr(), "it must be 0", "ACL SETUSER name +wait", "NOPERM"} {
		require.ErrorContains(t, err, text)
	}
	require.Zero(t, single.DBSize(t.Context()).Val(), "no key was created")
	alone, err := open(single, 0)
	require.NoError(t, err)
	allow(server, "+wait")
	q, err := open(single, 1)
	require.NoError(t, err)
	allow(server, "-wait")
	_, err = q.Put(t.Context(), driver.Put{Call: calling("p", 1), Items: items("a", 1, 10, 0)})
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.ErrorContains(t, err, "NOPERM")
	require.Len(t, claim(t, alone, 2), 1, "the message is stored")
	require.ErrorIs(t, q.(driver.Checker).Check(t.Context()), driver.ErrInvalid)

	c := redistest.StartCluster(t, redistest.ClusterOptions{})
	for _, node := range c.Nodes() {
		allow(node, "+wait")
	}
	co := c.ClusterOptions()
	co.Username, co.Password = "queue", "secret"
	cluster := redis.NewClusterClient(co)
	t.Cleanup(func() { _ = cluster.Close() })
	_, err = open(cluster, 1)
	require.NoError(t, err)
	allow(c.Nodes()[1], "-wait")
	_, err = open(cluster, 1)
	require.ErrorIs(t, err, driver.ErrInvalid)
	require.ErrorContains(t, err, "the master "+c.Nodes()[1].Addr())
}

// The client does not wait for the answer to WAIT, so each change would fail however many replicas
// there are.
func TestOpenRejectsWaitTimeoutThatIsNotBelowReadTimeout(t *testing.T) {
	t.Parallel()
	single := redistest.ClientOptions(redistest.Start(t, redistest.Options{}).Addr())
	single.ReadTimeout = 2 * time.Second
	many := redistest.StartCluster(t, redistest.ClusterOptions{}).ClusterOptions()
	many.ReadTimeout = 2 * time.Second
	for name, client := range map[string]redis.UniversalClient{"server": redis.NewClient(single), "cluster": redis.NewClusterClient(many)} {
		t.Cleanup(func() { _ = client.Close() })
		_, err := newStore(t, client, redisstore.Options{Wait: 1, WaitTimeout: 2 * time.Second}).Open(t.Context(), config())
		require.ErrorIs(t, err, driver.ErrInvalid, name)
		require.ErrorContains(t, err, "Options.WaitTimeout 2s; it must be shorter than the ReadTimeout of the client, which is 2s")
		require.Zero(t, client.DBSize(t.Context()).Val(), "no key was created")
		_, err = newStore(t, client, redisstore.Options{Wait: 1, WaitTimeout: 1999 * time.Millisecond}).Open(t.Context(), config())
		require.NoError(t, err, name)
		_, err = newStore(t, client, redisstore.Options{WaitTimeout: time.Minute}).Open(t.Context(), config())
		require.NoError(t, err, "without Wait")
	}
}

// logged collects the errors that a queue reports.
type logged struct {
	mu   sync.Mutex
	all  []string
	kind error // of all errors; nil: any
}

func (l *logged) report(t *testing.T) func(error) {
	return func(err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.kind != nil {
			assert.ErrorIs(t, err, l.kind)
		}
		l.all = append(l.all, err.Error())
	}
}

func (l *logged) texts() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

// Open succeeds with too few replicas, because others may follow. The queue reports this once,
// Healthy names the master, and is nil when the replica is there.
func TestHealthyNamesMasterWithTooFewReplicas(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	host, port, _ := strings.Cut(server.Addr(), ":")
	follow := redistest.Options{ExtraArgs: []string{"--replicaof", host + " " + port}}
	redistest.Start(t, follow)
	client := newClient(t, server.Addr())
	require.EqualValues(t, 1, client.Do(t.Context(), "wait", 1, 20_000).Val())
	found := &logged{kind: durable.ErrUnsafe}
	q, err := durable.Open(t.Context(), newStore(t, client, redisstore.Options{Wait: 2}),
		durable.Options{OnError: found.report(t), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(q.Close)
	require.Eventually(t, func() bool { return q.Healthy(t.Context()) != nil }, patience, 10*time.Millisecond)
	err = q.Healthy(t.Context())
	require.ErrorIs(t, err, durable.ErrUnsafe)
	require.ErrorContains(t, err, "the server "+server.Addr()+" has fewer than 2 replicas that answer within 1s")
	redistest.Start(t, follow)
	require.Eventually(t, func() bool { return q.Healthy(t.Context()) == nil }, time.Minute, 100*time.Millisecond)
	require.Len(t, found.texts(), 1, "%q", found.texts())
}

// One master of a Cluster has lost its replica, and a master behind Sentinel has fewer than two.
func TestCheckNamesEachMasterWithTooFewReplicas(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, redistest.ClusterOptions{})
	o := redisstore.Options{Wait: 1}
	q := openQueue(t, c.Client(t), o)
	var err error
	check := func(q driver.Backend) func() bool {
		return func() bool {
			err = q.(driver.Checker).Check(t.Context())
			return err == nil
		}
	}
	require.Eventually(t, check(q), time.Minute, 100*time.Millisecond)
	c.Nodes()[4].Kill()
	require.Eventually(t, func() bool { return !check(q)() && errors.Is(err, driver.ErrUnsafe) }, time.Minute, 100*time.Millisecond)
	require.ErrorContains(t, err, "the master "+c.Nodes()[1].Addr()+" has fewer than 1 replicas")
	require.NotContains(t, err.Error(), c.Nodes()[0].Addr())

	o.Wait = 2
	q = openQueue(t, redistest.StartSentinel(t, redistest.SentinelOptions{}).Client(t), o)
	require.False(t, check(q)())
	require.ErrorIs(t, err, driver.ErrUnsafe)
	require.ErrorContains(t, err, "the master has fewer than 2 replicas")
}

// Messages are cancelled before each failover of Sentinel: half of them while the replica follows,
// and half while it does not. No message whose Cancel returned Cancelled runs later.
func TestCancelledSurvivesFailover(t *testing.T) {
	t.Parallel()
	const perRound = 50
	rounds := 1
	if os.Getenv("TIMINGWHEEL_CHAOS") == "full" {
		rounds = 20
	}
	s := redistest.StartSentinel(t, redistest.SentinelOptions{})
	store := newStore(t, s.Client(t), redisstore.Options{Wait: 1, WaitTimeout: 500 * time.Millisecond})
	q, err := durable.Open(t.Context(), store, durable.Options{Partitions: 2, RetryFor: 2 * time.Second})
	require.NoError(t, err)
	t.Cleanup(q.Close)

	cancelled, unknown := make(map[string]bool), 0
	for round := range rounds {
		ids := make([]string, perRound)
		for i := range ids {
			ids[i] = fmt.Sprintf("%d-%d", round, i)
			enqueueUntilDone(t, q, durable.Message{ID: ids[i], Delay: time.Hour})
		}
		for id, result := range cancelAll(t, q, ids[:perRound/2]) {
			if result == durable.ResultCancelled {
				cancelled[id] = true
			} else { // the replica was too slow, on a busy machine
				unknown++
			}
		}
		first := s.Master()
		for _, server := range s.Servers() {
			if server != first {
				server.Pause()
				defer server.Continue()
			}
		}
		require.NoError(t, first.Client(t).Do(t.Context(), "CLIENT", "KILL", "TYPE", "replica").Err())
		for id, result := range cancelAll(t, q, ids[perRound/2:]) {
			unknown++
			if !assert.NotEqual(t, durable.ResultCancelled, result, "no replica follows") {
				cancelled[id] = true
			}
		}
		s.KillMaster()
		for _, server := range s.Servers() {
			if server != first {
				server.Continue()
			}
		}
		s.WaitFailover(first)
		first.Restart()
		s.WaitReplica()
	}
	t.Logf("%d were cancelled, and of %d the outcome is unknown", len(cancelled), unknown)
	require.NotEmpty(t, cancelled)
	assertNoneRuns(t, q, cancelled, unknown)
}

// enqueueUntilDone enqueues a message, and retries while the client has connections to the old
// master.
func enqueueUntilDone(t *testing.T, q *durable.Queue, m durable.Message) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := q.Enqueue(t.Context(), m)
		return err == nil || errors.Is(err, durable.ErrDuplicate)
	}, time.Minute, time.Millisecond)
}

// cancelAll cancels messages concurrently and returns the results; 0 means an error.
func cancelAll(t *testing.T, q *durable.Queue, ids []string) map[string]durable.Result {
	t.Helper()
	var mu sync.Mutex
	results := make(map[string]durable.Result)
	var all sync.WaitGroup
	for _, id := range ids {
		all.Go(func() {
			result, err := q.Cancel(t.Context(), id)
			assert.True(t, err == nil || errors.Is(err, durable.ErrUnavailable), "%v", err)
			mu.Lock()
			defer mu.Unlock()
			results[id] = result
		})
	}
	all.Wait()
	return results
}

// assertNoneRuns makes all messages due that still exist, at most left, and handles them.
func assertNoneRuns(t *testing.T, q *durable.Queue, cancelled map[string]bool, left int) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var mu sync.Mutex
	ran := make(map[string]bool)
	consumed := make(chan error, 1)
	go func() {
		consumed <- q.Consume(ctx, func(_ context.Context, d *durable.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			ran[d.ID] = true
			assert.False(t, cancelled[d.ID], "message %s was cancelled and runs", d.ID)
			return nil
		}, durable.ConsumerOptions{})
	}()
	var there []string
	for record, err := range q.List(t.Context(), durable.StateScheduled) {
		require.NoError(t, err)
		there = append(there, record.ID)
	}
	for _, id := range there {
		result, err := q.Reschedule(t.Context(), id, 0)
		require.NoError(t, err)
		require.Equal(t, durable.ResultRescheduled, result)
	}
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(ran) == len(there)
	}, time.Minute, 10*time.Millisecond)
	stop()
	require.NoError(t, <-consumed)
	assert.LessOrEqual(t, len(there), left, "only messages whose outcome was unknown are left")
}
