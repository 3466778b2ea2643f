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

// kind is the behaviour of a user.
type kind int

const (
	active  kind = iota // sends requests until the lifetime ends
	leaves              // sends some requests and leaves
	logsOut             // sends some requests and logs out
	floods              // sends too many requests, until the lifetime ends
	kinds
)

func (k kind) String() string {
	return [...]string{"active", "leaves", "logs out", "floods"}[k]
}

// inSeconds returns a duration in seconds, the unit of rates.
func inSeconds(d time.Duration) rate.Limit { return rate.Limit(d.Seconds()) }

// user is one session as its user sees it. An event at the server happens between two clock
// readings of the user.
type user struct {
	name string
	kind kind
	id   string

	before, after time.Time // clock readings around the login
	lastBefore    time.Time // clock reading before the last accepted request or the login
	lastAfter     time.Time // clock reading after it
	accepted      int
	refused       int
	left          bool // Logout returned true

	ends    atomic.Int32
	ending  atomic.Int32
	endedAt atomic.Time
}

// users are all users and their store.
type users struct {
	cfg    config
	store  *Store
	faults fault.List
	all    []*user
	byName map[string]*user
}

func newUsers(cfg config) *users {
	c := &users{cfg: cfg, byName: make(map[string]*user, cfg.users)}
	for i := range cfg.users {
		u := &user{name: fmt.Sprint("user ", i), kind: kind(i % int(kinds))}
		c.all = append(c.all, u)
		c.byName[u.name] = u
	}
	return c
}

// recordEnd is called by the store.
func (c *users) recordEnd(_, name string, e Ending) {
	u := c.byName[name]
	u.ending.Store(int32(e))
	u.endedAt.Store(time.Now())
	c.faults.Check(u.ends.Inc() == 1, "%s: the session has ended twice", name)
}

// run runs all users and returns when they have left.
func (c *users) run(ctx context.Context) {
	var running sync.WaitGroup
	for i, u := range c.all {
		rng := rand.New(rand.NewPCG(c.cfg.seed, uint64(i)))
		running.Go(func() {
			// So that the logins are spread over time.
			sleep(ctx, time.Duration(rng.Int64N(int64(c.cfg.limits.Idle))))
			c.visit(ctx, u, rng)
		})
	}
	running.Wait()
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// visit is the whole session of a user.
func (c *users) visit(ctx context.Context, u *user, rng *rand.Rand) {
	u.before = time.Now()
	u.id = c.store.Login(u.name)
	u.after = time.Now()
	u.lastBefore, u.lastAfter = u.before, u.after
	pause := c.cfg.limits.Idle / 6
	if u.kind == floods {
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

// request sends one request and reports whether the session still exists.
func (c *users) request(u *user) bool {
	limits := c.cfg.limits
	before := time.Now()
	name, err := c.store.Request(u.id)
	after := time.Now()
	mayExist := before.Sub(u.lastAfter) < limits.Idle && before.Sub(u.after) < limits.Lifetime
	mustExist := after.Sub(u.lastBefore) < limits.Idle && after.Sub(u.before) < limits.Lifetime
	switch {
	case errors.Is(err, ErrNoSession):
		c.faults.Check(!mustExist, "%s: no session %v after the last request, %v after login", u.name, after.Sub(u.lastBefore), after.Sub(u.before))
		return false
	case !mayExist:
		c.faults.Add("%s: has a session %v after the last request, %v after login", u.name, before.Sub(u.lastAfter), before.Sub(u.after))
	case errors.Is(err, ErrTooMany):
		u.refused++
		return true
	case err != nil || name != u.name:
		c.faults.Add("%s: the store returned user %q, error %v", u.name, name, err)
	}
	u.accepted++
	u.lastBefore, u.lastAfter = before, after
	return true
}

// check checks the end of a session. On a slow machine a session may end for another reason than
// its user intended, but never early.
func (c *users) check(u *user) {
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
		c.faults.Check(at.Sub(u.before) >= limits.Lifetime, "%s: lifetime ended after %v", u.name, at.Sub(u.before))
		c.faults.Check(u.lastAfter.Sub(u.before) >= limits.Lifetime-limits.Idle, "%s: lifetime ended, but it was idle before", u.name)
	}
	c.faults.Check(u.left == (ending == Logout), "%s: logged out: %t, but ended by %v", u.name, u.left, ending)
	most := float64(limits.Burst) + float64(limits.Rate)*u.lastAfter.Sub(u.before).Seconds()
	c.faults.Check(float64(u.accepted) <= most+1e-6, "%s: %d requests were accepted, but the rate allows %.1f", u.name, u.accepted, most)
}
