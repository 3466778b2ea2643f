package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/internal/storeurl"
)

// benchMark is the id of the message by which a bench says that it measures: it is put off again and again, and while it is not
// due somebody is at work. A second bench is refused, as each would consume messages of the other, and wait for its own for ever.
const benchMark = benchPrefix + "runs"

// How far ahead the mark is due, after which a bench that was killed is no longer in the way, and how often it is put off.
const (
	markTime  = 30 * time.Second
	markEvery = 5 * time.Second
)

var errMarkLost = errors.New("bench was held up for so long that another one may have begun; its figures would be wrong")

// marked runs f while the queue is marked. Its context ends with errMarkLost where the mark is gone.
func (a *app) marked(ctx context.Context, s *session, f func(ctx context.Context) error) error {
	owner := []byte(rand.Text())
	if err := a.mark(ctx, s, owner); err != nil {
		return err
	}
	running, stop := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		stop(keepMark(running, s, owner))
	}()
	err := f(running)
	stop(nil)
	<-ended
	if errors.Is(context.Cause(running), errMarkLost) {
		return errMarkLost // whatever came of it
	}
	if errors.Is(err, durable.ErrUnavailable) {
		return err // it would have to be waited for, and the mark ends by itself
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	_, failure := s.Cancel(ctx, benchMark)
	return errors.Join(err, failure)
}

// mark enqueues the mark, unless that of another bench is there.
func (a *app) mark(ctx context.Context, s *session, owner []byte) error {
	if err := a.unmark(ctx, s); err != nil {
		return err
	}
	_, err := s.Enqueue(ctx, durable.Message{ID: benchMark, Body: owner, Delay: markTime})
	if errors.Is(err, durable.ErrDuplicate) {
		return markedBy(s)
	}
	return err
}

// unmark takes out the mark of a bench that was killed: one that is due, or any in a file, which no other process has open.
func (a *app) unmark(ctx context.Context, s *session) error {
	r, err := s.Get(ctx, benchMark)
	if errors.Is(err, durable.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	stats, err := s.Stats(ctx)
	if err != nil {
		return err
	}
	if _, file := storeurl.Path(a.store); !file && r.Due.After(stats.Now) {
		return markedBy(s)
	}
	_, err = s.Cancel(ctx, benchMark)
	return err
}

func markedBy(s *session) error {
	return fmt.Errorf("another delayq bench measures queue %q, or was killed less than %v ago: wait for it, or measure in another queue (-queue)",
		s.name, markTime)
}

// keepMark puts the mark off until ctx ends, or it is gone or somebody else's. Other errors are left to the measurement, which meets them too.
func keepMark(ctx context.Context, s *session, owner []byte) error {
	every := time.NewTicker(markEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		}
		r, err := s.Get(ctx, benchMark)
		if errors.Is(err, durable.ErrNotFound) || err == nil && !bytes.Equal(r.Body, owner) {
			return errMarkLost
		}
		_, _ = s.Reschedule(ctx, benchMark, markTime)
	}
}
