package redistest

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// MigrateOptions configures [Cluster.MigrateSlot]. A zero field selects its default.
type MigrateOptions struct {
	// Batch is the number of keys to move in one step. Defaults to 16.
	Batch int

	// Halfway is called before the first key moves, and after each batch. During the call two nodes
	// share the slot. It may be nil.
	Halfway func()
}

// MigrateSlot moves a slot, 0 to 16,383, with its keys to another master, like an operator's
// resharding. Clients may use the slot in the meantime. MigrateSlot has no effect if the master
// already has the slot. Two migrations of one slot must not overlap.
func (c *Cluster) MigrateSlot(slot int, to *Server, o MigrateOptions) {
	c.t.Helper()
	if o.Batch == 0 {
		o.Batch = 16
	}
	if o.Halfway == nil {
		o.Halfway = func() {}
	}
	from := c.Master(slot)
	switch {
	case from == nil:
		c.t.Errorf("redistest: migrate slot %d: it has no master", slot)
	case from != to:
		c.check(fmt.Sprintf("migrate slot %d from %s to %s", slot, from.Addr(), to.Addr()), c.migrate(slot, from, to, o))
	}
}

func (c *Cluster) migrate(slot int, from, to *Server, o MigrateOptions) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*startTimeout)
	defer cancel()
	err := errors.Join( // the importing node first; otherwise it would redirect clients back
		to.control.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", c.ids[from]).Err(),
		from.control.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", c.ids[to]).Err())
	if err != nil {
		return err
	}
	for {
		o.Halfway()
		keys, err := from.control.ClusterGetKeysInSlot(ctx, slot, o.Batch).Result()
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			break
		}
		if err := moveKeys(ctx, from, to, keys); err != nil {
			return err
		}
	}
	return c.assign(ctx, slot, from, to)
}

func moveKeys(ctx context.Context, from, to *Server, keys []string) error {
	host, port, _ := strings.Cut(to.Addr(), ":")
	command := []any{"MIGRATE", host, port, "", 0, startTimeout.Milliseconds(), "KEYS"}
	for _, key := range keys {
		command = append(command, key)
	}
	return from.control.Do(ctx, command...).Err() // NOKEY is not an error: the keys are gone
}

// assign assigns a slot to its new master. It informs the new master first, so that the slot always
// has a master.
func (c *Cluster) assign(ctx context.Context, slot int, from, to *Server) error {
	order := []*Server{to, from}
	for _, node := range c.nodes {
		if node != to && node != from && node.Running() && replicates(ctx, node, asMaster) == nil {
			order = append(order, node)
		}
	}
	for _, node := range order {
		if err := node.control.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", c.ids[to]).Err(); err != nil {
			return fmt.Errorf("on %s: %w", node.Addr(), err)
		}
	}
	return nil
}
