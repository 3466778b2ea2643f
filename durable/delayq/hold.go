package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/timingwheel-go/timingwheel/durable"
)

// takeVisibility is the lease of taken messages. It is extended while they are held.
const takeVisibility = 30 * time.Second

// held are messages that were taken and not yet settled. Their leases are extended, because the
// output may be slow.
type held struct {
	stop context.CancelFunc
	done chan struct{}

	mu  sync.Mutex
	all map[*durable.Delivery]struct{}
}

// newHeld returns an empty set, which extends leases until end is called.
func newHeld() *held {
	ctx, cancel := context.WithCancel(context.Background())
	h := &held{stop: cancel, done: make(chan struct{}), all: make(map[*durable.Delivery]struct{})}
	go h.extend(ctx)
	return h
}

func (h *held) end() {
	h.stop()
	<-h.done
}

func (h *held) add(d *durable.Delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all[d] = struct{}{}
}

func (h *held) list() []*durable.Delivery {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.all))
}

func (h *held) extend(ctx context.Context) {
	defer close(h.done)
	every := time.NewTicker(takeVisibility / 3)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		g := newTasks()
		for _, d := range h.list() {
			g.Go(func() error { return d.Extend(ctx, takeVisibility) })
		}
		_ = g.Wait() // a lost lease is reported when the message is settled
	}
}

// settle acknowledges or releases a message by f, even after Ctrl-C.
func (h *held) settle(ctx context.Context, d *durable.Delivery, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	err := f(ctx)
	if errors.Is(err, durable.ErrLeaseLost) {
		err = fmt.Errorf("%w; it may be delivered again", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, d)
	return err
}

// releaseAll releases all held messages, unchanged or as failed.
func (h *held) releaseAll(ctx context.Context, o takeOptions) error {
	g := newTasks()
	for _, d := range h.list() {
		g.Go(func() error {
			return h.settle(ctx, d, func(ctx context.Context) error {
				switch {
				case !o.nack:
					return d.Release(ctx)
				case o.delay < 0:
					return d.Nack(ctx, nil)
				}
				return d.NackAfter(ctx, o.delay, nil)
			})
		})
	}
	return g.Wait()
}

// newTasks returns a group that runs up to settleAtOnce functions concurrently.
func newTasks() *errgroup.Group {
	g := new(errgroup.Group)
	g.SetLimit(settleAtOnce)
	return g
}
