package redisstore

import (
	"context"
	"errors"
	"fmt"
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
// A store's watches share one connection or, on a Cluster, one to each node with partitions.
func (b *backend) Watch(ctx context.Context) (<-chan driver.Hint, error) {
	if err := b.store.usable(ctx); err != nil {
		return nil, err
	}
	ctx, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(b.store.ctx, func() { end(nil) })
	subscribed, start := context.WithTimeout(ctx, watchStartTimeout)
	w := &watch{backend: b, ctx: ctx, end: end, start: start, received: make(chan driver.Hint)}
	out := make(chan driver.Hint)
	go w.deliver(out)
	go b.store.hub.notify(w)
	context.AfterFunc(ctx, func() { stop(); b.store.hub.notify(w) })
	<-subscribed.Done()
	if err := context.Cause(ctx); errors.Is(err, errors.ErrUnsupported) {
		return nil, err
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
	backend     *backend
	ctx         context.Context
	end         context.CancelCauseFunc
	start       context.CancelFunc // called when the channels of all partitions are subscribed
	returned    atomic.Bool        // Watch has returned; earlier hints are dropped
	received    chan driver.Hint   // from the hub
	unconfirmed int                // channels of the session; used by the hub
}

// deliver sends hints to the receiver: the earliest per partition, and one per interrupted message.
func (w *watch) deliver(out chan<- driver.Hint) {
	defer close(out)
	due := make(map[driver.Hint]driver.Instant)
	var order []driver.Hint // the keys of due: hints without their times
	for {
		var sink chan<- driver.Hint
		var next driver.Hint
		if len(order) > 0 {
			sink, next = out, order[0]
			next.Due = due[next]
		}
		select {
		case h := <-w.received:
			key := driver.Hint{Partition: h.Partition, ID: h.ID}
			if at, ok := due[key]; ok {
				due[key] = min(at, h.Due)
			} else if h.ID == "" || len(order) < maxHints {
				order, due[key] = append(order, key), h.Due
			}
		case sink <- next:
			delete(due, order[0])
			order = order[1:]
		case <-w.ctx.Done():
			return
		}
	}
}

// hint passes on a hint from a channel, which may be for another queue.
func (w *watch) hint(channel string, h driver.Hint) {
	var known bool
	if h.Partition, known = w.backend.channels[channel]; known && w.returned.Load() {
		select {
		case w.received <- h: // without delay
		case <-w.ctx.Done():
		}
	}
}

// reject ends the watch if err is an error reply to its command. It returns other errors.
func (w *watch) reject(err error) error {
	if w == nil || kindOf(err) != nil {
		return err
	}
	w.end(fmt.Errorf("redisstore: hints of queue %q: %w: the server rejects the subscription: %w",
		w.backend.config.Queue, errors.ErrUnsupported, err))
	return nil
}

// hub receives the hints of a store. Its goroutine runs from the first watch until the store is
// closed, and has connections while there are watches.
type hub struct {
	store *Store
	begin sync.Once
	do    chan func() error // calls for the goroutine, which owns the fields below

	ctx     context.Context // of the session
	readers sync.WaitGroup
	feeds   map[*redis.Client]*feed
	watches []*watch // that have subscribed
}

// feed is a connection that receives hints.
type feed struct {
	*redis.PubSub
	sent []*watch // whose commands are not answered; nil for a PING
}

// notify tells the hub that a watch begins or has ended.
func (h *hub) notify(w *watch) {
	h.begin.Do(func() { go h.run() })
	select {
	case h.do <- func() error { return h.update(w) }:
	case <-h.store.ctx.Done():
	}
}

// run makes one session after another. One without an error had no watch left.
func (h *hub) run() {
	for pause := minWatchDelay; h.store.ctx.Err() == nil; pause = min(2*pause, maxWatchDelay) {
		begun := time.Now()
		err := h.session()
		h.store.reloadSlots(h.store.ctx, err)
		if err == nil || time.Since(begun) > maxWatchDelay {
			pause = minWatchDelay
		}
		select {
		case <-time.After(pause):
		case <-h.store.ctx.Done():
		}
	}
}

// session subscribes, and receives until a connection fails or no watch is left.
func (h *hub) session() error {
	ctx, cancel := context.WithCancel(h.store.ctx)
	defer h.readers.Wait()
	defer cancel()
	for _, w := range h.watches {
		go h.notify(w)
	}
	h.ctx, h.feeds, h.watches = ctx, make(map[*redis.Client]*feed), nil
	for {
		select {
		case call := <-h.do:
			if err := call(); err != nil || len(h.watches) == 0 {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// update subscribes to the channels of a new watch, or unsubscribes from those that only an ended
// one had. A command names one channel, whose slot is on one node, and so has one answer.
func (h *hub) update(w *watch) error {
	ended, kind := w.ctx.Err() != nil, "subscribe"
	if slices.Contains(h.watches, w) != ended {
		return nil
	}
	if h.watches = append(h.watches, w); ended {
		kind, h.watches = "unsubscribe", slices.DeleteFunc(h.watches, func(o *watch) bool { return o == w })
	}
	w.unconfirmed = len(w.backend.channels)
	for channel := range w.backend.channels {
		if ended && slices.ContainsFunc(h.watches, func(o *watch) bool { _, ok := o.backend.channels[channel]; return ok }) {
			continue
		}
		if err := h.send(w, strings.Replace(w.backend.publish, "publish", kind, 1), channel); err != nil {
			return w.reject(err)
		}
	}
	return nil
}

// send sends a command to the node of a channel.
func (h *hub) send(w *watch, kind, channel string) error {
	node, err := h.store.node(h.ctx, channel)
	if err != nil {
		return err
	}
	f, connected := h.feeds[node]
	if !connected {
		f = &feed{PubSub: node.Subscribe(h.ctx)}
		context.AfterFunc(h.ctx, func() { _ = f.Close() })
	}
	f.sent = append(f.sent, w)
	err = map[string]func(context.Context, ...string) error{
		"subscribe": f.Subscribe, "unsubscribe": f.Unsubscribe, "ssubscribe": f.SSubscribe, "sunsubscribe": f.SUnsubscribe,
	}[kind](h.ctx, channel)
	if err == nil && !connected {
		h.feeds[node] = f
		h.readers.Go(func() {
			for h.ctx.Err() == nil {
				message, err := f.ReceiveTimeout(h.ctx, watchPingAfter)
				select {
				case h.do <- func() error { return h.handle(f, message, err) }:
				case <-h.ctx.Done():
				}
			}
		})
	}
	return err
}

// handle handles what a feed has received. If the feed is silent, handle sends a PING.
func (h *hub) handle(f *feed, message any, err error) error {
	var n net.Error
	if errors.As(err, &n) && n.Timeout() && !slices.Contains(f.sent, nil) {
		f.sent = append(f.sent, nil)
		return f.Ping(h.ctx)
	}
	if m, ok := message.(*redis.Message); ok {
		at, id, _ := strings.Cut(m.Payload, " ") // of an interrupted message, or without an id
		due, _ := strconv.ParseInt(at, 10, 64)   // 0 if it is not a number: the time is unknown
		for _, w := range h.watches {
			if m.Payload != "" { // see checkHints
				w.hint(m.Channel, driver.Hint{ID: id, Due: driver.Instant(due)})
			}
		}
		return nil
	}
	var w *watch
	if len(f.sent) > 0 {
		w, f.sent = f.sent[0], f.sent[1:]
	}
	switch m, ok := message.(*redis.Subscription); {
	case err != nil:
		return w.reject(err)
	case !ok: // the answer to a PING
	case w == nil || strings.HasSuffix(m.Kind, "unsubscribe") && w.ctx.Err() == nil:
		return fmt.Errorf("%w: unexpected %s of channel %q, whose slot may have moved", driver.ErrUnavailable, m.Kind, m.Channel)
	default:
		w.hint(m.Channel, driver.Hint{}) // because hints may have been lost
		if w.unconfirmed--; w.unconfirmed == 0 {
			w.start()
		}
	}
	return nil
}
