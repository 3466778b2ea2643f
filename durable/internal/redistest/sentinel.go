package redistest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/timingwheel-go/timingwheel/durable/internal/redistest/proctest"
)

// SentinelOptions configures [StartSentinel]. A zero field selects its default.
type SentinelOptions struct {
	Options // of the master and the replica

	// DownAfter is the time without an answer after which a sentinel considers a server down. It
	// applies from [Sentinel.KillMaster] to the end of [Sentinel.WaitFailover], and defaults to 700
	// ms. At other times it is one minute, so that there is no failover without a kill.
	DownAfter time.Duration

	// FailoverTimeout limits a failover. After twice that time another sentinel tries. Defaults to
	// 2 s.
	FailoverTimeout time.Duration
}

// sentinels is the number of sentinels. Two of them must agree.
const sentinels, quorum = 3, 2

// Sentinel is a master with a replica and three sentinels. Its methods are safe for concurrent use.
type Sentinel struct {
	t         testing.TB
	name      string
	data      []*Server
	sentinels []*Server
	downAfter time.Duration
}

// StartSentinel starts a master, a replica and three sentinels. It returns when a failover is
// possible: the replica has caught up, and the sentinels know each other.
func StartSentinel(t testing.TB, o SentinelOptions) *Sentinel {
	t.Helper()
	requireProgram(t, "redis-sentinel")
	if o.DownAfter == 0 {
		o.DownAfter = 700 * time.Millisecond
	}
	if o.FailoverTimeout == 0 {
		o.FailoverTimeout = 2 * time.Second
	}
	s := &Sentinel{t: t, name: "queue", downAfter: o.DownAfter}
	settings := append(o.settings(), "repl-ping-replica-period 1")
	master := start(t, "redis-server", settings, o.ExtraArgs)
	host, port, _ := strings.Cut(master.Addr(), ":")
	replica := start(t, "redis-server", append(settings, "replicaof "+host+" "+port), o.ExtraArgs)
	s.data = []*Server{master, replica}
	s.await("the replica has not caught up", func(ctx context.Context) error { return replicates(ctx, replica, linked) })
	for range sentinels {
		s.sentinels = append(s.sentinels, start(t, "redis-sentinel", s.settings(master, o), nil))
	}
	s.checkOften()
	s.await("the sentinels do not know each other", s.failoverReady)
	return s
}

// asMaster is in the replication of a master, and linked in the replication of a replica that is up
// to date.
const asMaster, linked = "role:master", "master_link_status:up"

// replicates returns nil if a server's replication has a status.
func replicates(ctx context.Context, s *Server, status string) error {
	info, err := s.control.Info(ctx, "replication").Result()
	if err == nil && !strings.Contains(info, status) {
		err = fmt.Errorf("the replication of the server on %s is not %s", s.Addr(), status)
	}
	return err
}

func (s *Sentinel) settings(master *Server, o SentinelOptions) []string {
	host, port, _ := strings.Cut(master.Addr(), ":")
	return []string{
		fmt.Sprintf("sentinel monitor %s %s %s %d", s.name, host, port, quorum),
		fmt.Sprintf("sentinel down-after-milliseconds %s %d", s.name, steadyTimeout.Milliseconds()),
		fmt.Sprintf("sentinel failover-timeout %s %d", s.name, o.FailoverTimeout.Milliseconds()),
	}
}

// checkOften makes the sentinels check servers more often, and shortens their wait after pauses of
// their own, which an overloaded machine causes. Servers before 7.0 do not support this and take
// seconds longer.
func (s *Sentinel) checkOften() {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for _, server := range s.sentinels {
		for _, setting := range []struct{ name, ms string }{
			{"info-period", "500"}, {"ping-period", "200"}, {"ask-period", "200"}, {"publish-period", "200"}, {"tilt-period", "1000"},
		} {
			_ = server.control.Do(ctx, "SENTINEL", "DEBUG", setting.name, setting.ms).Err()
		}
	}
}

// downWithin sets the time without an answer after which a sentinel considers a server down.
func (s *Sentinel) downWithin(after time.Duration) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for _, server := range s.sentinels {
		err := server.control.Do(ctx, "SENTINEL", "SET", s.name, "down-after-milliseconds", after.Milliseconds()).Err()
		if err != nil {
			s.t.Errorf("redistest: sentinel on %s: set down-after to %v: %v", server.Addr(), after, err)
		}
	}
}

