package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Put implements [driver.Backend]. If the server is out of memory, or the partition has as many messages as
// [Options.PartitionMessages] or as many bytes as [Options.PartitionBytes], it is [driver.ErrFull] and stores nothing.
//
// It takes O(log n) for each message in a partition of n.
func (b *backend) Put(ctx context.Context, put driver.Put) ([]driver.Status, error) {
	if err := b.store.usable(ctx); err != nil || len(put.Items) == 0 {
		return nil, err
	}
	v, err := b.runLine(ctx, put.Partition, putScript, b.putLine(put))
	if err != nil {
		return nil, err
	}
	r, err := b.calledReply(put.Partition, putScript, v)
	if err != nil {
		return nil, err
	}
	r.time()
	text := r.column(len(put.Items), 1)
	if r.err == nil && text == "" {
		r.err = errNoStatuses
	}
	if r.err != nil {
		return nil, b.failure(ctx, put.Partition, putScript, r.err)
	}
	return statuses(text), nil
}

// late is what a script without a token says of a copy that came too late.
const late = "late"

// calledReply is the reply to a script without tokens, unless it is that of a copy that came too late.
func (b *backend) calledReply(part int, s *script, v any) (*reply, error) {
	r := newReply(v)
	if len(r.values) == 0 || r.values[0] != late {
		return r, nil
	}
	r.text()
	refused := &driver.LateError{Now: r.instant(), Unknown: r.text() == "1"}
	if r.err != nil {
		return r, nil
	}
	return nil, fmt.Errorf("redisstore: %s: %w", b.naming(s, part), refused)
}

// putLine has the arguments that the script's file tells.
func (b *backend) putLine(put driver.Put) []any {
	line := b.line(put.Partition, 9+3*len(put.Items))
	line = append(append(line, b.calling(put.Partition, &put.Call)...), flag(put.Replace))
	for i := range put.Items {
		item := &put.Items[i]
		line = append(line, item.ID, when(item.At, item.Delay), packItem(item))
	}
	return append(line, b.store.options.PartitionMessages, b.store.options.PartitionBytes)
}

// runAndWait runs a script and WAIT in one pipeline: WAIT is about the writes of its own connection. So a call that is
// repeated writes too. A call that has changed nothing has nothing to wait for.
func (s *Store) runAndWait(ctx context.Context, script *script, key string, line []any) (any, error) {
	node, err := s.node(ctx, key)
	if err != nil {
		return nil, err
	}
	for whole := false; ; whole = true {
		cmd := script.command(ctx, whole, line)
		pipe := node.Pipeline()
		_ = script.process(ctx, pipe, cmd) // only queued
		wait := pipe.Do(ctx, "wait", s.options.Wait, s.options.WaitTimeout.Milliseconds())
		_, err := pipe.Exec(ctx)
		switch {
		case redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") && !whole:
			continue
		case cmd.Err() != nil:
			return nil, cmd.Err()
		case !changed(cmd.Val()):
			return cmd.Val(), nil
		case err != nil:
			return nil, err
		}
		return cmd.Val(), s.enough(wait)
	}
}

// changed reports whether one of the statuses that a script has returned is StatusDone.
func changed(v any) bool {
	if values, ok := v.([]any); ok && len(values) > 2 && values[0] != late {
		v = values[2]
	}
	text, _ := v.(string)
	return strings.Contains(text, strconv.Itoa(int(driver.StatusDone)))
}

// enough checks the number of replicas that WAIT has returned.
func (s *Store) enough(wait *redis.Cmd) error {
	n, err := wait.Int()
	if err == nil && n < s.options.Wait {
		err = fmt.Errorf("%w: %d of %d replicas have the change after %v; it has taken place on the master",
			driver.ErrUnavailable, n, s.options.Wait, s.options.WaitTimeout)
	}
	return err
}

// node is the client of the server that has a key.
func (s *Store) node(ctx context.Context, key string) (redis.Cmdable, error) {
	switch client := s.client.(type) {
	case *redis.ClusterClient:
		return client.MasterForKey(ctx, key)
	case *redis.Ring:
		return client.GetShardClientForKey(key)
	default:
		return client, nil
	}
}

// statuses are those that a script has returned as digits.
func statuses(text string) []driver.Status {
	all := make([]driver.Status, len(text))
	for i := range all {
		all[i] = driver.Status(text[i] - '0')
	}
	return all
}
