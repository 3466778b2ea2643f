package main

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"time"

	"go.uber.org/atomic"
)

// role is what a client does at the end of its plan.
type role uint8

const (
	stays   role = iota // beats until the end of the run, and then closes its connection
	closes              // closes its connection earlier
	crashes             // resets its connection, as the kernel does if a process dies
	silent              // stops beating and does not close its connection
	roles
)

func (r role) String() string {
	return [roles]string{"stay", "close", "crash", "go silent"}[r]
}

// plan says what one client does, and when.
type plan struct {
	role role
	at   time.Duration // from the time at which all clients are connected
}

// newPlans returns a plan for each connection. The configured percentages give the number of
// clients in each role. The seed gives the order and the times. A client may be late by one
// interval between beats. Silent clients go silent early enough that they are due to be cut before
// the end nevertheless.
func newPlans(cfg config) []plan {
	rng := rand.New(rand.NewPCG(cfg.seed, 0))
	plans := make([]plan, cfg.conns)
	for i := range plans {
		plans[i] = plan{stays, cfg.duration}
	}
	next := 0
	assign := func(r role, percent float64, latest time.Duration) {
		n := int(math.Round(float64(cfg.conns) * percent / 100))
		for ; n > 0 && next < len(plans); n-- {
			plans[next] = plan{r, time.Duration(rng.Int64N(int64(latest) + 1))}
			next++
		}
	}
	assign(silent, cfg.silent, cfg.duration-cfg.timeout-longestInterval(cfg.timeout)-cfg.bound)
	assign(closes, cfg.closing, cfg.duration)
	assign(crashes, cfg.crash, cfg.duration)
	rng.Shuffle(len(plans), func(i, j int) { plans[i], plans[j] = plans[j], plans[i] })
	return plans
}

func countRoles(plans []plan) (n [roles]int) {
	for _, p := range plans {
		n[p.role]++
	}
	return n
}

// longestInterval returns the longest planned time between two beats.
func longestInterval(timeout time.Duration) time.Duration { return timeout / 4 }

// interval returns a random time between two beats. The shortest is a quarter of the longest, so
// that the number of beats is proportional to the number of connections.
func interval(rng *rand.Rand, timeout time.Duration) time.Duration {
	longest := longestInterval(timeout)
	shortest := longest / 4
	return shortest + time.Duration(rng.Int64N(int64(longest-shortest)+1))
}

// clientRecord is what a client has observed, independently of the server.
type clientRecord struct {
	addr       netip.AddrPort // the client's address, which the server knows too; invalid if it never connected
	role       role
	acted      bool // whether the client has carried out its role; false if the run was interrupted before
	beats      int
	lastBeat   time.Time     // before the last beat was sent, or before the client connected
	longestGap time.Duration // between two beats
	cutAt      time.Time     // when the client noticed that the server had cut the connection; zero if it did not
	leftAt     time.Time     // when the client was done
}

// client sends beats until it carries out its role. Its only timers are read deadlines of package
// net, so it shares no timer with the server that it checks.
type client struct {
	cfg     config
	plan    plan
	rng     *rand.Rand
	started *atomic.Time // when all clients were connected; zero until then
	conn    *net.TCPConn
	record  clientRecord
}

func newClient(cfg config, i int, p plan, started *atomic.Time) *client {
	return &client{
		cfg:     cfg,
		plan:    p,
		rng:     rand.New(rand.NewPCG(cfg.seed, uint64(i)+1)),
		started: started,
		record:  clientRecord{role: p.role},
	}
}

func (c *client) connect(to *net.TCPAddr) error {
	c.record.lastBeat = time.Now()
	conn, err := net.DialTCP("tcp", nil, to)
	if err != nil {
		return err
	}
	c.conn = conn
	c.record.addr = addrPort(conn.LocalAddr())
	return nil
}

// run sends beats and carries out the role. It returns early if the server cuts the connection or
// ctx ends. The connection is closed when run returns.
func (c *client) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetReadDeadline(longAgo) })
	defer stop()
	due := c.beatUntilDue(ctx)
	c.recordGap(time.Now())
	if due {
		c.act(ctx)
	}
	c.record.leftAt = time.Now()
	// The address identifies the client. While other clients connect, the kernel must not reuse it.
	for c.started.Load().IsZero() && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	_ = c.conn.Close()
}

// beatUntilDue sends beats until the role is due. It reports whether the role became due before
// the server cut the connection or ctx ended.
func (c *client) beatUntilDue(ctx context.Context) bool {
	for !c.done(ctx) {
		wake, act := c.next()
		c.sleep(ctx, wake)
		switch {
		case c.done(ctx):
		case act:
			return true
		default:
			c.beat()
		}
	}
	return false
}

// done reports whether the server has cut the connection or ctx has ended.
func (c *client) done(ctx context.Context) bool { return ctx.Err() != nil || !c.record.cutAt.IsZero() }

// next returns the time of the next step, and whether that step is to act rather than to beat.
func (c *client) next() (at time.Time, act bool) {
	at = c.record.lastBeat.Add(interval(c.rng, c.cfg.timeout))
	if start := c.started.Load(); !start.IsZero() && start.Add(c.plan.at).Before(at) {
		return start.Add(c.plan.at), true
	}
	return at, false
}

// act carries out the role. A silent client waits to be cut.
func (c *client) act(ctx context.Context) {
	c.record.acted = true
	switch c.plan.role {
	case crashes:
		_ = c.conn.SetLinger(0) // Close sends a reset
	case silent:
		c.beat() // so that the client knows when its idle time began
		c.sleep(ctx, c.record.lastBeat.Add(c.cfg.timeout+c.cfg.bound))
		// The patience is slept in small steps, so that a stall of the machine uses up one step
		// only.
		const step = 50 * time.Millisecond
		for n := c.cfg.patience / step; n > 0 && c.cfg.hasTimeouts() && !c.done(ctx); n-- {
			c.sleep(ctx, time.Now().Add(step))
		}
	}
}

// sleep waits until the time, or until the server cuts the connection or ctx ends.
func (c *client) sleep(ctx context.Context, until time.Time) {
	_ = c.conn.SetReadDeadline(until)
	if ctx.Err() != nil { // the line above may have overwritten the deadline that interrupts the Read
		return
	}
	var b [1]byte
	if _, err := c.conn.Read(b[:]); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.record.cutAt = time.Now()
	}
}

// beat sends a heartbeat. It fails only if the server has closed the connection.
func (c *client) beat() {
	now := time.Now()
	_, err := c.conn.Write([]byte{'.'})
	c.recordGap(time.Now()) // Write included, because the server has the beat only then
	if err != nil {
		c.record.cutAt = time.Now()
		return
	}
	c.record.lastBeat = now
	c.record.beats++
}

func (c *client) recordGap(now time.Time) {
	c.record.longestGap = max(c.record.longestGap, now.Sub(c.record.lastBeat))
}