// failoverReady returns nil if every sentinel sees a running master, its replica, and the other
// sentinels.
func (s *Sentinel) failoverReady(ctx context.Context) error {
	for _, server := range s.sentinels {
		state, err := server.control.Do(ctx, "SENTINEL", "MASTER", s.name).Slice()
		if err != nil {
			return err
		}
		fields := map[string]string{}
		for pair := range slices.Chunk(state, 2) {
			fields[fmt.Sprint(pair[0])] = fmt.Sprint(pair[len(pair)-1])
		}
		if fields["flags"] != "master" || fields["num-slaves"] != "1" || fields["num-other-sentinels"] != strconv.Itoa(sentinels-1) {
			return fmt.Errorf("a sentinel sees flags %q, %q replicas and %q other sentinels",
				fields["flags"], fields["num-slaves"], fields["num-other-sentinels"])
		}
		if err := s.replicaKnown(ctx, server); err != nil {
			return err
		}
	}
	return nil
}

// replicaKnown returns nil if a sentinel would let the replica take over.
func (s *Sentinel) replicaKnown(ctx context.Context, sentinel *Server) error {
	replicas, err := sentinel.control.Do(ctx, "SENTINEL", "REPLICAS", s.name).Slice()
	if err == nil && !strings.Contains(fmt.Sprint(replicas...), "master-link-status ok") {
		err = errors.New("a sentinel does not see the replica's link")
	}
	return err
}

// FailoverOptions returns new options for redis.NewFailoverClient, whose client follows the master.
func (s *Sentinel) FailoverOptions() *redis.FailoverOptions {
	o := &redis.FailoverOptions{MasterName: s.name, DialTimeout: ClientTimeout, ReadTimeout: ClientTimeout, WriteTimeout: ClientTimeout}
	for _, server := range s.sentinels {
		o.SentinelAddrs = append(o.SentinelAddrs, server.Addr())
	}
	return o
}

// Client returns a new client that follows the master. It is closed when the test ends.
func (s *Sentinel) Client(t testing.TB) *redis.Client {
	t.Helper()
	c := redis.NewFailoverClient(s.FailoverOptions())
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Servers returns the initial master and the initial replica, regardless of their current roles.
func (s *Sentinel) Servers() []*Server { return slices.Clone(s.data) }

// Sentinels returns the three sentinels.
func (s *Sentinel) Sentinels() []*Server { return slices.Clone(s.sentinels) }

// Master returns the server that the sentinels consider the master, running or not, or nil if no
// sentinel answers.
func (s *Sentinel) Master() *Server {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	votes := map[string]int{}
	for _, server := range s.sentinels {
		if addr, err := server.control.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.name).StringSlice(); err == nil && len(addr) == 2 {
			votes[addr[0]+":"+addr[1]]++
		}
	}
	var master *Server
	for _, server := range s.data {
		if n := votes[server.Addr()]; n > 0 && (master == nil || n > votes[master.Addr()]) {
			master = server
		}
	}
	return master
}

// KillMaster kills the master and returns it. After [Server.Restart] the sentinels make it a
// replica.
func (s *Sentinel) KillMaster() *Server {
	s.t.Helper()
	master := s.Master()
	if master == nil {
		s.t.Errorf("redistest: kill the master: no sentinel names one")
		return nil
	}
	master.Kill()
	s.downWithin(s.downAfter)
	return master
}

// WaitFailover waits until the sentinels agree on a master other than old and the new master
// accepts writes. It returns the new master.
func (s *Sentinel) WaitFailover(old *Server) *Server {
	s.t.Helper()
	s.await("no failover", func(ctx context.Context) error {
		m := s.Master()
		if m == nil || m == old {
			return errors.New("the sentinels name no other master")
		}
		return replicates(ctx, m, asMaster)
	})
	s.downWithin(steadyTimeout)
	return s.Master()
}

// WaitReplica waits until the other server follows the master, for example after a restart.
func (s *Sentinel) WaitReplica() {
	s.t.Helper()
	s.await("there is no replica", func(ctx context.Context) error {
		for _, server := range s.data {
			if server.Running() && replicates(ctx, server, linked) == nil {
				return nil
			}
		}
		return errors.New("no server has a link to a master")
	})
}

func (s *Sentinel) await(what string, ready func(context.Context) error) {
	s.t.Helper()
	if err := awaitCondition(ready); err != nil {
		s.t.Errorf("redistest: sentinel: %s: %v", what, err)
	}
}

// awaitCondition waits for a condition. Each attempt takes at most a few seconds.
func awaitCondition(ready func(context.Context) error) error {
	return proctest.Eventually(startTimeout, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return ready(ctx)
	})
}
