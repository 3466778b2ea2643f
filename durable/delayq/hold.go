package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// takeVisibility is the lease of messages that were taken. It is extended while they are held.
const takeVisibility = 30 * time.Second

// held are messages that were taken and not settled. Their leases are extended, be it that a pipe to which they are printed is slow.
type held struct {
	s    *session
	stop context.CancelFunc
	done chan struct{}

	mu  sync.Mutex
	all map[*durable.Delivery]struct{}
}

// hold begins to hold messages, until end.
func hold(s *session) *held {
	ctx, cancel := context.WithCancel(context.Background())
	h := &held{s: s, stop: cancel, done: make(chan struct{}), all: make(map[*durable.Delivery]struct{})}
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
	list := make([]*durable.Delivery, 0, len(h.all))
	for d := range h.all {
		list = append(list, d)
	}
	return list
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
		var g errgroup.Group
		g.SetLimit(settleAtOnce)
		for _, d := range h.list() {
			g.Go(func() error {
				_ = d.Extend(ctx, takeVisibility) // if the lease is lost, or settled just now, its settling says so
				return nil
			})
		}
		_ = g.Wait()
	}
}

// settle ends a delivery, also after Ctrl-C.
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

func (h *held) nackAll(ctx context.Context, delay time.Duration) error {
	var g errgroup.Group
	g.SetLimit(settleAtOnce)
	for _, d := range h.list() {
		g.Go(func() error {
			return h.settle(ctx, d, func(ctx context.Context) error { return d.Nack(ctx, delay) })
		})
	}
	return g.Wait()
}

// releaseAll gives back what is held as it was, which counts as no attempt. A queue has no call for that, its store has.
func (h *held) releaseAll(ctx context.Context) error {
	all := h.list()
	if len(all) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	backend, err := h.s.store.Open(ctx, driver.Config{Queue: h.s.name, DeadLimit: keepDead, DeadBytes: keepBytes, DeadAge: keepAge})
	if err != nil {
		return err
	}
	changes := make([][]driver.Change, backend.Partitions())
	for _, d := range all {
		p := durable.PartitionOf(d.ID, len(changes))
		changes[p] = append(changes[p], driver.Change{ID: d.ID, Token: d.Token})
	}
	for p, list := range changes {
		for len(list) > 0 {
			n := min(len(list), driver.MaxBatch)
			if _, err := backend.Apply(ctx, driver.Batch{Partition: p, Op: driver.OpRelease, Changes: list[:n]}); err != nil {
				return fmt.Errorf("give back messages of partition %d, which come again when their leases end: %w", p, err)
			}
			list = list[n:]
		}
	}
	return nil
}
