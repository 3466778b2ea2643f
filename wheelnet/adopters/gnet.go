package adopters

import (
	"context"
	"fmt"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/timingwheel-go/timingwheel"
)

// GnetIdle closes a connection of gnet from which nothing has come for a while. It is a field of
// the connection's context. The event handler calls its methods:
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

// Start begins to watch c. It panics if timeout is not positive.
func (i *GnetIdle) Start(c gnet.Conn, tw *timingwheel.TimingWheel, timeout time.Duration) {
	if timeout <= 0 {
		panic(fmt.Sprintf("adopters: an idle timeout of %v: accepted is more than 0", timeout))
	}
	i.conn, i.timeout = c, timeout
	i.timer.Init(tw, timeout, i.expire)
}

// Touch notes that something has come.
func (i *GnetIdle) Touch() {
	if !i.timer.Touch() { // it has fired, and the event loop has not looked yet
		i.timer.Reset(i.timeout)
	}
}

// Stop ends the watch. It waits for a call of expire that is under way, because the event loop may
// be gone afterwards. expire does not wait for the event loop.
func (i *GnetIdle) Stop() { _ = i.timer.StopWait(context.Background()) }

// expire runs on a goroutine of the wheel. gnet lets every goroutine close a connection, but if the
// event loop is late, data may wait in the socket. So expire asks the event loop to look. The event
// loop does that after it has read from the connections that are ready.
func (i *GnetIdle) expire() {
	_ = i.conn.EventLoop().Execute(context.Background(), gnet.RunnableFunc(i.look))
}

// look closes the connection unless Touch came after the timeout.
func (i *GnetIdle) look(context.Context) error {
	if _, armed := i.timer.Deadline(); armed {
		return nil
	}
	return i.conn.EventLoop().Close(i.conn)
}
