package adopters

import (
	"context"
	"errors"
	"fmt"
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
	return netpoll.NewEventLoop(request, append(options, netpoll.WithOnConnect(connect))...)
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
		i.busy.Store(true)
		err := onRequest(ctx, c)
		i.timer.Reset(timeout)
		i.busy.Store(false) // after Reset, see expire
		return err
	}
	return connect, request
}

// netpollIdle is the watch over a connection.
type netpollIdle struct {
	busy  atomic.Bool // onRequest runs, and Reset will follow
	timer timingwheel.FuncTimer
	conn  netpoll.Connection
}

type netpollIdleKey struct{}

// expire runs on a goroutine of the wheel. netpoll lets every goroutine close a connection. If a
// request has come at the last moment, the connection stays: either expire finds it busy, or the
// timer was armed before busy was cleared.
func (i *netpollIdle) expire() {
	if i.busy.Load() {
		return
	}
	if _, armed := i.timer.Deadline(); !armed {
		_ = i.conn.Close()
	}
}
