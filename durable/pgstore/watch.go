package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// hint is a [driver.Hint] for a partition of the database.
type hint struct {
	part int32
	due  driver.Instant
	id   string
}

// payload is the text of a notification.
func (h hint) payload() string { return fmt.Sprintf("%d %d %s", h.part, h.due, h.id) }

func parseHint(payload string) (h hint, ok bool) {
	part, rest, _ := strings.Cut(payload, " ")
	due, id, _ := strings.Cut(rest, " ")
	p, err := strconv.ParseInt(part, 10, 32)
	at, _ := strconv.ParseInt(due, 10, 64)
	return hint{int32(p), driver.Instant(at), id}, err == nil
}

// hub sends hints to other processes and receives theirs, for all queues of a store. It listens on
// one connection while there are watchers.
//
// Hints are sent after the commit of the change, by a statement of their own, because the server
// commits transactions that notify one after another.
type hub struct {
	s     *Store
	tasks sync.WaitGroup // starts under mu, unless the store is closed

	mu       sync.Mutex
	watchers map[chan driver.Hint]*backend
	stop     context.CancelFunc // ends the goroutine that listens; nil: there is none
	ready    chan struct{}      // closed when it listens, or cannot
	failed   error              // why there are no hints
	waiting  map[hint]driver.Instant
	sending  bool
}

const (
	hintBuffer    = 256                    // hints that wait for a receiver, or two per partition if more; further ones are lost
	listenPause   = 500 * time.Millisecond // between attempts to listen
	listenTimeout = 2 * time.Second        // for the notification that tests the connection
	pingAfter     = 10 * time.Second       // without a notification
)

func newHub(s *Store) *hub {
	return &hub{s: s, watchers: make(map[chan driver.Hint]*backend), waiting: make(map[hint]driver.Instant)}
}

// close ends the goroutines of the hub.
func (h *hub) close() {
	h.mu.Lock()
	h.s.cancel()
	h.mu.Unlock()
	h.tasks.Wait()
}

// lastClaim is what the last claim of a partition has left.
type lastClaim struct {
	token int64
	next  driver.Instant // due time of the first message, 0: none
}

// isBefore reports whether consumers do not expect a message that is due at an instant. 0 and Never
// mean that there is none.
func (c lastClaim) isBefore(due driver.Instant) bool {
	return due != 0 && due != driver.Never && (c.next == 0 || due < c.next)
}

var notifyText = newStatement(`SELECT pg_notify('{channel}', t) FROM unnest($1::text[]) t`)

// send sends a hint to all processes soon. Hints for the same partition are combined.
func (h *hub) send(n hint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := hint{part: n.part, id: n.id}
	if due, ok := h.waiting[key]; !ok || n.due < due {
		h.waiting[key] = n.due
	}
	if !h.sending && h.s.ctx.Err() == nil {
		h.sending = true
		h.tasks.Go(h.sendAll)
	}
}

// sendAll sends the hints that wait. Hints that cannot be sent are lost.
func (h *hub) sendAll() {
	for {
		h.mu.Lock()
		var payloads []string
		for key, due := range h.waiting {
			key.due = due
			payloads = append(payloads, key.payload())
		}
		clear(h.waiting)
		if h.sending = len(payloads) > 0 && h.s.ctx.Err() == nil; !h.sending {
			h.mu.Unlock()
			return
		}
		h.mu.Unlock()
		_, _ = h.s.pool.Exec(h.s.ctx, h.s.texts[notifyText], payloads)
	}
}

