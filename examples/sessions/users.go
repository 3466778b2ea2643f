package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"go.uber.org/atomic"
	"golang.org/x/time/rate"

	"github.com/timingwheel-go/timingwheel/examples/internal/fault"
)

// kind is what a user does.
type kind int

const (
	active  kind = iota // until the session's lifetime is over
	leaves              // sends some requests and goes away
	logsOut             // sends some requests and logs out
	hammers             // sends far too many, until the lifetime is over
	kinds
)

func (k kind) String() string {
	return [...]string{"active", "goes away", "logs out", "hammers"}[k]
}

// limitOf is a time in seconds, as rates are in requests per second.
func limitOf(d time.Duration) rate.Limit { return rate.Limit(d.Seconds()) }

// user is one session from its user's point of view. What happens at the server lies between two
// readings of the user's clock.
type user struct {
	name string
	kind kind
	id   string

	before, after time.Time // around the login
	lastBefore    time.Time // before the last request that was accepted, or the login
	lastAfter     time.Time // after that
	accepted      int
	refused       int
	left          bool // logged out with success

	ends    atomic.Int32
	ending  atomic.Int32
	endedAt atomic.Time
}

// crowd is all of them.
type crowd struct {
	cfg    config
	store  *Store
	faults fault.List
	users  []*user
	byName map[string]*user
}

func newCrowd(cfg config) *crowd {
	c := &crowd{cfg: cfg, byName: make(map[string]*user, cfg.users)}
	for i := range cfg.users {
		u := &user{name: fmt.Sprint("user ", i), kind: kind(i % int(kinds))}
		c.users = append(c.users, u)
		c.byName[u.name] = u
	}
	return c
}

// noteEnd is called by the store.
func (c *crowd) noteEnd(_, name string, e Ending) {
	u := c.byName[name]
	u.ending.Store(int32(e))
	u.endedAt.Store(time.Now())
	c.faults.Check(u.ends.Inc() == 1, "%s: the session has ended twice", name)
}

// play lets the users loose on the store, and returns when all have gone.
func (c *crowd) play(ctx context.Context) {
	var users sync.WaitGroup
	for i, u := range c.users {
		rng := rand.New(rand.NewPCG(c.cfg.seed, uint64(i)))
		users.Go(func() {
			sleep(ctx, time.Duration(rng.Int64N(int64(c.cfg.limits.Idle)))) // else all come at once
			c.visit(ctx, u, rng)
		})
	}
	users.Wait()
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// visit is all that a user does.
func (c *crowd) visit(ctx context.Context, u *user, rng *rand.Rand) {
	u.before = time.Now()
	u.id = c.store.Login(u.name)
	u.after = time.Now()
	u.lastBefore, u.lastAfter = u.before, u.after
	pause := c.cfg.limits.Idle / 6
	if u.kind == hammers {
		pause = time.Second / time.Duration(8*c.cfg.limits.Rate)
	}
	requests := 3 + rng.IntN(6)
	for i := 0; ctx.Err() == nil; i++ {
		if i == requests && u.kind == leaves {
			return
		}
		if i == requests && u.kind == logsOut {
			u.left = c.store.Logout(u.id)
			return
		}
		if !c.request(u) {
			return // the session has ended
		}
		sleep(ctx, pause/2+time.Duration(rng.Int64N(int64(pause))))
	}
}

// request sends one request and reports whether there is a session still.
func (c *crowd) request(u *user) bool {
	limits := c.cfg.limits
	before := time.Now()
	name, err := c.store.Request(u.id)
	after := time.Now()
	mayLive := before.Sub(u.lastAfter) < limits.Idle && before.Sub(u.after) < limits.Lifetime
	mustLive := after.Sub(u.lastBefore) < limits.Idle && after.Sub(u.before) < limits.Lifetime
	switch {
	case errors.Is(err, ErrNoSession):
		c.faults.Check(!mustLive, "%s: no session %v after the last request, %v after login", u.name, after.Sub(u.lastBefore), after.Sub(u.before))
		return false
	case !mayLive:
		c.faults.Add("%s: has a session %v after the last request, %v after login", u.name, before.Sub(u.lastAfter), before.Sub(u.after))
	case errors.Is(err, ErrTooMany):
		u.refused++
		return true
	case err != nil || name != u.name:
		c.faults.Add("%s: was taken for %q, %v", u.name, name, err)
	}
	u.accepted++
	u.lastBefore, u.lastAfter = before, after
	return true
}

// judge checks how a session has ended. What the machine has held up may have ended otherwise than
// its user meant, but never before its time.
func (c *crowd) judge(u *user) {
	if u.id == "" {
		return // interrupted before the login
	}
	limits, ending, at := c.cfg.limits, Ending(u.ending.Load()), u.endedAt.Load()
	if u.ends.Load() != 1 {
		c.faults.Add("%s: the session has ended %d times", u.name, u.ends.Load())
		return
	}
	switch ending {
	case Idle:
		c.faults.Check(at.Sub(u.lastBefore) >= limits.Idle, "%s: idle after %v", u.name, at.Sub(u.lastBefore))
	case Lifetime:
		c.faults.Check(at.Sub(u.before) >= limits.Lifetime, "%s: over after %v", u.name, at.Sub(u.before))
		c.faults.Check(u.lastAfter.Sub(u.before) >= limits.Lifetime-limits.Idle, "%s: its lifetime was over, but it was idle before", u.name)
	}
	c.faults.Check(u.left == (ending == Logout), "%s: logged out: %t, but it ended: %v", u.name, u.left, ending)
	most := float64(limits.Burst) + float64(limits.Rate)*u.lastAfter.Sub(u.before).Seconds()
	c.faults.Check(float64(u.accepted) <= most+1e-6, "%s: %d requests were accepted where the rate allows %.1f", u.name, u.accepted, most)
}
