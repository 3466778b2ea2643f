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
)

// ClusterOptions configures [StartCluster]. A zero field selects its default.
type ClusterOptions struct {
	Options // of each node

	// NodeTimeout is the time without an answer after which nodes consider another node down. It
	// applies from [Cluster.KillMaster] to the end of [Cluster.WaitMaster], and defaults to 1.5 s.
	// At other times the timeout is one minute, so that no replica takes over from a master that
	// was not killed.
	NodeTimeout time.Duration
}

// slotCount is the number of slots of a cluster. masters is the number of nodes that initially
// share them.
const slotCount, masters = 16_384, 3

// Cluster is three masters that share the slots, with a replica for each. Its methods are safe for
// concurrent use.
type Cluster struct {
	t     testing.TB
	nodes []*Server
	ids   map[*Server]string

	nodeTimeout time.Duration
}

// StartCluster starts a cluster. It returns when all nodes agree that the cluster is complete, and
// the replicas have caught up.
func StartCluster(t testing.TB, o ClusterOptions) *Cluster {
	t.Helper()
	if o.NodeTimeout == 0 {
		o.NodeTimeout = 1500 * time.Millisecond
	}
	settings := append(o.settings(), "cluster-enabled yes", "cluster-config-file nodes.conf", "cluster-announce-ip 127.0.0.1",
		fmt.Sprintf("cluster-node-timeout %d", steadyTimeout.Milliseconds()), "cluster-replica-no-failover yes",
		"cluster-replica-validity-factor 0", // a replica takes over regardless of how long its master is down
		"cluster-allow-replica-migration no", "repl-ping-replica-period 1")
	c := &Cluster{t: t, ids: map[*Server]string{}, nodeTimeout: o.NodeTimeout}
	for range 2 * masters {
		c.nodes = append(c.nodes, start(t, "redis-server", settings, o.ExtraArgs))
	}
	if err := c.form(); err != nil {
		t.Fatalf("redistest: cluster: %v", err)
	}
	return c
}

// form creates a cluster from nodes that do not know each other.
func (c *Cluster) form() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*startTimeout)
	defer cancel()
	if err := c.downWithin(ctx, c.nodeTimeout); err != nil { // nodes then gossip more often
		return err
	}
	for i, node := range c.nodes {
		id, err := node.control.Do(ctx, "CLUSTER", "MYID").Text()
		if err != nil {
			return err
		}
		c.ids[node] = id
		if err := node.control.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			return err
		}
		_, port, _ := strings.Cut(node.Addr(), ":")
		for _, other := range c.nodes[:i] { // all pairs, because gossip takes one second
			if err := other.control.ClusterMeet(ctx, "127.0.0.1", port).Err(); err != nil {
				return err
			}
		}
	}
	for i, node := range c.nodes[:masters] {
		if err := node.control.ClusterAddSlotsRange(ctx, i*slotCount/masters, (i+1)*slotCount/masters-1).Err(); err != nil {
			return err
		}
	}
	if err := awaitCondition(c.allMet); err != nil {
		return err
	}
	for i, node := range c.nodes[masters:] {
		if err := node.control.ClusterReplicate(ctx, c.ids[c.nodes[i]]).Err(); err != nil {
			return err
		}
	}
	return c.settle()
}

// running yields the running nodes.
func (c *Cluster) running(yield func(*Server) bool) {
	for _, node := range c.nodes {
		if node.Running() && !yield(node) {
			return
		}
	}
}

// downWithin sets the time without an answer after which nodes consider another node down.
func (c *Cluster) downWithin(ctx context.Context, timeout time.Duration) error {
	for node := range c.running {
		if err := node.control.ConfigSet(ctx, "cluster-node-timeout", strconv.FormatInt(timeout.Milliseconds(), 10)).Err(); err != nil {
			return fmt.Errorf("the node on %s: %w", node.Addr(), err)
		}
	}
	return nil
}

// settle waits until the cluster is complete and can only be changed by [Cluster.KillMaster].
func (c *Cluster) settle() error {
	return awaitCondition(func(ctx context.Context) error {
		err := c.complete(ctx)
		if err == nil {
			err = c.downWithin(ctx, steadyTimeout)
		}
		if err == nil {
			err = c.complete(ctx)
		}
		if err != nil { // with the long timeout a node would count as down for two minutes
			again, cancel := context.WithTimeout(context.Background(), startTimeout)
			defer cancel()
			err = errors.Join(err, c.downWithin(again, c.nodeTimeout))
		}
		return err
	})
}

// allMet returns nil if every node knows every other node.
func (c *Cluster) allMet(ctx context.Context) error {
	for _, node := range c.nodes {
		for _, other := range c.nodes {
			seen, err := seenBy(ctx, c, node, other)
			if err != nil {
				return err
			}
			if seen.has("handshake") || seen.link == "disconnected" {
				return fmt.Errorf("the node on %s has not met the node on %s", node.Addr(), other.Addr())
			}
		}
	}
	return nil
}

// complete returns nil if every running node considers the cluster complete, and every replica is
// up to date and known to all nodes as a replica.
func (c *Cluster) complete(ctx context.Context) error {
	for node := range c.running {
		info, err := node.control.ClusterInfo(ctx).Result()
		if err != nil {
			return err
		}
		if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_slots_ok:"+strconv.Itoa(slotCount)) {
			return fmt.Errorf("the node on %s sees the cluster as %.160q", node.Addr(), info)
		}
		if err := c.followed(ctx, node); err != nil {
			return err
		}
	}
	return nil
}

