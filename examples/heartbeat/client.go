package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"time"

	"go.uber.org/atomic"
)

// account is what a client knows at its end; the server has no part in it.
type account struct {
	addr       netip.AddrPort // its own address, by which the server knows it; invalid if it never connected
	fate       fate
	acted      bool // carried out its fate; a run that is interrupted ends without
	beats      int
	lastBeat   time.Time // the moment before it was sent, or before the connection was made
	longestGap time.Duration
	cutAt      time.Time // when it saw that the server had cut it; zero: it saw nothing
	leftAt     time.Time // when it was done
}

// client beats until its plan says otherwise. It measures time with package time only, by the read
// deadlines of its connection: it shares no timer with the server that it checks.
type client struct {
	cfg     config
	plan    plan
	rng     *rand.Rand
	started *atomic.Time // when all were connected; zero until then
	conn    *net.TCPConn
	account account
}

func newClient(cfg config, i int, p plan, started *atomic.Time) *client {
	return &client{
		cfg:     cfg,
		plan:    p,
		rng:     rand.New(rand.NewPCG(cfg.seed, uint64(i)+1)),
		started: started,
		account: account{fate: p.fate},
	}
}

func (c *client) connect(to *net.TCPAddr) error {
	c.account.lastBeat = time.Now()
	conn, err := net.DialTCP("tcp", nil, to)
	if err != nil {
		return err
	}
	c.conn = conn
	c.account.addr = addrPort(conn.LocalAddr())
	return nil
}

// run plays the client's part until it has left or was cut, or until ctx ends: then it closes.
func (c *client) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetReadDeadline(longAgo) })
	defer stop()
	act := c.live(ctx)
	c.noteGap(time.Now())
	if act {
		c.act(ctx)
	}
	c.account.leftAt = time.Now()
	// Its address stands for the client: as long as others connect it must not become one of
	// theirs.
	for c.started.Load().IsZero() && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	_ = c.conn.Close()
}

// live beats until the time to act has come, and reports whether it has: false if the server cut
// the connection or ctx ended.
func (c *client) live(ctx context.Context) bool {
	for !c.over(ctx) {
		wake, act := c.next()
		c.sleep(ctx, wake)
		switch {
		case c.over(ctx):
		case act:
			return true
		default:
			c.beat()
		}
	}
	return false
}

// over reports whether the client has nothing more to do.
func (c *client) over(ctx context.Context) bool { return ctx.Err() != nil || !c.account.cutAt.IsZero() }

// next returns when the client has something to do, and whether that is to act rather than to beat.
func (c *client) next() (at time.Time, act bool) {
	at = c.account.lastBeat.Add(interval(c.rng, c.cfg.timeout))
	if start := c.started.Load(); !start.IsZero() && start.Add(c.plan.at).Before(at) {
		return start.Add(c.plan.at), true
	}
	return at, false
}

// act carries out the client's fate.
func (c *client) act(ctx context.Context) {
	c.account.acted = true
	switch c.plan.fate {
	case crashes:
		_ = c.conn.SetLinger(0) // closing then sends a reset
	case silent:
		c.beat() // so that it knows when its idle time began
		c.sleep(ctx, c.account.lastBeat.Add(c.cfg.timeout+c.cfg.bound))
		// In small steps: a machine that stands still must not use up all of the server's time at
		// once.
		const step = 50 * time.Millisecond
		for n := c.cfg.patience / step; n > 0 && c.cfg.cuts() && !c.over(ctx); n-- {
			c.sleep(ctx, time.Now().Add(step))
		}
	}
}

// sleep waits until then, or until the server cuts the connection, or ctx ends.
func (c *client) sleep(ctx context.Context, until time.Time) {
	_ = c.conn.SetReadDeadline(until)
	if ctx.Err() != nil { // its wake-up may have come before the line above
		return
	}
	var b [1]byte
	if _, err := c.conn.Read(b[:]); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.account.cutAt = time.Now()
	}
}

// beat sends a beat. It fails only if the server has closed the connection.
func (c *client) beat() {
	now := time.Now()
	c.noteGap(now)
	if _, err := c.conn.Write([]byte{'.'}); err != nil {
		c.account.cutAt = time.Now()
		return
	}
	c.account.lastBeat = now
	c.account.beats++
}

func (c *client) noteGap(now time.Time) {
	c.account.longestGap = max(c.account.longestGap, now.Sub(c.account.lastBeat))
}
