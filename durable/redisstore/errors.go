package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// errReply is the error of a server that answers something else than the script returns.
var errReply = errors.New("the server has answered something else than expected")

var errNoStatuses = fmt.Errorf("%w: no statuses", errReply)

// failure makes an error of what the client returned. The end of ctx comes back as it is.
func failure(ctx context.Context, what string, err error) error {
	if err == nil {
		return nil
	}
	if ended := ended(ctx); ended != nil {
		return ended
	}
	if kind := kindOf(err); kind != nil {
		return fmt.Errorf("redisstore: %s: %w: %w", what, kind, err)
	}
	return fmt.Errorf("redisstore: %s: %w", what, err)
}

// ended is the error of a context that has ended. A connection may notice the deadline a moment before the context does.
func ended(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// replies are beginnings of replies, with what they mean. In servers before 7.0 they stand within the error of a script, after a dash; in others
// that are compatible with Redis after a blank.
var replies = []struct {
	begins string
	kind   error
}{
	{"OOM ", driver.ErrFull},
	{"PARTITIONFULL ", driver.ErrFull}, // see size.lua
	{"WRONGTYPE ", driver.ErrVersion},  // the key is none of a queue
	{"LOADING ", driver.ErrUnavailable},
	{"READONLY ", driver.ErrUnavailable}, // the old master after a failover
	{"MASTERDOWN ", driver.ErrUnavailable},
	{"CLUSTERDOWN ", driver.ErrUnavailable},
	{"TRYAGAIN ", driver.ErrUnavailable}, // a slot is being moved
	{"MOVED ", driver.ErrUnavailable},
	{"ASK ", driver.ErrUnavailable},
	{"NOREPLICAS ", driver.ErrUnavailable},
	{"MISCONF ", driver.ErrUnavailable}, // the disk is full, say
	{"BUSY ", driver.ErrUnavailable},    // somebody's script runs for too long
	{"NOSCRIPT ", driver.ErrUnavailable},
	{"UNBLOCKED ", driver.ErrUnavailable},
	{"ERR max number of clients", driver.ErrUnavailable},
}

// kindOf is the error of package durable for one of the client, nil where none fits.
func kindOf(err error) error {
	var reply redis.Error
	switch {
	case errors.Is(err, errReply), errors.Is(err, driver.ErrPartitions), errors.Is(err, driver.ErrVersion), errors.Is(err, driver.ErrUnsafe):
		return nil // it says what it is
	case errors.Is(err, redis.ErrClosed):
		return driver.ErrClosed
	case !errors.As(err, &reply):
		return driver.ErrUnavailable // of the network, or the pool
	}
	text := reply.Error()
	for _, r := range replies {
		if strings.HasPrefix(text, r.begins) || strings.Contains(text, "-"+r.begins) || strings.Contains(text, ": "+r.begins) {
			return r.kind
		}
	}
	return nil
}

// nameWrongKey adds to an error of a server that found a key of a wrong type which of the keys it is: the server does
// not say. The types are those of keys in a queue.
func (s *Store) nameWrongKey(ctx context.Context, err error, keys []any, types []string) error {
	if !strings.Contains(err.Error(), "WRONGTYPE ") {
		return err
	}
	found, typeErr := within(ctx, func() ([]redis.Cmder, error) {
		return s.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, key := range keys {
				pipe.Type(ctx, fmt.Sprint(key))
			}
			return nil
		})
	})
	if typeErr != nil {
		return err
	}
	for i, cmd := range found {
		if t, ok := cmd.(*redis.StatusCmd); ok && t.Val() != types[i] && t.Val() != "none" {
			return fmt.Errorf("the key %q is a %s and no %s: %w", keys[i], t.Val(), types[i], err)
		}
	}
	return err
}

// lookForSlots has the client of a Cluster ask where the slots are now. By itself it does so when a node says that a slot has moved, but not
// when a node does not answer any more: then it would go on asking that one until its next regular look, a minute later. It is done in the
// background, and seldom however often it is asked for.
func (s *Store) lookForSlots(ctx context.Context, err error) {
	if client, ok := s.client.(*redis.ClusterClient); ok && err != nil && errors.Is(kindOf(err), driver.ErrUnavailable) {
		client.ReloadState(ctx)
	}
}
