package faultproxy

import (
	"bufio"
	"fmt"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// server answers each line with its name and that line, and counts them.
type server struct {
	listener net.Listener
	name     string
	applied  atomic.Int64
}

func newServer(t *testing.T, name string) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &server{listener: l, name: name}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(c)
		}
	}()
	return s
}

func (s *server) serve(c net.Conn) {
	defer c.Close()
	for lines := bufio.NewScanner(c); lines.Scan(); {
		s.applied.Add(1)
		fmt.Fprintf(c, "%s %s\n", s.name, lines.Text())
	}
}

func (s *server) addr() string { return s.listener.Addr().String() }

type client struct {
	net.Conn
	replies *bufio.Reader
}

func dial(t *testing.T, p *Proxy) *client {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return &client{c, bufio.NewReader(c)}
}

func (c *client) send(request string) error {
	_, err := c.Write([]byte(request + "\n"))
	return err
}

func (c *client) ask(request string) (string, error) {
	if err := c.send(request); err != nil {
		return "", err
	}
	line, err := c.replies.ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err
}

// connections returns the number of open connections.
func connections(p *Proxy) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

func TestProxyForwardsRequestsAndReplies(t *testing.T) {
	t.Parallel()
	s := newServer(t, "a")
	p := Start(t, s.addr())
	var wg sync.WaitGroup
	for range 4 {
		c := dial(t, p)
		wg.Go(func() {
			for i := range 50 {
				got, err := c.ask(fmt.Sprint("r", i))
				assert.NoError(t, err)
				assert.Equal(t, fmt.Sprint("a r", i), got)
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 200, s.applied.Load())
	assert.Equal(t, 4, connections(p))
	assert.Zero(t, p.Dropped())
}

func TestProxyForwardsLongRequestsWhole(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err == nil {
			defer c.Close()
			line, _ := bufio.NewReader(c).ReadString('\n')
			fmt.Fprintln(c, len(line), strings.Count(line, "x"))
		}
	}()
	got, err := dial(t, Start(t, l.Addr().String())).ask(strings.Repeat("x", 1<<20))
	require.NoError(t, err)
	assert.Equal(t, "1048577 1048576", got)
}

func TestDropLosesRepliesAndNoRequests(t *testing.T) {
	t.Parallel()
	s := newServer(t, "a")
	p := Start(t, s.addr())
	bystander := dial(t, p)
	_, err := bystander.ask("hello")
	require.NoError(t, err)
	p.Drop("", 1, 2)
	for range 2 {
		_, err := dial(t, p).ask("lost")
		require.Error(t, err)
	}
	assert.EqualValues(t, 3, s.applied.Load(), "the server has executed the requests")
	assert.Equal(t, 2, p.Dropped())
	for _, c := range []*client{bystander, dial(t, p)} {
		got, err := c.ask("again")
		require.NoError(t, err)
		assert.Equal(t, "a again", got)
	}
	p.Drop("", 1, 5)
	p.Drop("", 1, 0)
	_, err = bystander.ask("kept")
	require.NoError(t, err)
}

func TestDropLosesAShareOfReplies(t *testing.T) {
	t.Parallel()
	s := newServer(t, "a")
	p := Start(t, s.addr())
	p.Drop("", 0.5, math.MaxInt)
	lost := 0
	const tries = 200
	for range tries {
		if _, err := dial(t, p).ask("x"); err != nil {
			lost++
		}
	}
	assert.EqualValues(t, tries, s.applied.Load())
	assert.Equal(t, lost, p.Dropped())
	assert.True(t, 50 < lost && lost < 150, "%d of %d are lost", lost, tries)
	p.Drop("", 1, math.MaxInt)
	_, err := dial(t, p).ask("x")
	require.Error(t, err)
	p.Drop("", 0, math.MaxInt)
	_, err = dial(t, p).ask("x")
	require.NoError(t, err)
}

func TestPatternRestrictsDroppedReplies(t *testing.T) {
	t.Parallel()
	s := newServer(t, "a")
	p := Start(t, s.addr())
	p.Drop("EVAL", 1, math.MaxInt)
	c := dial(t, p)
	for range 3 {
		_, err := c.ask("HELLO 3")
		require.NoError(t, err)
	}
	_, err := c.ask("an EVALSHA of it")
	require.Error(t, err)
	assert.Equal(t, 1, p.Dropped())
	assert.EqualValues(t, 4, s.applied.Load())

	c = dial(t, p) // the pattern comes in two parts
	_, err = c.Write([]byte("EV"))
	require.NoError(t, err)
	time.Sleep(20 * time.Millisecond)
	_, err = c.ask("AL")
	require.Error(t, err)
	assert.Equal(t, 2, p.Dropped())
	p.Drop("", 1, 1)
	_, err = dial(t, p).ask("anything")
	require.Error(t, err)
}

func TestStallDelaysDataUntilResume(t *testing.T) {
	t.Parallel()
	s := newServer(t, "a")
	p := Start(t, s.addr())
	c := dial(t, p)
	p.Stall()
	p.Stall()
	require.NoError(t, c.send("late"))
	require.NoError(t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err := c.replies.ReadString('\n')
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	assert.True(t, timeout.Timeout(), "the connection stays open")
	assert.Zero(t, s.applied.Load())
	p.Resume()
	p.Resume()
	require.NoError(t, c.SetReadDeadline(time.Time{}))
	got, err := c.replies.ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "a late\n", got)
}

func TestRefuseClosesNewConnectionsOnly(t *testing.T) {
	t.Parallel()
	p := Start(t, newServer(t, "a").addr())
	c := dial(t, p)
	_, err := c.ask("x")
	require.NoError(t, err)
	p.Refuse(true)
	_, err = c.ask("open ones stay")
	require.NoError(t, err)
	_, err = dial(t, p).ask("x")
	require.Error(t, err)
	p.CutAll()
	_, err = c.ask("x")
	require.Error(t, err)
	p.Refuse(false)
	_, err = dial(t, p).ask("x")
	require.NoError(t, err)
}

func TestUnreachableTargetClosesTheConnection(t *testing.T) {
	t.Parallel()
	s := newServer(t, "a")
	s.listener.Close()
	p := Start(t, s.addr())
	_, err := dial(t, p).ask("x")
	require.Error(t, err)
}

func TestCloseEndsAStall(t *testing.T) {
	t.Parallel()
	p := Start(t, newServer(t, "a").addr())
	c := dial(t, p)
	_, err := c.ask("x")
	require.NoError(t, err)
	p.Stall()
	require.NoError(t, c.send("x"))
	p.Close()
	p.Close()
	p.Stall() // of no effect
	_, err = c.ask("x")
	require.Error(t, err)
	assert.Zero(t, connections(p))
}

// A held request arrives when it is released, although its client is gone and other requests have
// passed.
func TestHeldRequestArrivesOnRelease(t *testing.T) {
	t.Parallel()
	s := newServer(t, "s")
	p := Start(t, s.addr())
	p.Hold("late")
	early := dial(t, p)
	_, err := fmt.Fprintln(early, "early")
	require.NoError(t, err)
	_, err = early.replies.ReadString('\n')
	require.NoError(t, err, "the request does not contain the pattern")
	late := dial(t, p)
	_, err = fmt.Fprintln(late, "too late")
	require.NoError(t, err)
	_, err = late.replies.ReadString('\n')
	require.Error(t, err, "its connection is closed")
	require.True(t, p.Held())
	_, err = fmt.Fprintln(early, "late as well")
	require.NoError(t, err)
	_, err = early.replies.ReadString('\n')
	require.NoError(t, err, "only one request is held")
	require.EqualValues(t, 2, s.applied.Load())
	reply, err := p.Release()
	require.NoError(t, err)
	require.Equal(t, "s too late\n", reply)
	require.False(t, p.Held())
	require.EqualValues(t, 3, s.applied.Load())
	p.Hold("never")
	_, _ = fmt.Fprintln(early, "never")
	_, err = early.replies.ReadString('\n')
	require.Error(t, err)
	p.Close()
	require.EqualValues(t, 3, s.applied.Load(), "a request that is not released does not arrive")
}
