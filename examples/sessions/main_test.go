package main

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/examples/internal/option"
	"github.com/timingwheel-go/timingwheel/examples/internal/programtest"
)

func TestRunFindsNoFault(t *testing.T) {
	t.Parallel()
	cfg := defaults()
	cfg.users = 200
	cfg.limits = Limits{Idle: 250 * time.Millisecond, Lifetime: 750 * time.Millisecond, Rate: 60, Burst: 10}
	var out bytes.Buffer
	assert.NoError(t, run(t.Context(), cfg, &out))
	assert.Contains(t, out.String(), "PASS")
}

// In a synctest bubble no user is delayed, so each session ends for the expected reason.
func TestEveryKindOfUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := defaults()
		cfg.users = 20
		cfg.limits = Limits{Idle: time.Minute, Lifetime: 10 * time.Minute, Rate: 1, Burst: 10}
		tw, err := timingwheel.New(timingwheel.Options{})
		require.NoError(t, err)
		defer tw.Stop()
		c := newUsers(cfg)
		c.store, err = NewStore(tw, cfg.limits, c.recordEnd)
		require.NoError(t, err)
		c.run(t.Context())
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		for _, u := range c.all {
			c.check(u)
			assert.Equal(t, map[kind]Ending{active: Lifetime, leaves: Idle, logsOut: Logout, floods: Lifetime}[u.kind], Ending(u.ending.Load()), u.kind)
			assert.Equal(t, u.kind == floods, u.refused > 0, u.kind)
		}
		assert.NoError(t, c.faults.Err())
		assert.Zero(t, tw.Len())
	})
}

func TestInterruptEndsTheRun(t *testing.T) {
	t.Parallel()
	cfg := defaults()
	cfg.limits.Idle, cfg.limits.Lifetime = 100*time.Millisecond, time.Hour
	cfg.users = 50
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	var out bytes.Buffer
	assert.NoError(t, run(ctx, cfg, &out))
	assert.Contains(t, out.String(), "interrupted")
}

func TestCheckFindsEachFault(t *testing.T) {
	t.Parallel()
	base := time.Unix(0, 0)
	at := func(minutes float64) time.Time { return base.Add(time.Duration(minutes * float64(time.Minute))) }
	for want, change := range map[string]func(*user){
		"":                     func(*user) {},
		"ended 0 times":        func(u *user) { u.ends.Store(0) },
		"ended 2 times":        func(u *user) { u.ends.Store(2) },
		"idle after 29m":       func(u *user) { u.endedAt.Store(at(39)) },
		"lifetime ended after": func(u *user) { u.ending.Store(int32(Lifetime)) },
		"was idle before":      func(u *user) { u.ending.Store(int32(Lifetime)); u.endedAt.Store(at(600)) },
		"logged out: true":     func(u *user) { u.left = true },
		"logged out: false":    func(u *user) { u.ending.Store(int32(Logout)) },
		"the rate allows ":     func(u *user) { u.accepted = 1000 },
	} {
		c := newUsers(config{users: 1, limits: limits})
		u := c.all[0]
		u.id, u.before, u.after, u.lastBefore, u.lastAfter, u.accepted = "x", at(0), at(0), at(10), at(10), 100
		u.ends.Store(1)
		u.ending.Store(int32(Idle))
		u.endedAt.Store(at(40))
		change(u)
		c.check(u)
		if want == "" {
			assert.NoError(t, c.faults.Err())
		} else {
			assert.ErrorContains(t, c.faults.Err(), want)
		}
	}
}

func TestUsersFindAStoreWithWrongLimits(t *testing.T) {
	for want, wrong := range map[string]Limits{
		"no session":    {Idle: 5 * time.Second, Lifetime: time.Hour, Rate: 1, Burst: 10},
		"has a session": {Idle: time.Minute, Lifetime: 2 * time.Hour, Rate: 1, Burst: 10},
	} {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := defaults()
				cfg.users = 1
				cfg.limits = Limits{Idle: time.Minute, Lifetime: time.Hour, Rate: 1, Burst: 10}
				tw, err := timingwheel.New(timingwheel.Options{})
				require.NoError(t, err)
				defer tw.Stop()
				c := newUsers(cfg)
				c.store, err = NewStore(tw, wrong, c.recordEnd)
				require.NoError(t, err)
				c.run(t.Context())
				time.Sleep(3 * time.Hour)
				synctest.Wait()
				assert.ErrorContains(t, c.faults.Err(), want)
			})
		})
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	t.Parallel()
	programtest.Helps(t, sessions, []string{"users", "idle", "lifetime", "burst", "seed"})
	programtest.Refuses(t, sessions, option.ExitUsage, []programtest.Refusal{
		{Args: []string{"-users", "0"}, Want: []string{`"0"`, "-users", "from 1 to 1000000"}},
		{Args: []string{"-idle", "1h1m"}, Want: []string{`"1h1m"`, "-idle", "from 50ms to 1h"}},
		{Args: []string{"-idle", "1s"}, Want: []string{"-lifetime is 2s", "at least 3s"}},
	})
}
