package main

import (
	"context"
	"errors"
	"io"
	"net/rpc"
	"time"

	"github.com/timingwheel-go/timingwheel/durable"
)

// The shop and a consumer that has the queue's file open speak over the consumer's standard input and output, with net/rpc. On Redis
// nothing is asked, but the end of the pipe ends the consumer there as well.

// Request asks for an order's message.
type Request struct {
	Order string
	Due   time.Time
}

// Service is the consumer's end.
type Service struct {
	ctx context.Context
	q   direct
}

// Enqueue returns when the message is safe.
func (s *Service) Enqueue(r Request, done *bool) error {
	*done = true
	return s.q.enqueue(s.ctx, r.Order, r.Due)
}

// Cancel is [durable.Queue.Cancel].
func (s *Service) Cancel(order string, result *durable.Result) (err error) {
	*result, err = s.q.cancel(s.ctx, order)
	return err
}

// Left is the number of messages in the queue.
func (s *Service) Left(_ bool, n *int64) (err error) {
	*n, err = s.q.left(s.ctx)
	return err
}

// serve answers until the input ends.
func serve(ctx context.Context, q direct, in io.Reader, out io.Writer) error {
	server := rpc.NewServer()
	if err := server.Register(&Service{ctx, q}); err != nil {
		return err
	}
	server.ServeConn(conn{in, out, func() error { return nil }})
	return nil
}

// conn is two pipes.
type conn struct {
	io.Reader
	io.Writer
	close func() error
}

func (c conn) Close() error { return c.close() }

// remote is the shop's end: the queue of whichever consumer runs.
type remote struct{ consumers *supervisor }

func (r remote) enqueue(ctx context.Context, order string, due time.Time) error {
	return r.call(ctx, "Service.Enqueue", Request{order, due}, new(bool))
}

func (r remote) cancel(ctx context.Context, order string) (result durable.Result, err error) {
	err = r.call(ctx, "Service.Cancel", order, &result)
	return result, err
}

func (r remote) left(ctx context.Context) (n int64, err error) {
	err = r.call(ctx, "Service.Left", true, &n)
	return n, err
}

// call asks one consumer after the other until one answers. Nobody knows whether one that was killed has done what it was asked; so
// all that is asked may be repeated.
func (r remote) call(ctx context.Context, method string, args, reply any) error {
	for p := (*process)(nil); ; {
		var err error
		if p, err = r.consumers.other(ctx, p); err != nil {
			return err
		}
		var answer rpc.ServerError
		if err = p.call(ctx, method, args, reply); err == nil || errors.As(err, &answer) || ctx.Err() != nil {
			return err
		}
	}
}

func (p *process) call(ctx context.Context, method string, args, reply any) error {
	call := p.client.Go(method, args, reply, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
		return call.Error
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