// Watch implements [driver.Backend]. A store's watches share one connection, which executes LISTEN.
// While the server cannot be reached, Watch keeps trying. If notifications do not arrive, for
// example behind a pooler in transaction mode, Watch returns an error that wraps
// [errors.ErrUnsupported]. At most 256 hints, or two per partition if more, wait for a receiver.
func (b *backend) Watch(ctx context.Context) (<-chan driver.Hint, error) {
	if err := b.store.usable(ctx); err != nil {
		return nil, err
	}
	h := b.store.hub
	out := make(chan driver.Hint, max(hintBuffer, 2*b.config.Partitions))
	ready := h.join(out, b)
	context.AfterFunc(ctx, func() { h.leave(out) })
	select {
	case <-ready:
	case <-time.After(2 * listenTimeout):
	case <-ctx.Done():
	case <-b.store.ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return out, h.failed
}

// join adds a watcher, and begins to listen if nothing does. The channel that it returns is closed
// when the hub listens, or knows that it cannot.
func (h *hub) join(out chan driver.Hint, b *backend) (ready <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers[out] = b
	if h.stop == nil && h.s.ctx.Err() == nil {
		var ctx context.Context
		ctx, h.stop = context.WithCancel(h.s.ctx)
		h.ready = make(chan struct{})
		done := sync.OnceFunc(func() { close(h.ready) })
		h.tasks.Go(func() { h.listen(ctx, done) })
	}
	if h.s.ctx.Err() != nil {
		h.drop(out)
	}
	return h.ready
}

// leave removes a watcher, and closes its channel. The last one ends the listening.
func (h *hub) leave(out chan driver.Hint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop(out)
	if len(h.watchers) == 0 && h.stop != nil {
		h.stop()
		h.stop = nil
	}
}

// drop removes a watcher and closes its channel. The caller holds mu.
func (h *hub) drop(out chan driver.Hint) {
	if _, ok := h.watchers[out]; ok {
		delete(h.watchers, out)
		close(out) // under mu, so that pass no longer uses it
	}
}

// listen receives hints until ctx ends, or there are none.
func (h *hub) listen(ctx context.Context, ready func()) {
	defer ready()
	for ctx.Err() == nil {
		err := h.session(ctx, ready)
		if unsupported := errors.Is(err, errors.ErrUnsupported); h.s.ctx.Err() != nil || unsupported && ctx.Err() == nil {
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.stop != nil {
				h.stop()
				h.stop = nil
			}
			if unsupported {
				h.failed = err
			}
			for out := range h.watchers {
				h.drop(out)
			}
			return
		}
		select {
		case <-time.After(listenPause):
		case <-ctx.Done():
		}
	}
}

// session listens on a connection until it fails. It first sends a hint to itself on another
// connection, which arrives unless a pooler is between. Then it sends a hint for all partitions,
// because some may have been lost before.
func (h *hub) session(ctx context.Context, ready func()) error {
	acquired, err := h.s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	conn := acquired.Hijack() // so that the pool keeps its size
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{h.s.schema}.Sanitize()); err != nil {
		return err
	}
	hello := fmt.Sprintf("hello %x", rand.Uint64())
	if _, err := h.s.pool.Exec(ctx, h.s.texts[notifyText], []string{hello}); err != nil {
		return err
	}
	wait := listenTimeout
	for tested := false; ; {
		n, err := receive(ctx, conn, wait)
		switch {
		case err == nil && n == nil && !tested:
			return fmt.Errorf("%w: a notification has not arrived within %v; a pooler in transaction mode cannot pass notifications on, "+
				"so messages may be late by ConsumerOptions.Fallback", errors.ErrUnsupported, listenTimeout)
		case err != nil:
			return err
		case n == nil:
			limited, cancel := context.WithTimeout(ctx, pingAfter)
			err := conn.Ping(limited)
			cancel()
			if err != nil {
				return err
			}
		case n.Payload == hello:
			tested, wait = true, pingAfter
			h.missed()
			ready()
		default:
			if hint, ok := parseHint(n.Payload); ok {
				h.pass(hint)
			}
		}
	}
}

// receive returns the next notification, or nil if there is none for a while.
func receive(ctx context.Context, conn *pgx.Conn, wait time.Duration) (*pgconn.Notification, error) {
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	n, err := conn.WaitForNotification(limited)
	if err != nil && ctx.Err() == nil && limited.Err() != nil && !conn.IsClosed() {
		return nil, nil //nolint:nilnil // a timeout
	}
	return n, err
}

// pass passes a hint to the watchers of its queue.
func (h *hub) pass(n hint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for out, b := range h.watchers {
		if i := slices.Index(b.ids.Load().parts, n.part); i >= 0 {
			offer(out, driver.Hint{Partition: i, Due: n.due, ID: n.id})
		}
	}
}

// missed tells all watchers that hints arrive, and that some may have been lost.
func (h *hub) missed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed = nil
	for out, b := range h.watchers {
		for i := range b.config.Partitions {
			offer(out, driver.Hint{Partition: i})
		}
	}
}

// offer sends a hint unless the buffer is full.
func offer(out chan driver.Hint, n driver.Hint) {
	select {
	case out <- n:
	default:
	}
}
