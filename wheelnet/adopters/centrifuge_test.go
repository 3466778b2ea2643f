package adopters

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/centrifugal/centrifuge"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/websocket"
)

// Frames of centrifuge's protocol. The pong is the same frame as the ping.
const (
	connectFrame = `{"id":1,"connect":{}}`
	pingFrame    = `{}`
)

// pingPong has the periods of the tests in synctest bubbles. The fake clock stands still while a
// goroutine runs, so measured times are exact up to a tick.
var pingPong = centrifuge.PingPongConfig{PingInterval: 25 * time.Second, PongTimeout: 10 * time.Second}

const tick = time.Millisecond

// newNode returns a running node that is shut down at the end of the test.
func newNode(t testing.TB, timers centrifuge.TimerScheduler) *centrifuge.Node {
	node, err := centrifuge.New(centrifuge.Config{
		ClientTimerScheduler: timers,
		LogLevel:             centrifuge.LogLevelError,
		// The default registry would share metrics between nodes inside and outside of bubbles. The
		// metrics are slow if the clock jumps between these nodes.
		Metrics: centrifuge.MetricsConfig{RegistererGatherer: prometheus.NewRegistry()},
	})
	require.NoError(t, err)
	require.NoError(t, node.Run())
	t.Cleanup(func() { require.NoError(t, node.Shutdown(context.Background())) })
	return node
}

// withUser returns a context in which a client is authenticated.
func withUser(ctx context.Context) context.Context {
	return centrifuge.SetCredentials(ctx, &centrifuge.Credentials{UserID: "user"})
}

// memoryTransport is a connection in memory. WebSockets do not work in bubbles: for them,
// centrifuge keeps timers in a sync.Pool, and a timer must not leave its bubble.
type memoryTransport struct {
	client    *centrifuge.Client
	close     centrifuge.ClientCloseFunc
	periods   centrifuge.PingPongConfig
	onFrame   func(frame string) // on a goroutine of the client
	closed    chan centrifuge.Disconnect
	connected time.Time
}

// dialMemory returns a connection on which nothing has been sent. It is closed at the end of the
// test.
func dialMemory(
	t testing.TB, node *centrifuge.Node, periods centrifuge.PingPongConfig, onFrame func(frame string),
) *memoryTransport {
	closed := make(chan centrifuge.Disconnect, 1)
	m := &memoryTransport{periods: periods, onFrame: onFrame, closed: closed, connected: time.Now()}
	var err error
	m.client, m.close, err = centrifuge.NewClient(withUser(context.Background()), node, m)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.close()) })
	return m
}

// send sends a frame of the client to the node.
func (m *memoryTransport) send(frame string) bool {
	return centrifuge.HandleReadFrame(m.client, strings.NewReader(frame), 1<<16)
}

func (m *memoryTransport) Write(frame []byte) error { m.onFrame(string(frame)); return nil }

func (m *memoryTransport) WriteMany(frames ...[]byte) error {
	for _, frame := range frames {
		m.onFrame(string(frame))
	}
	return nil
}

func (m *memoryTransport) Close(d centrifuge.Disconnect) error       { m.closed <- d; return nil }
func (m *memoryTransport) Name() string                              { return "memory" }
func (m *memoryTransport) AcceptProtocol() string                    { return "" }
func (m *memoryTransport) Unidirectional() bool                      { return false }
func (m *memoryTransport) Emulation() bool                           { return false }
func (m *memoryTransport) DisabledPushFlags() uint64                 { return 0 }
func (m *memoryTransport) PingPongConfig() centrifuge.PingPongConfig { return m.periods }
func (m *memoryTransport) Protocol() centrifuge.ProtocolType         { return centrifuge.ProtocolTypeJSON }
func (m *memoryTransport) ProtocolVersion() centrifuge.ProtocolVersion {
	return centrifuge.ProtocolVersion2
}

// connectMemory returns a connection that centrifuge has accepted, and the frames that follow.
func connectMemory(t testing.TB, node *centrifuge.Node) (*memoryTransport, <-chan string) {
	frames := make(chan string, 1)
	m := dialMemory(t, node, pingPong, func(frame string) { frames <- frame })
	require.True(t, m.send(connectFrame))
	require.Contains(t, <-frames, `"connect":`)
	return m, frames
}

