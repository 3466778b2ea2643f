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

// errReply is the error for a reply that is not in the form that the script returns.
var errReply = errors.New("the server's answer has an unexpected form")

var errNoStatuses = fmt.Errorf("%w: no statuses", errReply)

// failure wraps an error of the client. If ctx has ended it returns the cause of ctx.
func failure(ctx context.Context, what string, err error) error {
	if err == nil {
		return nil
	}
	if cause := causeOf(ctx); cause != nil {
		return cause
	}
	if kind := kindOf(err); kind != nil {
		return fmt.Errorf("redisstore: %s: %w: %w", what, kind, err)
	}
	return fmt.Errorf("redisstore: %s: %w", what, err)
}

// causeOf returns the cause of a context that has ended, else nil. A connection may notice the
// deadline a moment before the context does.
func causeOf(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// replies are the beginnings of error replies with their kinds. Servers before 7.0 put them within
// the error of a script, after a dash; some compatible servers do after a blank.
var replies = []struct {
	begins string
	kind   error
}{
	{"OOM ", driver.ErrFull},
	{"PARTITIONFULL ", driver.ErrFull}, // see size.lua
	{"WRONGTYPE ", driver.ErrVersion},  // the key is not one of a queue
	{"LOADING ", driver.ErrUnavailable},
	{"READONLY ", driver.ErrUnavailable}, // the old master after a failover
	{"MASTERDOWN ", driver.ErrUnavailable},
	{"CLUSTERDOWN ", driver.ErrUnavailable},
	{"TRYAGAIN ", driver.ErrUnavailable}, // a slot is being moved
	{"MOVED ", driver.ErrUnavailable},
	{"ASK ", driver.ErrUnavailable},
	{"NOREPLICAS ", driver.ErrUnavailable},
	{"MISCONF ", driver.ErrUnavailable}, // for example, the disk is full
	{"BUSY ", driver.ErrUnavailable},    // a script of another client takes too long
	{"NOSCRIPT ", driver.ErrUnavailable},
	{"UNBLOCKED ", driver.ErrUnavailable},
	{"ERR max number of clients", driver.ErrUnavailable},
}

// kindOf returns the error of package driver for one of the client, or nil.
func kindOf(err error) error {
	var reply redis.Error
	switch {
	case errors.Is(err, errReply), errors.Is(err, driver.ErrNoQueue), errors.Is(err, driver.ErrPartitions),
		errors.Is(err, driver.ErrVersion), errors.Is(err, driver.ErrUnsafe):
		return nil // the error has its kind already
	case errors.Is(err, redis.ErrClosed):
		return driver.ErrClosed
	case !errors.As(err, &reply):
		return driver.ErrUnavailable // of the network, or the pool
	}
	text := reply.Error()
	for _, r := range replies {
		if strings.HasPrefix(text, r.begins) || strings.Contains(text, "-"+r.begins) ||
			strings.Contains(text, ": "+r.begins) {
			return r.kind
		}
	}
	return nil
}

// nameWrongKey adds the name of the key to an error for a key of a wrong type, because the server
// does not name it. The types are the right ones of the keys.
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
			return fmt.Errorf("the key %q is a %s; a %s is accepted: %w", keys[i], t.Val(), types[i], err)
		}
	}
	return err
}

// reloadSlots makes the client of a Cluster ask for the places of the slots if a call has failed.
// By itself the client asks when a node says that a slot has moved. If a node does not answer any
// more, the client goes on asking that node until its next regular refresh, a minute later.
// ReloadState works in the background and limits its own rate.
func (s *Store) reloadSlots(ctx context.Context, err error) {
	client, ok := s.client.(*redis.ClusterClient)
	if ok && err != nil && errors.Is(kindOf(err), driver.ErrUnavailable) {
		client.ReloadState(ctx)
	}
}
