package redisstore

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

const (
	watchStartTimeout = 2 * time.Second // how long Watch waits for the subscription
	watchPingAfter    = 10 * time.Second
	minWatchDelay     = 50 * time.Millisecond // after the first failure, doubled up to maxWatchDelay
	maxWatchDelay     = 2 * time.Second
)

// Watch implements [driver.Backend]. It returns when it has subscribed, or after two seconds. If
// the server cannot be reached, Watch does not fail but keeps trying. After an interruption, during
// which hints may have been lost, Watch sends a hint with Due 0 for each partition. Hints that wait
// for a receiver are merged into one for each partition.
//
// Watch uses a connection of its own; on a Cluster, one to each node with partitions.
func (b *backend) Watch(ctx context.Context) (<-chan driver.Hint, error) {
	if err := b.store.usable(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(b.store.ctx, cancel)
	w := &watch{
		backend: b, hints: make(chan driver.Hint), started: make(chan struct{}),
		confirmed: make([]bool, len(b.partitions)),
	}
	out := make(chan driver.Hint)
	go w.listen(ctx)
	go func() {
		defer close(out) // does not wait for listen, which may be connecting to a silent server
		defer cancel()
		defer stop()
		w.deliver(ctx, out)
	}()
	timeout := time.NewTimer(watchStartTimeout)
	defer timeout.Stop()
	select {
	case <-w.started:
	case <-timeout.C:
	case <-ctx.Done():
	}
	w.start()
	return out, nil
}

// watch is one call to Watch.
type watch struct {
	backend *backend
	hints   chan driver.Hint // from the subscriptions

	mu        sync.Mutex
	once      sync.Once
	started   chan struct{} // closed when all partitions are subscribed, or when Watch returns
	confirmed []bool
	number    int // of partitions confirmed
}

func (w *watch) start() { w.once.Do(func() { close(w.started) }) }

// deliver sends hints to the receiver. For each partition only the earliest hint waits.
func (w *watch) deliver(ctx context.Context, out chan<- driver.Hint) {
	due := make(map[int]driver.Instant)
	var order []int
	for {
		var sink chan<- driver.Hint
		var next driver.Hint
		if len(order) > 0 {
			sink, next = out, driver.Hint{Partition: order[0], Due: due[order[0]]}
		}
		select {
		case h := <-w.hints:
			if at, ok := due[h.Partition]; !ok {
				order = append(order, h.Partition)
				due[h.Partition] = h.Due
			} else {
				due[h.Partition] = min(at, h.Due)
			}
		case sink <- next:
			order = order[1:]
			delete(due, next.Partition)
		case <-ctx.Done():
			return
		}
	}
}

// hint passes a hint to deliver.
func (w *watch) hint(ctx context.Context, h driver.Hint) {
	select {
	case w.hints <- h:
	case <-ctx.Done():
	}
}

// listen keeps subscriptions until ctx ends.
func (w *watch) listen(ctx context.Context) {
	pause := minWatchDelay
	for ctx.Err() == nil {
		begun := time.Now()
		w.session(ctx)
		if time.Since(begun) > maxWatchDelay {
			pause = minWatchDelay
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, maxWatchDelay)
	}
}

// session subscribes, and receives until one of the subscriptions fails.
func (w *watch) session(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var readers sync.WaitGroup
	defer readers.Wait()
	subscriptions, err := w.backend.subscriptions(ctx)
	if err != nil {
		return
	}
	for _, f := range subscriptions {
		readers.Go(func() {
			defer cancel()
			stop := context.AfterFunc(ctx, func() { _ = f.Close() })
			defer stop()
			w.receive(ctx, f)
			_ = f.Close()
		})
	}
	<-ctx.Done()
}

// receive receives from one subscription until it fails. If the connection is silent, receive sends
// a PING.
func (w *watch) receive(ctx context.Context, f *redis.PubSub) {
	partitions := w.backend.byChannel()
	for silent := false; ctx.Err() == nil; {
		message, err := f.ReceiveTimeout(ctx, watchPingAfter)
		if err != nil {
			var n net.Error
			if !errors.As(err, &n) || !n.Timeout() || silent || f.Ping(ctx) != nil {
				return
			}
			silent = true
			continue
		}
		silent = false
		switch m := message.(type) {
		case *redis.Message:
			if p, ok := partitions[m.Channel]; ok {
				due, _ := strconv.ParseInt(m.Payload, 10, 64) // 0 if it is not a number: the time is unknown
				w.hint(ctx, driver.Hint{Partition: p, Due: driver.Instant(due)})
			}
		case *redis.Subscription:
			if m.Kind != "subscribe" && m.Kind != "ssubscribe" {
				return // the slot of the channel has moved to another node
			}
			if p, ok := partitions[m.Channel]; ok {
				w.subscribed(ctx, p)
			}
		}
	}
}

// subscribed records that a partition is subscribed. If the partition was subscribed before, or
// Watch has returned already, hints may have been lost.
func (w *watch) subscribed(ctx context.Context, p int) {
	w.mu.Lock()
	again := w.confirmed[p]
	if !again {
		w.confirmed[p] = true
		w.number++
	}
	all := w.number == len(w.confirmed)
	w.mu.Unlock()
	select {
	case <-w.started:
		again = true
	default:
	}
	if again {
		w.hint(ctx, driver.Hint{Partition: p})
	}
	if all {
		w.start()
	}
}

// subscriptions subscribes to the channels of hints. The subscription to a sharded channel is made
// on the node that has its slot, by its own command: a command names channels of one slot only.
func (b *backend) subscriptions(ctx context.Context) ([]*redis.PubSub, error) {
	if cluster, ok := b.store.client.(*redis.ClusterClient); ok && b.publish == "SPUBLISH" {
		return b.shardSubscriptions(ctx, cluster)
	}
	channels := slices.Collect(maps.Keys(b.byChannel()))
	return []*redis.PubSub{b.store.client.Subscribe(ctx, channels...)}, nil
}

// shardSubscriptions returns one subscription for each node.
func (b *backend) shardSubscriptions(ctx context.Context, client *redis.ClusterClient) (
	subscriptions []*redis.PubSub, err error,
) {
	client.ReloadState(ctx) // in the background; a slot may have moved since the last time
	nodes := make(map[*redis.Client]*redis.PubSub)
	defer func() {
		if err != nil {
			for _, f := range nodes {
				_ = f.Close()
			}
		}
	}()
	for _, p := range b.partitions {
		node, err := client.MasterForKey(ctx, p.channel)
		if err != nil {
			return nil, err
		}
		subscription := nodes[node]
		if subscription == nil {
			subscription = node.Subscribe(ctx)
			nodes[node] = subscription
			subscriptions = append(subscriptions, subscription)
		}
		if err := subscription.SSubscribe(ctx, p.channel); err != nil {
			return nil, err
		}
	}
	return subscriptions, nil
}

// byChannel returns the partitions by their channels.
func (b *backend) byChannel() map[string]int {
	partitions := make(map[string]int, len(b.partitions))
	for i, p := range b.partitions {
		partitions[p.channel] = i
	}
	return partitions
}
