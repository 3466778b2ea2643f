package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// The oldest accepted version, the first with ZMSCORE, and the oldest version with SPUBLISH.
const minVersion, shardedVersion = 6_02, 7_00

// Check implements [driver.Checker]. It checks the servers as Open does, because settings may have
// changed since, and a new replica may have different settings from its master. It also returns
// [driver.ErrUnsafe] if a master has fewer replicas than Options.Wait, and otherwise
// [errors.ErrUnsupported] if the client's user may not publish hints.
func (b *backend) Check(ctx context.Context) error {
	if err := b.store.usable(ctx); err != nil {
		return err
	}
	_, err := within(ctx, func() (bool, error) {
		_, clustered, err := b.store.checkServers(ctx, queueKey(b.store.options.Prefix, b.config.Queue, "members"), b.store.options.Wait)
		if err == nil {
			err = b.checkHints(ctx)
		}
		return clustered, err
	})
	return failure(ctx, fmt.Sprintf("check the servers of queue %q", b.config.Queue), err)
}

// serverChecks collects the results of concurrent checks of several servers.
type serverChecks struct {
	store    *Store
	probeKey string
	replicas int // that each master must have

	mu      sync.Mutex
	oldest  int    // as minVersion
	cluster string // "1" on a Cluster, "0" on other servers, "" if it is unknown
	unsafe  []string
}

// checkServers checks all servers behind the client: the masters, and their replicas, which may
// become masters. sharded reports whether hints use sharded channels. A Cluster would send messages
// of other channels to all of its nodes. clustered reports whether the servers are a Cluster; a
// client of redis.NewFailoverClusterClient has none.
func (s *Store) checkServers(ctx context.Context, probeKey string, replicas int) (sharded, clustered bool, err error) {
	checks := &serverChecks{store: s, probeKey: probeKey, replicas: replicas, oldest: math.MaxInt}
	switch client := s.client.(type) {
	case *redis.ClusterClient:
		if err = client.ForEachMaster(ctx, checks.checkClusterMaster); err == nil {
			err = client.ForEachSlave(ctx, checks.checkReplica)
			sharded = err == nil && checks.oldest >= shardedVersion
		}
		clustered = checks.cluster != "0"
	case *redis.Client:
		err = checks.checkMaster(ctx, client)
		clustered = checks.cluster == "1"
	}
	checks.mu.Lock() // the check of a replica that timed out may still be running
	defer checks.mu.Unlock()
	if err == nil && len(checks.unsafe) > 0 {
		slices.Sort(checks.unsafe)
		err = fmt.Errorf("%w: %s", driver.ErrUnsafe, strings.Join(checks.unsafe, "; "))
	}
	return sharded, clustered, err
}

// checkClusterMaster checks a master of a Cluster. The client knows its replicas.
func (c *serverChecks) checkClusterMaster(ctx context.Context, client *redis.Client) error {
	_, err := c.checkServer(ctx, "the master "+client.Options().Addr, client)
	return err
}

// checkMaster checks a server and the replicas that it reports.
func (c *serverChecks) checkMaster(ctx context.Context, client *redis.Client) error {
	name := "the server " + client.Options().Addr
	if behindSentinel(client) {
		name = "the master"
	}
	info, err := c.checkServer(ctx, name, client)
	if err != nil {
		return err
	}
	var replicas sync.WaitGroup
	for i := 0; info["slave"+strconv.Itoa(i)] != ""; i++ {
		addr := info.replica(i)
		replicas.Go(func() {
			client := replicaClient(client, addr)
			defer client.Close()
			_ = c.checkReplica(ctx, client) // it never fails
		})
	}
	replicas.Wait()
	return nil
}

// checkReplica checks a replica. One that does not answer within two seconds is skipped: Sentinel
// and Cluster know the address that other servers use, and clients may not be able to reach it.
func (c *serverChecks) checkReplica(ctx context.Context, client *redis.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, _ = within(ctx, func() (struct{}, error) {
		if info, err := readInfo(ctx, client); err == nil {
			_ = c.checkSettings(ctx, "the replica "+client.Options().Addr, client, info)
		}
		return struct{}{}, nil
	})
	return nil
}