// A ping is never early and at most a tick late. A client that answers is not disconnected.
func TestCentrifugePingsAreOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, frames := connectMemory(t, newNode(t, CentrifugeTimers{newWheel(t)}))
		last := m.connected
		for n := range 20 {
			require.Equal(t, pingFrame, <-frames)
			earliest := pingPong.PingInterval
			if n == 0 { // centrifuge spreads the first pings over half an interval
				earliest /= 2
			}
			require.GreaterOrEqual(t, time.Since(last), earliest)
			require.LessOrEqual(t, time.Since(last), pingPong.PingInterval+tick)
			last = time.Now()
			require.True(t, m.send(pingFrame))
		}
		require.Empty(t, m.closed)
	})
}

func TestCentrifugeDisconnectsClientThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, frames := connectMemory(t, newNode(t, CentrifugeTimers{newWheel(t)}))
		require.Equal(t, pingFrame, <-frames)
		pinged := time.Now()
		require.Equal(t, centrifuge.DisconnectNoPong, <-m.closed)
		require.GreaterOrEqual(t, time.Since(pinged), pingPong.PongTimeout)
		require.LessOrEqual(t, time.Since(pinged), pingPong.PongTimeout+tick)
	})
}

// A connection over which the client sends no command is closed after ClientStaleCloseDelay.
func TestCentrifugeDisconnectsStaleClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t, CentrifugeTimers{newWheel(t)})
		delay := node.Config().ClientStaleCloseDelay
		require.Positive(t, delay)
		m := dialMemory(t, node, pingPong, func(string) {})
		require.Equal(t, centrifuge.DisconnectStale, <-m.closed)
		require.GreaterOrEqual(t, time.Since(m.connected), delay)
		require.LessOrEqual(t, time.Since(m.connected), delay+tick)
	})
}

// A connected client has one timer on the wheel until it is closed.
func TestCentrifugeLeavesNoTimerOfClosedClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := newWheel(t)
		node := newNode(t, CentrifugeTimers{tw})
		clients := make([]*memoryTransport, 10)
		for i := range clients {
			clients[i], _ = connectMemory(t, node)
		}
		require.Equal(t, len(clients), tw.Len())
		for _, m := range clients {
			require.NoError(t, m.close())
			require.Equal(t, centrifuge.DisconnectConnectionClosed, <-m.closed)
		}
		require.Zero(t, tw.Len())
		time.Sleep(time.Hour)
		require.Zero(t, tw.Stats().Fired)
	})
}

// A WebSocket client that answers keeps receiving pings. A client that does not is disconnected.
func TestCentrifugePingsWebSockets(t *testing.T) {
	t.Parallel()
	node := newNode(t, CentrifugeTimers{newWheel(t)})
	disconnected := make(chan centrifuge.Disconnect, 2)
	node.OnConnect(func(c *centrifuge.Client) {
		c.OnDisconnect(func(e centrifuge.DisconnectEvent) { disconnected <- e.Disconnect })
	})
	const interval = 1500 * time.Millisecond
	handler := centrifuge.NewWebsocketHandler(node, centrifuge.WebsocketConfig{
		PingPongConfig: centrifuge.PingPongConfig{PingInterval: interval, PongTimeout: interval - tick},
		CheckOrigin:    func(*http.Request) bool { return true },
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r.WithContext(withUser(r.Context())))
	}))
	defer server.Close()
	connect := func() *websocket.Conn {
		ws, err := websocket.Dial("ws"+strings.TrimPrefix(server.URL, "http"), "", server.URL)
		require.NoError(t, err)
		require.NoError(t, websocket.Message.Send(ws, connectFrame))
		require.Contains(t, receiveFrame(t, ws), `"connect":`)
		return ws
	}
	answering, silent := connect(), connect()
	pings := make(chan struct{}, 10)
	go func() {
		defer close(pings)
		var frame string
		for websocket.Message.Receive(answering, &frame) == nil {
			assert.Equal(t, pingFrame, frame)
			assert.NoError(t, websocket.Message.Send(answering, frame))
			pings <- struct{}{}
		}
	}()
	require.Equal(t, pingFrame, receiveFrame(t, silent))
	require.ErrorIs(t, websocket.Message.Receive(silent, new(string)), io.EOF)
	require.NoError(t, silent.Close()) // otherwise the node waits for it for five seconds
	require.Equal(t, centrifuge.DisconnectNoPong, <-disconnected)
	<-pings
	<-pings
	require.NoError(t, answering.Close())
	require.Equal(t, centrifuge.DisconnectConnectionClosed, <-disconnected)
	for range pings {
	}
}

// receiveFrame returns the next frame.
func receiveFrame(t *testing.T, ws *websocket.Conn) string {
	var frame string
	require.NoError(t, websocket.Message.Receive(ws, &frame))
	return frame
}

func TestCentrifugeTimerFiresUnlessCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timers := CentrifugeTimers{newWheel(t)}
		var cancelled, fired atomic.Int32
		for i := range 1000 {
			d := time.Duration(i-10) * 100 * time.Microsecond // negative ones fire immediately
			due := time.Now().Add(d)
			timers.ScheduleTimer(d, func() {
				fired.Add(1)
				assert.False(t, time.Now().Before(due))
			})
			timers.ScheduleTimer(max(d, time.Microsecond), func() { cancelled.Add(1) }).Cancel()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.EqualValues(t, 1000, fired.Load())
		require.Zero(t, cancelled.Load())
	})
}

// The zero CentrifugeTimers uses the default wheel.
func TestCentrifugeTimersWithoutWheelUseDefault(t *testing.T) {
	done := make(chan struct{})
	var timers CentrifugeTimers
	timers.ScheduleTimer(time.Hour, func() { t.Error("a cancelled timer fired") }).Cancel()
	timers.ScheduleTimer(time.Millisecond, func() { close(done) })
	<-done
}

// centrifugeImpls runs a benchmark with each scheduler. Without a scheduler, centrifuge uses a
// timer of time.AfterFunc for each client.
func centrifugeImpls(b *testing.B, body func(b *testing.B, timers centrifuge.TimerScheduler)) {
	b.Run("impl=std", func(b *testing.B) { body(b, nil) })
	b.Run("impl=wheel", func(b *testing.B) { body(b, CentrifugeTimers{newWheel(b)}) })
}

// BenchmarkCentrifugePing is the CPU time for a ping among 10,000 clients that are pinged
// every 100 ms: two timers that fire, the ping through the client's queue, and the handling of the
// pong. The connections are in memory, because a system call would hide the difference.
func BenchmarkCentrifugePing(b *testing.B) {
	centrifugeImpls(b, func(b *testing.B, timers centrifuge.TimerScheduler) {
		const clients = 10_000
		const interval = 100 * time.Millisecond
		periods := centrifuge.PingPongConfig{PingInterval: interval, PongTimeout: interval / 2}
		node := newNode(b, timers)
		var pings atomic.Int64
		for range clients {
			var m *memoryTransport
			m = dialMemory(b, node, periods, func(frame string) {
				if frame == pingFrame {
					pings.Add(1)
					m.send(pingFrame)
				}
			})
			require.True(b, m.send(connectFrame))
		}
		waitFor := func(n int64) {
			for pings.Load() < n {
				time.Sleep(time.Millisecond)
			}
		}
		waitFor(clients)
		before, used := pings.Load(), processorTime()
		waitFor(before + int64(b.N))
		used = processorTime() - used
		b.ReportMetric(0, "ns/op") // it would be the interval
		b.ReportMetric(float64(used)/float64(pings.Load()-before), "cpu-ns/ping")
	})
}

// BenchmarkCentrifugeRearm re-arms the timer of a random client among 100,000 like centrifuge. With
// a scheduler, centrifuge cancels the timer and schedules another. Without a scheduler, it stops
// and resets the client's timer.
func BenchmarkCentrifugeRearm(b *testing.B) {
	const clients = 100_000
	period := func() time.Duration { return time.Minute + rand.N(25*time.Second) }
	b.Run("impl=std", func(b *testing.B) {
		timers := make([]*time.Timer, clients)
		for i := range timers {
			timers[i] = time.AfterFunc(period(), func() {})
		}
		b.ReportAllocs()
		for b.Loop() {
			t := timers[rand.IntN(clients)]
			t.Stop()
			t.Reset(period())
		}
		for _, t := range timers {
			t.Stop()
		}
	})
	b.Run("impl=wheel", func(b *testing.B) {
		scheduler := CentrifugeTimers{newWheel(b)}
		timers := make([]centrifuge.TimerCanceler, clients)
		callbacks := make([]callback, clients)
		for i := range timers {
			timers[i] = scheduler.ScheduleTimer(period(), callbacks[i].run)
		}
		b.ReportAllocs()
		for b.Loop() {
			i := rand.IntN(clients)
			timers[i].Cancel()
			timers[i] = scheduler.ScheduleTimer(period(), callbacks[i].run)
		}
	})
}

// callback has a method whose method value has to be allocated, like the method of a client.
type callback struct{ ran atomic.Bool }

func (c *callback) run() { c.ran.Store(true) }