// followed returns nil if a node is a master, or a replica that is up to date and that all other
// nodes know as a replica.
func (c *Cluster) followed(ctx context.Context, node *Server) error {
	if replicates(ctx, node, asMaster) == nil {
		return c.agreed(ctx, node, "master")
	}
	if err := replicates(ctx, node, linked); err != nil {
		return err
	}
	return c.agreed(ctx, node, "slave")
}

func (c *Cluster) agreed(ctx context.Context, node *Server, role string) error {
	for other := range c.running {
		seen, err := seenBy(ctx, c, other, node)
		if err != nil {
			return err
		}
		if !seen.has(role) || seen.has("fail") || seen.has("fail?") {
			return fmt.Errorf("the node on %s sees the node on %s as %q; it is a %s", other.Addr(), node.Addr(), seen.flags, role)
		}
	}
	return nil
}

// nodeView is one node's view of another node.
type nodeView struct {
	flags  []string
	master string // id of its master
	link   string
	slots  []string
}

func (s nodeView) has(flag string) bool { return slices.Contains(s.flags, flag) }

// seenBy returns node's view of other.
func seenBy(ctx context.Context, c *Cluster, node, other *Server) (nodeView, error) {
	text, err := node.control.ClusterNodes(ctx).Result()
	if err != nil {
		return nodeView{}, err
	}
	for line := range strings.Lines(text) {
		// id, address, flags, master, ping, pong, epoch, link, slots
		if f := strings.Fields(line); len(f) >= 8 && f[0] == c.ids[other] {
			return nodeView{flags: strings.Split(f[2], ","), master: f[3], link: f[7], slots: f[8:]}, nil
		}
	}
	return nodeView{}, fmt.Errorf("the node on %s does not know the node on %s", node.Addr(), other.Addr())
}

// ClusterOptions returns new client options for redis.NewClusterClient.
//
// ClusterStateReloadInterval has the client's default of one minute. After a master has died, a
// client does not look up the new owner of its slots until that interval has passed or ReloadState
// is called.
func (c *Cluster) ClusterOptions() *redis.ClusterOptions {
	o := &redis.ClusterOptions{DialTimeout: ClientTimeout, ReadTimeout: ClientTimeout, WriteTimeout: ClientTimeout}
	for _, node := range c.nodes {
		o.Addrs = append(o.Addrs, node.Addr())
	}
	return o
}

// Client returns a new client of the cluster. It is closed when the test ends.
func (c *Cluster) Client(t testing.TB) *redis.ClusterClient {
	t.Helper()
	client := redis.NewClusterClient(c.ClusterOptions())
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Nodes returns the three initial masters, followed by their replicas.
func (c *Cluster) Nodes() []*Server { return slices.Clone(c.nodes) }

// Master returns the running master that claims a slot, 0 to 16,383, or nil if there is none.
func (c *Cluster) Master(slot int) *Server {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for node := range c.running {
		if seen, err := seenBy(ctx, c, node, node); err == nil && seen.has("master") && slices.ContainsFunc(seen.slots, holds(slot)) {
			return node
		}
	}
	return nil
}

// holds returns a function that reports whether a range of slots, such as "7" or "0-5460", contains
// slot.
func holds(slot int) func(span string) bool {
	return func(span string) bool {
		first, last, many := strings.Cut(span, "-")
		if !many {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		return errors.Join(err, err2) == nil && from <= slot && slot <= to // not a moving slot
	}
}

// KillMaster kills the master of a slot and returns it. [Server.Restart] restarts it as a replica
// of its successor.
func (c *Cluster) KillMaster(slot int) *Server {
	c.t.Helper()
	master := c.Master(slot)
	if master == nil {
		c.t.Errorf("redistest: kill the master of slot %d: there is none", slot)
		return nil
	}
	master.Kill()
	c.check("let a replica take over", c.allowFailover(master))
	return master
}

// allowFailover lets a replica of a killed node take over, and makes the other nodes quickly
// consider the killed node down.
func (c *Cluster) allowFailover(killed *Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for node := range c.running {
		seen, err := seenBy(ctx, c, node, node)
		if err == nil && seen.master == c.ids[killed] {
			err = node.control.ConfigSet(ctx, "cluster-replica-no-failover", "no").Err()
		}
		if err != nil {
			return fmt.Errorf("the node on %s: %w", node.Addr(), err)
		}
	}
	return c.downWithin(ctx, c.nodeTimeout)
}

// WaitMaster waits until a node other than old is the master of a slot, and all running nodes
// consider the cluster complete. It returns the new master.
func (c *Cluster) WaitMaster(slot int, old *Server) *Server {
	c.t.Helper()
	var master *Server
	c.check("wait for a new master", awaitCondition(func(context.Context) error {
		if master = c.Master(slot); master == nil || master == old {
			return fmt.Errorf("slot %d has no new master", slot)
		}
		return nil
	}))
	c.check("wait until it is complete", c.settle())
	return master
}

// WaitComplete waits until all running nodes consider the cluster complete and all replicas are up
// to date.
func (c *Cluster) WaitComplete() {
	c.t.Helper()
	c.check("wait until it is complete", awaitCondition(c.complete))
}

func (c *Cluster) check(what string, err error) {
	c.t.Helper()
	if err != nil {
		c.t.Errorf("redistest: cluster: %s: %v", what, err)
	}
}