// replicaClient returns a client of another node with the options of a master's client.
func replicaClient(master *redis.Client, addr string) *redis.Client {
	o := *master.Options()
	if behindSentinel(master) {
		o.Dialer = nil // it connects to the master, regardless of the address
	}
	o.Network, o.Addr = "tcp", addr
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxRetries, o.DialerRetries = 1, 0, 0, -1, 1
	return redis.NewClient(&o)
}

// behindSentinel reports whether a client asks Sentinel for its server.
func behindSentinel(client *redis.Client) bool { return client.Options().Addr == "FailoverClient" }

// checkWait returns an error if Options.Wait is set and a master rejects WAIT, or the client would
// not wait for the answer. It records a master with too few replicas.
func (c *serverChecks) checkWait(ctx context.Context, name string, client *redis.Client) error {
	o, timeout := c.store.options, client.Options().ReadTimeout
	switch {
	case o.Wait == 0:
		return nil
	case timeout > 0 && o.WaitTimeout >= timeout:
		return fmt.Errorf("%w Options.WaitTimeout %v; it must be shorter than the ReadTimeout of the client, which is %v",
			driver.ErrInvalid, o.WaitTimeout, timeout)
	}
	n, err := client.Do(ctx, "wait", c.replicas, o.WaitTimeout.Milliseconds()).Int() // immediately for 0 replicas
	if err != nil && kindOf(err) == nil && causeOf(ctx) == nil {
		return fmt.Errorf("%w Options.Wait %d; it must be 0, or %s must let the client's user call WAIT (ACL SETUSER name +wait): %w",
			driver.ErrInvalid, o.Wait, name, err)
	}
	if err == nil && n < c.replicas {
		c.found(name, fmt.Sprintf("has fewer than %d replicas that answer within %v, so changes return ErrUnavailable; start replicas, or lower Options.Wait",
			c.replicas, o.WaitTimeout), false)
	}
	return err
}

// found records how messages may be lost, unless text is empty or the options allow it.
func (c *serverChecks) found(name, text string, allowed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if text != "" && !allowed {
		c.unsafe = append(c.unsafe, name+" "+text)
	}
}

// checkServer checks the version and the settings of a master, which must answer.
func (c *serverChecks) checkServer(ctx context.Context, name string, client *redis.Client) (serverInfo, error) {
	info, err := readInfo(ctx, client)
	if err != nil {
		return nil, err
	}
	if info["role"] == "slave" {
		return nil, fmt.Errorf("%w: %s is a replica, which accepts no changes", driver.ErrUnavailable, name)
	}
	v, err := checkVersion(ctx, client, info["redis_version"], c.probeKey)
	if err := cmp.Or(err, c.checkWait(ctx, name, client)); err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.oldest = min(c.oldest, v)
	c.cluster = info["cluster_enabled"]
	c.mu.Unlock()
	return info, c.checkSettings(ctx, name, client, info)
}

// serverInfo has the answers to INFO and CONFIG GET, by name.
type serverInfo map[string]string

// errLoading is the error for a server that loads its data or receives its master's data. INFO then
// says that the server has no append-only file.
var errLoading = fmt.Errorf("%w: the server is loading its data", driver.ErrUnavailable)

// readInfo returns the answer to INFO, or errLoading. It is empty if the user has no permission.
func readInfo(ctx context.Context, c redis.Cmdable) (serverInfo, error) {
	info := make(serverInfo)
	text, err := c.Info(ctx).Result()
	if err != nil && !redis.IsPermissionError(err) {
		return nil, err
	}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	if info["loading"] == "1" || info["async_loading"] == "1" || info["master_sync_in_progress"] == "1" {
		return nil, errLoading
	}
	return info, nil
}

