package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

const (
	watchStartTimeout = 2 * time.Second // how long Watch waits for the subscription
	watchPingAfter    = 10 * time.Second
	minWatchDelay     = 50 * time.Millisecond // after the first failure, doubled up to maxWatchDelay
	maxWatchDelay     = 2 * time.Second
	maxHints          = 1 << 16 // that wait for a receiver; further ones of interrupted messages are lost
)

// Watch implements [driver.Backend]. It returns when it has subscribed, or after two seconds. If
// the server cannot be reached, Watch does not fail but keeps trying. If the server rejects the
// subscription, Watch returns an error that wraps [errors.ErrUnsupported]. After an interruption,
// during which hints may have been lost, Watch sends a hint with Due 0 for each partition. At most
// one hint per partition, and one per interrupted message, waits for a receiver.
//
// Watch uses a connection of its own; on a Cluster, one to each node with partitions.
func (b *backend) Watch(ctx context.Context) (<-chan driver.Hint, error) {
	if err := b.store.usable(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(b.store.ctx, func() { cancel(nil) })
	w := &watch{backend: b, events: make(chan event), started: make(chan struct{})}
	out := make(chan driver.Hint)
	go func() { cancel(w.listen(ctx)) }()
	go func() {
		defer close(out) // does not wait for listen, which may be connecting to a silent server
		defer cancel(nil)
		defer stop()
		w.deliver(ctx, out)
	}()
	timeout := time.NewTimer(watchStartTimeout)
	defer timeout.Stop()
	select {
	case <-w.started:
	case <-timeout.C:
	case <-ctx.Done():
		if err := context.Cause(ctx); errors.Is(err, errors.ErrUnsupported) {
			return nil, err
		}
	}
	w.returned.Store(true)
	return out, nil
}

// checkHints returns an error that wraps [errors.ErrUnsupported] if the server rejects hints. It
// publishes an empty one, which receivers ignore.
func (b *backend) checkHints(ctx context.Context) error {
	err := b.store.client.Do(ctx, b.publish, b.partitions[0].channel, "").Err()
	if err != nil && kindOf(err) == nil {
		return fmt.Errorf("%w: the server rejects hints, so messages may be late by ConsumerOptions.Fallback: %w", errors.ErrUnsupported, err)
	}
	return err
}

// watch is one call to Watch.
type watch struct {
	backend  *backend
	events   chan event    // from the subscriptions
	started  chan struct{} // closed by deliver when all partitions are subscribed
	returned atomic.Bool   // Watch has returned
}

// event is a hint, or the start of a subscription.
type event struct {
	driver.Hint
	subscribed bool
}

// deliver sends hints to the receiver. At most one hint per partition waits, the earliest, and one
// per interrupted message. The start of a subscription is a hint if the partition was subscribed
// before, or Watch has returned already, because hints may have been lost.
func (w *watch) deliver(ctx context.Context, out chan<- driver.Hint) {
	due, confirmed := make(map[driver.Hint]driver.Instant), make(map[int]bool)
	var order []driver.Hint // the keys of due: hints without their times
	for {
		var sink chan<- driver.Hint
		var next driver.Hint
		if len(order) > 0 {
			sink, next = out, order[0]
			next.Due = due[next]
		}
		select {
		case e := <-w.events:
			if e.subscribed && !confirmed[e.Partition] {
				confirmed[e.Partition] = true
				if len(confirmed) == len(w.backend.partitions) {
					close(w.started)
				}
				if !w.returned.Load() {
					continue
				}
			}
			key := driver.Hint{Partition: e.Partition, ID: e.ID}
			if at, ok := due[key]; ok {
				due[key] = min(at, e.Due)
			} else if e.ID == "" || len(order) < maxHints {
				order, due[key] = append(order, key), e.Due
			}
		case sink <- next:
			delete(due, order[0])
			order = order[1:]
		case <-ctx.Done():
			return
		}
	}
}

// listen keeps subscriptions until ctx ends, or the server rejects them.
func (w *watch) listen(ctx context.Context) error {
	for pause := minWatchDelay; ctx.Err() == nil; pause = min(2*pause, maxWatchDelay) {
		begun := time.Now()
		if err := w.session(ctx); err != nil && kindOf(err) == nil {
			return fmt.Errorf("redisstore: hints of queue %q: %w: the server rejects the subscription: %w",
				w.backend.config.Queue, errors.ErrUnsupported, err)
		}
		if time.Since(begun) > maxWatchDelay {
			pause = minWatchDelay
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	return nil
}

// session subscribes, and receives until one of the subscriptions fails.
func (w *watch) session(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel()
	subscriptions, err := w.backend.subscriptions(ctx)
	for _, f := range subscriptions {
		context.AfterFunc(ctx, func() { _ = f.Close() })
	}
	if err != nil {
		return err
	}
	errs := make(chan error, len(subscriptions))
	for _, f := range subscriptions {
		readers.Go(func() { errs <- w.receive(ctx, f) })
	}
	return <-errs
}

// receive receives from one subscription until it fails. If the connection is silent, receive sends
// a PING.
func (w *watch) receive(ctx context.Context, f *redis.PubSub) error {
	for silent := false; ctx.Err() == nil; {
		message, err := f.ReceiveTimeout(ctx, watchPingAfter)
		if err != nil {
			var n net.Error
			if !errors.As(err, &n) || !n.Timeout() || silent || f.Ping(ctx) != nil {
				return err
			}
			silent = true
			continue
		}
		silent = false
		var channel string
		var e event
		switch m := message.(type) {
		case *redis.Message:
			if m.Payload == "" { // see checkHints
				continue
			}
			at, id, _ := strings.Cut(m.Payload, " ") // of an interrupted message, or without an id
			due, _ := strconv.ParseInt(at, 10, 64)   // 0 if it is not a number: the time is unknown
			channel, e.ID, e.Due = m.Channel, id, driver.Instant(due)
		case *redis.Subscription:
			if m.Kind != "subscribe" && m.Kind != "ssubscribe" {
				return nil // the slot of the channel has moved to another node
			}
			channel, e.subscribed = m.Channel, true
		}
		var known bool
		if e.Partition, known = w.backend.channels[channel]; known {
			select {
			case w.events <- e:
			case <-ctx.Done():
			}
		}
	}
	return nil
}

// subscriptions subscribes to the channels of hints. The subscription to a sharded channel is made
// on the node that has its slot, by its own command: a command names channels of one slot only.
// After an error, subscriptions returns those made before it.
func (b *backend) subscriptions(ctx context.Context) (all []*redis.PubSub, err error) {
	cluster, ok := b.store.client.(*redis.ClusterClient)
	if !ok || b.publish != "SPUBLISH" {
		channels := slices.Collect(maps.Keys(b.channels))
		return []*redis.PubSub{b.store.client.Subscribe(ctx, channels...)}, nil
	}
	cluster.ReloadState(ctx) // in the background; a slot may have moved since the last time
	nodes := make(map[*redis.Client]*redis.PubSub)
	for _, p := range b.partitions {
		node, err := cluster.MasterForKey(ctx, p.channel)
		if err != nil {
			return all, err
		}
		if nodes[node] == nil {
			nodes[node] = node.Subscribe(ctx)
			all = append(all, nodes[node])
		}
		if err := nodes[node].SSubscribe(ctx, p.channel); err != nil {
			return all, err
		}
	}
	return all, nil
}
