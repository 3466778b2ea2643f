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

// errReply is the error for a reply that no script returns.
var errReply = errors.New("the server's answer has an unexpected form")

// failure wraps an error of the client. If ctx has ended, failure returns the cause of ctx.
func failure(ctx context.Context, what string, err error) error {
	if err == nil {
		return nil
	}
	if cause := causeOf(ctx); cause != nil {
		return cause
	}
	if kind := kindOf(err); kind != nil && !errors.Is(err, kind) {
		err = fmt.Errorf("%w: %w", kind, err)
	}
	return fmt.Errorf("redisstore: %s: %w", what, err)
}

// causeOf returns the cause of a context that has ended, and otherwise nil. A connection may time
// out shortly before the context reports its deadline.
func causeOf(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// replies are the beginnings of error replies with their kinds. Servers before 7.0 put them inside
// the error of a script, after a dash; some compatible servers put them after a space.
var replies = []struct {
	begins string
	kind   error
}{
	{"OOM ", driver.ErrFull},
	{"PARTITIONFULL ", driver.ErrFull}, // see size.lua
	{"WRONGTYPE ", driver.ErrVersion},  // the key belongs to another program
	{"NOQUEUE ", driver.ErrNoQueue},    // see partition.lua
	{"OTHERVERSION ", driver.ErrVersion},
	{"PARTITIONS ", driver.ErrPartitions}, // see call.lua
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
	{"ERR WAIT cannot be used", driver.ErrUnavailable}, // the old master after a failover
}

// kindOf returns the error of package driver for an error of the client, or nil.
func kindOf(err error) error {
	var reply redis.Error
	switch {
	case errors.Is(err, errReply), errors.Is(err, driver.ErrNoQueue), errors.Is(err, driver.ErrPartitions), errors.Is(err, driver.ErrOptions),
		errors.Is(err, driver.ErrVersion), errors.Is(err, driver.ErrUnsafe), errors.Is(err, driver.ErrInvalid):
		return nil // the error already has its kind
	case errors.Is(err, redis.ErrClosed):
		return driver.ErrClosed
	case errors.Is(err, driver.ErrUnavailable), !errors.As(err, &reply):
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

// nameWrongKey adds the name of the key to an error about a wrong type, as the server does not.
func (s *Store) nameWrongKey(ctx context.Context, err error, on keyGroup) error {
	if !strings.Contains(err.Error(), "WRONGTYPE ") {
		return err
	}
	for i, key := range on.keys {
		found, typeErr := within(ctx, func() (string, error) { return s.client.Type(ctx, fmt.Sprint(key)).Result() })
		switch {
		case typeErr != nil:
			return err
		case found != on.types[i] && found != "none":
			return fmt.Errorf("the key %q is a %s; it must be a %s: %w", key, found, on.types[i], err)
		}
	}
	return err
}

// reloadSlots makes the client of a Cluster reload the slot map, in the background, if a call has
// failed. By itself the client keeps calling a node that no longer answers until the next regular
// refresh, a minute later. ReloadState limits its own rate.
func (s *Store) reloadSlots(ctx context.Context, err error) {
	client, ok := s.client.(*redis.ClusterClient)
	if ok && err != nil && errors.Is(kindOf(err), driver.ErrUnavailable) {
		client.ReloadState(ctx)
	}
}