// replica returns the address in a line such as "slave0:ip=10.0.0.2,port=6379,state=online".
func (i serverInfo) replica(n int) string {
	var host, port string
	_, _ = fmt.Sscanf(strings.ReplaceAll(i["slave"+strconv.Itoa(n)], ",", " "), "ip=%s port=%s", &host, &port)
	return net.JoinHostPort(host, port)
}

// checkVersion checks the reported version. Without one, the newest command needed must exist.
func checkVersion(ctx context.Context, c redis.Cmdable, text, probeKey string) (int, error) {
	if text == "" {
		// EVAL is used because a user may have permission only for the keys of the queue.
		if err := c.Eval(ctx, probeScript.source, []string{probeKey}).Err(); err != nil {
			if kindOf(err) != nil || causeOf(ctx) != nil {
				return 0, err
			}
			return 0, fmt.Errorf("%w: the server does not report its version, and lacks a command of Redis %d.%d: %w",
				driver.ErrVersion, minVersion/100, minVersion%100, err)
		}
		return 0, nil
	}
	var major, minor int
	if _, err := fmt.Sscanf(text+".", "%d.%d.", &major, &minor); err != nil || 100*major+minor < minVersion {
		return 0, fmt.Errorf("%w: the server is Redis %.20q; it must be %d.%d or later",
			driver.ErrVersion, text, minVersion/100, minVersion%100)
	}
	return 100*major + minor, nil
}

// checkSettings records how a server may lose messages. A setting that is not shown is accepted.
func (c *serverChecks) checkSettings(ctx context.Context, name string, client redis.Cmdable, info serverInfo) error {
	if err := info.addSettings(ctx, client); err != nil {
		return err
	}
	c.found(name, eviction(cmp.Or(info["maxmemory_policy"], info["maxmemory-policy"])), c.store.options.AllowEviction)
	c.found(name, lossOnCrash(info), c.store.options.AllowLossOnCrash)
	return nil
}

// addSettings adds the settings that CONFIG shows, which managed servers lack or users may not run.
func (i serverInfo) addSettings(ctx context.Context, client redis.Cmdable) error {
	for _, name := range []string{"maxmemory-policy", "appendonly", "appendfsync", "save"} {
		config, err := client.ConfigGet(ctx, name).Result()
		if err != nil && (kindOf(err) != nil || causeOf(ctx) != nil) {
			return err
		}
		maps.Copy(i, config)
	}
	return nil
}

// eviction describes how a policy may lose messages, or returns "". Keys have no time to live.
func eviction(policy string) string {
	if !strings.HasPrefix(policy, "allkeys") {
		return ""
	}
	return fmt.Sprintf("has maxmemory-policy %q, so it may remove messages when its memory is full; set it to noeviction "+
		"(CONFIG SET maxmemory-policy noeviction, and in the server's configuration), or set Options.AllowEviction", policy)
}

// lossOnCrash describes the loss in a crash if it is more than the last two seconds, or returns "".
func lossOnCrash(settings serverInfo) string {
	const advice = "; set appendonly to yes (CONFIG SET appendonly yes, and in the server's configuration), or set Options.AllowLossOnCrash"
	aof := cmp.Or(settings["aof_enabled"], settings["appendonly"])
	snapshots, known := settings["save"]
	switch off := aof == "0" || aof == "no"; {
	case off && !known:
		return "keeps no append-only file (appendonly no), so a crash loses the messages since its last snapshot, if it makes snapshots" + advice
	case off && snapshots == "":
		return `keeps neither an append-only file nor snapshots (appendonly no, save ""), so a crash or a restart loses all messages` + advice
	case off:
		return fmt.Sprintf("keeps snapshots only (appendonly no, save %q), so a crash loses the messages since the last one", snapshots) + advice
	case settings["appendfsync"] == "no":
		return "has appendfsync no, so a crash of its machine loses the writes that the system has not yet written to the disk, for example of half a minute; " +
			"set it to everysec or always, or set Options.AllowLossOnCrash"
	}
	return ""
}
