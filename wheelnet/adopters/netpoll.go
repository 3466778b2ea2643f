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

// NewNetpollLoop is [netpoll.NewEventLoop] for a server that closes idle connections. A connection
// is idle if no request has come for timeout, from the connect or the end of the last request on.
// While onRequest runs, the connection is not idle: [netpoll.WithReadTimeout] limits how long
// onRequest waits for the rest of a request. onConnect may be nil; options must not set it.
//
// netpoll.WithIdleTimeout is no such timeout: it sets TCP keep-alive, which detects that the peer's
// machine is gone and not that the peer is silent.
func NewNetpollLoop(
	tw *timingwheel.TimingWheel, timeout time.Duration,
	onConnect netpoll.OnConnect, onRequest netpoll.OnRequest, options ...netpoll.Option,
) (netpoll.EventLoop, error) {
	if tw == nil || onRequest == nil {
		return nil, errors.New("adopters: NewNetpollLoop with nil: accepted are a wheel and an onRequest")
	}
	if timeout <= 0 {
		return nil, fmt.Errorf("adopters: an idle timeout of %v: accepted is more than 0", timeout)
	}
	connect, request := watched(tw, timeout, onConnect, onRequest)
	options = append(slices.Clip(options), netpoll.WithOnConnect(connect))
	return netpoll.NewEventLoop(request, options...)
}

// watched adds the watch to the functions of a server.
func watched(
	tw *timingwheel.TimingWheel, timeout time.Duration,
	onConnect netpoll.OnConnect, onRequest netpoll.OnRequest,
) (netpoll.OnConnect, netpoll.OnRequest) {
	connect := func(ctx context.Context, c netpoll.Connection) context.Context {
		if onConnect != nil {
			ctx = onConnect(ctx, c)
		}
		i := &netpollIdle{conn: c}
		i.timer.Init(tw, timeout, i.expire)
		_ = c.AddCloseCallback(func(netpoll.Connection) error { i.timer.Stop(); return nil })
		return context.WithValue(ctx, netpollIdleKey{}, i)
	}
	request := func(ctx context.Context, c netpoll.Connection) error {
		i := ctx.Value(netpollIdleKey{}).(*netpollIdle)
		if n := i.requests.Load(); n == closing || !i.requests.CompareAndSwap(n, n+1) {
			return c.Close() // as expire does
		}
		err := onRequest(ctx, c)
		i.timer.Reset(timeout)
		i.requests.Add(1) // after Reset, see expire
		return err
	}
	return connect, request
}

// netpollIdle is the watch over a connection.
type netpollIdle struct {
	// requests is how many requests have begun plus how many have ended, or closing. It is odd while
	// a request runs. Requests of a connection run in turn.
	requests atomic.Int64

	timer timingwheel.FuncTimer
	conn  netpoll.Connection
}

// closing is netpollIdle.requests when expire closes the connection. No request begins any more.
const closing = -1

type netpollIdleKey struct{}

// expire runs on a goroutine of the wheel, from which netpoll lets it close the connection. If a
// request has come at the last moment, the connection stays. Then the request is under way, or has
// ended after it armed the timer, or begins before expire can replace requests.
func (i *netpollIdle) expire() {
	n := i.requests.Load()
	if n%2 == 1 {
		return
	}
	if _, armed := i.timer.Deadline(); !armed && i.requests.CompareAndSwap(n, closing) {
		_ = i.conn.Close()
	}
}
