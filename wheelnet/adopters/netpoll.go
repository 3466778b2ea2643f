package adopters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cloudwego/netpoll"

	"github.com/timingwheel-go/timingwheel"
)

// NewNetpollLoop is like [netpoll.NewEventLoop], but its server closes idle connections. The
// timeout starts when the connection is accepted, and again when a request ends. A connection is
// not idle while onRequest runs. After a stall of the process, a request may wait in the socket
// although the timeout has passed, so netpoll has another quarter of the timeout to read it. To
// limit how long onRequest waits for the rest of a request, use [netpoll.WithReadTimeout].
// onConnect may be nil. options must not contain [netpoll.WithOnConnect].
//
// [netpoll.WithIdleTimeout] is different: it sets TCP keep-alive, which detects a peer whose
// machine is gone, but not a peer that is silent.
func NewNetpollLoop(
	tw *timingwheel.TimingWheel, timeout time.Duration,
	onConnect netpoll.OnConnect, onRequest netpoll.OnRequest, options ...netpoll.Option,
) (netpoll.EventLoop, error) {
	if tw == nil || onRequest == nil {
		return nil, errors.New("adopters: NewNetpollLoop: tw or onRequest is nil; both are required")
	}
	if timeout <= 0 {
		return nil, fmt.Errorf("adopters: NewNetpollLoop: timeout is %v; it must be positive", timeout)
	}
	connect, request := withIdleTimeout(tw, timeout, onConnect, onRequest)
	options = append(slices.Clip(options), netpoll.WithOnConnect(connect))
	return netpoll.NewEventLoop(request, options...)
}

// withIdleTimeout returns the callbacks of a server with the idle timeout added.
func withIdleTimeout(
	tw *timingwheel.TimingWheel, timeout time.Duration,
	onConnect netpoll.OnConnect, onRequest netpoll.OnRequest,
) (netpoll.OnConnect, netpoll.OnRequest) {
	connect := func(ctx context.Context, c netpoll.Connection) context.Context {
		if onConnect != nil {
			ctx = onConnect(ctx, c)
		}
		i := &netpollIdle{conn: c}
		i.last.InitStopped(tw, i.expire)
		i.timer.Init(tw, timeout, func() { i.last.Reset(timeout / 4) })
		_ = c.AddCloseCallback(func(netpoll.Connection) error { i.stop(); return nil })
		return context.WithValue(ctx, netpollIdleKey{}, i)
	}
	request := func(ctx context.Context, c netpoll.Connection) error {
		i := ctx.Value(netpollIdleKey{}).(*netpollIdle)
		if n := i.requests.Load(); n == closing || !i.requests.CompareAndSwap(n, n+1) {
			return c.Close() // expire is closing it
		}
		err := onRequest(ctx, c)
		if !i.timer.Touch() {
			i.stop()
			i.timer.Reset(timeout)
		}
		i.requests.Add(1) // after Reset, see expire
		return err
	}
	return connect, request
}

// netpollIdle is the idle timeout of one connection.
type netpollIdle struct {
	// requests is the number of requests that have begun plus the number that have ended, or
	// closing. It is odd while a request runs. Requests of one connection do not overlap.
	requests atomic.Int64

	timer, last timingwheel.FuncTimer // while timer is armed, last is not
	conn        netpoll.Connection
}

// closing is the value of netpollIdle.requests after expire: no later request is served.
const closing = -1

type netpollIdleKey struct{}

func (i *netpollIdle) stop() {
	_ = i.timer.StopWait(context.Background()) // its function may be about to arm last
	i.last.Stop()
}

// expire runs on a goroutine of the wheel. netpoll allows any goroutine to close a connection. A
// request that races with expire keeps the connection open: requests is odd while it runs, the
// timer is armed before requests is even again, and the compare-and-swap fails if a request has
// begun since expire loaded requests.
func (i *netpollIdle) expire() {
	n := i.requests.Load()
	_, armed := i.timer.Deadline()
	if n%2 == 0 && !armed && i.requests.CompareAndSwap(n, closing) {
		_ = i.conn.Close()
	}
}
