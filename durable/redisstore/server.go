package redisstore

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// The oldest server, as ZMSCORE came with it, and the oldest one that has SPUBLISH.
var (
	leastVersion   = version{6, 2}
	shardedVersion = version{7, 0}
)

type version struct{ major, minor int }

func (v version) before(w version) bool {
	return v.major < w.major || v.major == w.major && v.minor < w.minor
}

// checkServers looks at all servers behind the client. It returns whether hints go over the channels of shards: over others
// a Cluster would send each of them to all of its nodes.
func (s *Store) checkServers(ctx context.Context, probeKey string) (sharded bool, err error) {
	var mu sync.Mutex
	oldest := version{1 << 30, 0}
	each := func(ctx context.Context, c *redis.Client) error {
		v, err := s.checkServer(ctx, c, probeKey)
		mu.Lock()
		defer mu.Unlock()
		if v.before(oldest) {
			oldest = v
		}
		return err
	}
	switch client := s.client.(type) {
	case *redis.ClusterClient:
		err = client.ForEachMaster(ctx, each)
		return err == nil && !oldest.before(shardedVersion), err
	case *redis.Ring:
		return false, client.ForEachShard(ctx, each)
	default:
		_, err = s.checkServer(ctx, client, probeKey)
		return false, err
	}
}

// checkServer looks at one server. Its version is zero where it does not tell.
func (s *Store) checkServer(ctx context.Context, c redis.Cmdable, probeKey string) (version, error) {
	info, err := serverInfo(ctx, c)
	if err != nil {
		return version{}, err
	}
	v, err := checkVersion(ctx, c, info["redis_version"], probeKey)
	if err != nil || s.options.AllowEviction {
		return v, err
	}
	return v, checkPolicy(ctx, c, info["maxmemory_policy"])
}

// serverInfo is what INFO tells, and nothing where the user of the client may not ask.
func serverInfo(ctx context.Context, c redis.Cmdable) (map[string]string, error) {
	text, err := c.Info(ctx).Result()
	if redis.IsPermissionError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	info := make(map[string]string)
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok {
			info[name] = value
		}
	}
	return info, lines.Err()
}

// checkVersion checks a version that a server tells. One that tells none must have the youngest of the commands that are needed.
func checkVersion(ctx context.Context, c redis.Cmdable, text, probeKey string) (version, error) {
	if text == "" {
		// By EVAL, and so where the keys of the queue are allowed.
		if err := c.Eval(ctx, probeScript.source, []string{probeKey}).Err(); err != nil {
			if kindOf(err) != nil || ended(ctx) != nil {
				return version{}, err
			}
			return version{}, fmt.Errorf("%w: the server does not tell its version, and lacks what is needed of Redis %d.%d: %w",
				driver.ErrVersion, leastVersion.major, leastVersion.minor, err)
		}
		return version{}, nil
	}
	v, ok := parseVersion(text)
	if !ok || v.before(leastVersion) {
		return v, fmt.Errorf("%w: the server is Redis %.20q; %d.%d or later is accepted",
			driver.ErrVersion, text, leastVersion.major, leastVersion.minor)
	}
	return v, nil
}

func parseVersion(text string) (version, bool) {
	parts := strings.SplitN(text, ".", 3)
	if len(parts) < 2 {
		return version{}, false
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	return version{major, minor}, err1 == nil && err2 == nil
}

// checkPolicy checks that the server evicts nothing. The policy comes from INFO or, where it is empty, from CONFIG; where the user
// of the client may not ask for that, nothing is known and nothing is refused.
func checkPolicy(ctx context.Context, c redis.Cmdable, policy string) error {
	if policy == "" {
		config, err := c.ConfigGet(ctx, "maxmemory-policy").Result()
		if err != nil {
			if kind := kindOf(err); kind != nil || ended(ctx) != nil {
				return err
			}
			return nil
		}
		policy = config["maxmemory-policy"]
	}
	if policy == "" || policy == "noeviction" {
		return nil
	}
	return fmt.Errorf("%w: the server's maxmemory-policy is %q, by which it may remove messages when its memory is full; "+
		"set it to noeviction (CONFIG SET maxmemory-policy noeviction, and in the server's configuration), or set Options.AllowEviction",
		driver.ErrUnsafe, policy)
}
