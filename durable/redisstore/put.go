package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// forgetProducer is how long the last call of a producer is remembered: much longer than anyone goes on repeating it.
const forgetProducer = 24 * time.Hour

// Put implements [driver.Backend]. A producer is remembered for a day after its last call. A number that is below the last one
// of its producer is [driver.ErrInvalid]. Where the server is out of memory it is [driver.ErrFull].
//
// It takes O(log n) for each message in a partition of n.
func (b *backend) Put(ctx context.Context, put driver.Put) ([]driver.Status, error) {
	if err := b.check(ctx, put.Partition); err != nil {
		return nil, err
	}
	if err := checkBatch("put", len(put.Items)); err != nil {
		return nil, err
	}
	if err := checkIDs("put", len(put.Items), func(i int) string { return put.Items[i].ID }); err != nil {
		return nil, err
	}
	if len(put.Items) == 0 {
		return nil, nil
	}
	// Without a producer nobody could tell a repetition, so the client must not make one by itself.
	v, err := b.runLine(ctx, put.Partition, putScript, put.Producer == "", b.putLine(put))
	if err != nil {
		return nil, err
	}
	text, ok := v.(string)
	if !ok {
		last := newReply(v).number()
		return nil, fmt.Errorf("redisstore: put: %w number %d of producer %q: its last call has number %d; that one or later ones are accepted",
			driver.ErrInvalid, put.Seq, put.Producer, last)
	}
	if len(text) != len(put.Items) {
		return nil, fmt.Errorf("redisstore: put: %w number %d of producer %q: it stands for a call with %d messages, this one has %d",
			driver.ErrInvalid, put.Seq, put.Producer, len(text), len(put.Items))
	}
	return statuses(text), nil
}

// putLine has the arguments that the script's file tells.
func (b *backend) putLine(put driver.Put) []any {
	line := b.line(put.Partition, 6+3*len(put.Items))
	line = append(line, b.publish, b.partitions[put.Partition].channel,
		put.Producer, put.Seq, flag(put.Replace), forgetProducer.Milliseconds())
	for i := range put.Items {
		item := &put.Items[i]
		line = append(line, item.ID, when(item.At, item.Delay), packItem(item))
	}
	return line
}

// runAndWait runs a script and WAIT in one pipeline: WAIT is about the writes of its own connection. So a call that is
// repeated writes too. A call that has changed nothing has nothing to wait for.
func (s *Store) runAndWait(ctx context.Context, script *script, once bool, key string, line []any) (any, error) {
	node, err := s.node(ctx, key)
	if err != nil {
		return nil, err
	}
	for whole := false; ; whole = true {
		cmd := script.command(ctx, whole, line)
		pipe := node.Pipeline()
		_ = process(ctx, pipe, cmd, once || script.once) // only queued
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
	if values, ok := v.([]any); ok && len(values) > 2 {
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
