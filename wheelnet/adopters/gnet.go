package adopters

import (
	"context"
	"fmt"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/timingwheel-go/timingwheel"
)

// GnetIdle is an idle timeout for a gnet connection: it closes the connection if no data arrives
// for the timeout. Make it a field of the connection's context, and call its methods in the event
// handler:
//
//	type session struct{ idle adopters.GnetIdle }
//
//	func (s *server) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
//		ss := new(session)
//		c.SetContext(ss)
//		ss.idle.Start(c, s.wheel, time.Minute)
//		return nil, gnet.None
//	}
//
//	func (s *server) OnTraffic(c gnet.Conn) gnet.Action {
//		c.Context().(*session).idle.Touch()
//		…
//	}
//
//	func (s *server) OnClose(c gnet.Conn, _ error) gnet.Action {
//		c.Context().(*session).idle.Stop()
//		return gnet.None
//	}
//
// A GnetIdle must not be copied.
type GnetIdle struct {
	timer   timingwheel.FuncTimer
	conn    gnet.Conn
	timeout time.Duration
}

// Start starts the timeout of c. It panics if timeout is not positive.
func (i *GnetIdle) Start(c gnet.Conn, tw *timingwheel.TimingWheel, timeout time.Duration) {
	if timeout <= 0 {
		panic(fmt.Sprintf("adopters: GnetIdle.Start: timeout is %v; it must be positive", timeout))
	}
	i.conn, i.timeout = c, timeout
	i.timer.Init(tw, timeout, i.expire)
}

// Touch restarts the timeout. Call it when data arrives.
func (i *GnetIdle) Touch() {
	if !i.timer.Touch() { // the timer has fired, and closeIfIdle has not run yet
		i.timer.Reset(i.timeout)
	}
}

// Stop ends the timeout. It waits for a running expire, which must not use the event loop after the
// engine has stopped. There is no deadlock, because expire does not wait for the event loop.
func (i *GnetIdle) Stop() { _ = i.timer.StopWait(context.Background()) }

// expire runs on a goroutine of the wheel. It does not close the connection, although gnet would
// allow it: if the event loop is late, the socket may hold data that has not been read. The event
// loop runs closeIfIdle after it has read from all connections that are ready.
func (i *GnetIdle) expire() {
	_ = i.conn.EventLoop().Execute(context.Background(), gnet.RunnableFunc(i.closeIfIdle))
}

// closeIfIdle runs on the event loop. It closes the connection unless Touch came after the timer.
func (i *GnetIdle) closeIfIdle(context.Context) error {
	if _, armed := i.timer.Deadline(); armed {
		return nil
	}
	return i.conn.EventLoop().Close(i.conn)
}
