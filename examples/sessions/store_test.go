package main

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
)

// manualStore is a store on a wheel in Manual mode.
type manualStore struct {
	*Store
	tw    *timingwheel.TimingWheel
	ended []string
}

var limits = Limits{Idle: 30 * time.Minute, Lifetime: 8 * time.Hour, Rate: 1, Burst: 3}

func newManualStore(t *testing.T, l Limits) *manualStore {
	t.Helper()
	tw, err := timingwheel.New(timingwheel.Options{Manual: true})
	require.NoError(t, err)
	t.Cleanup(tw.Stop)
	c := &manualStore{tw: tw}
	c.Store, err = NewStore(tw, l, func(_, user string, e Ending) { c.ended = append(c.ended, user+": "+e.String()) })
	require.NoError(t, err)
	return c
}

func (c *manualStore) advance(d time.Duration) { c.tw.Advance(c.tw.Now().Add(d)) }

func TestRequestsPostponeTheEnd(t *testing.T) {
	t.Parallel()
	c := newManualStore(t, limits)
	id := c.Login("ann")
	for range 10 {
		c.advance(29 * time.Minute)
		user, err := c.Request(id)
		require.NoError(t, err)
		assert.Equal(t, "ann", user)
		assert.Equal(t, 1, c.tw.Len(), "timers of the session")
	}
	c.advance(30*time.Minute - 1)
	assert.Equal(t, 1, c.Len())
	c.advance(time.Millisecond) // the tick after the deadline
	assert.Equal(t, []string{"ann: idle"}, c.ended)
	_, err := c.Request(id)
	assert.ErrorIs(t, err, ErrNoSession)
	assert.False(t, c.Logout(id))
	assert.Zero(t, c.Len())
	assert.Zero(t, c.tw.Len())
}

func TestSessionEndsAfterItsLifetime(t *testing.T) {
	t.Parallel()
	c := newManualStore(t, limits)
	id := c.Login("ann")
	for passed := time.Duration(0); passed < 8*time.Hour; passed += 20 * time.Minute {
		_, err := c.Request(id)
		require.NoError(t, err, passed)
		c.advance(20 * time.Minute)
	}
	c.advance(time.Millisecond)
	assert.Equal(t, []string{"ann: lifetime"}, c.ended)
	_, err := c.Request(id)
	assert.ErrorIs(t, err, ErrNoSession)
}

func TestLogoutEndsASessionOnce(t *testing.T) {
	t.Parallel()
	c := newManualStore(t, limits)
	ann, bob := c.Login("ann"), c.Login("bob")
	assert.NotEqual(t, ann, bob)
	assert.True(t, c.Logout(ann))
	assert.False(t, c.Logout(ann))
	assert.False(t, c.Logout("unknown"))
	_, err := c.Request(ann)
	assert.ErrorIs(t, err, ErrNoSession)
	_, err = c.Request(bob)
	assert.NoError(t, err)
	assert.Equal(t, 1, c.tw.Len())
	c.advance(9 * time.Hour)
	assert.Equal(t, []string{"ann: logout", "bob: idle"}, c.ended)
}

func TestRateIsLimited(t *testing.T) {
	t.Parallel()
	c := newManualStore(t, limits)
	id, other := c.Login("ann"), c.Login("bob")
	request := func(id string) error {
		_, err := c.Request(id)
		return err
	}
	for range 3 {
		assert.NoError(t, request(id))
	}
	assert.ErrorIs(t, request(id), ErrTooMany)
	assert.NoError(t, request(other), "the rate of another session")
	c.advance(time.Second)
	assert.NoError(t, request(id))
	assert.ErrorIs(t, request(id), ErrTooMany)
}

func TestRequestsOverTheRateDoNotKeepASessionAlive(t *testing.T) {
	t.Parallel()
	l := limits
	l.Rate = 1e-9
	c := newManualStore(t, l)
	id := c.Login("ann")
	for range 3 {
		_, err := c.Request(id)
		require.NoError(t, err)
	}
	for range 30 {
		_, err := c.Request(id)
		require.ErrorIs(t, err, ErrTooMany)
		c.advance(time.Minute)
	}
	c.advance(time.Millisecond)
	assert.Equal(t, []string{"ann: idle"}, c.ended)
}

// A timer that fires late, or that was claimed when a request moved the deadline, does not end a
// live session and does not keep an expired one alive.
func TestDeadlineDecidesAndNotTheTimer(t *testing.T) {
	t.Parallel()
	c := newManualStore(t, limits)
	id := c.Login("ann")
	s := c.lookup(id)
	c.advance(time.Minute)
	_, err := c.Request(id)
	require.NoError(t, err)
	s.timer.Stop() // stands for a claimed timer, which cannot be postponed
	c.expire(s)
	assert.Empty(t, c.ended)
	assert.Equal(t, 1, c.tw.Len(), "a new timer after the fired one")
	_, err = c.Request(id)
	assert.NoError(t, err)

	s.timer.Stop()
	c.advance(time.Hour)
	_, err = c.Request(id)
	assert.ErrorIs(t, err, ErrNoSession, "a request after the deadline")
	assert.False(t, c.Logout(id))
	assert.Empty(t, c.ended)
	c.expire(s)
	c.expire(s)
	assert.Equal(t, []string{"ann: idle"}, c.ended)
}

func TestCloseEndsAllSessions(t *testing.T) {
	t.Parallel()
	c := newManualStore(t, limits)
	for range 5 {
		c.Login("ann")
	}
	assert.Equal(t, 5, c.Close())
	assert.Zero(t, c.Close())
	assert.Zero(t, c.tw.Len())
	assert.Len(t, c.ended, 5)
}

// Close ends every session that Len counts, even if its Login has not returned.
func TestCloseDuringLogin(t *testing.T) {
	t.Parallel()
	for range 5000 {
		c := newManualStore(t, limits)
		var login sync.WaitGroup
		login.Go(func() { c.Login("ann") })
		for c.Len() == 0 {
			runtime.Gosched()
		}
		require.Equal(t, 1, c.Close())
		login.Wait()
		require.Zero(t, c.Len())
		require.Zero(t, c.tw.Len())
		c.tw.Stop()
	}
}

// Requests, logouts and expiry race. Exactly one logout or expiry ends the session.
func TestSessionEndsOnceUnderContention(t *testing.T) {
	t.Parallel()
	tw, err := timingwheel.New(timingwheel.Options{})
	require.NoError(t, err)
	defer tw.Stop()
	var mu sync.Mutex
	ends := make(map[string]int)
	st, err := NewStore(tw, Limits{Idle: 3 * time.Millisecond, Lifetime: 20 * time.Millisecond, Rate: 1e9, Burst: 1e9}, func(id, _ string, _ Ending) {
		mu.Lock()
		defer mu.Unlock()
		ends[id]++
	})
	require.NoError(t, err)
	var users sync.WaitGroup
	for i := range 200 {
		id := st.Login("ann")
		users.Go(func() {
			for n := 0; ; n++ {
				if _, err := st.Request(id); err != nil {
					assert.ErrorIs(t, err, ErrNoSession)
					return
				}
				if n > i && i%2 == 0 {
					st.Logout(id)
				}
				time.Sleep(time.Duration(i%5) * time.Millisecond)
			}
		})
	}
	users.Wait()
	assert.Eventually(t, func() bool { return st.Len() == 0 && tw.Len() == 0 }, time.Minute, time.Millisecond)
	require.NoError(t, tw.Shutdown(t.Context()))
	assert.Len(t, ends, 200)
	for id, n := range ends {
		assert.Equal(t, 1, n, id)
	}
}

func TestOnEndMayBeNil(t *testing.T) {
	t.Parallel()
	tw, err := timingwheel.New(timingwheel.Options{Manual: true})
	require.NoError(t, err)
	defer tw.Stop()
	st, err := NewStore(tw, limits, nil)
	require.NoError(t, err)
	assert.True(t, st.Logout(st.Login("ann")))
	st.Login("bob")
	tw.Advance(tw.Now().Add(time.Hour))
	assert.Zero(t, st.Len())
}

func TestBadLimitsAreRefused(t *testing.T) {
	t.Parallel()
	for want, l := range map[string]Limits{
		"Idle is 0s":      {Lifetime: 1, Rate: 1, Burst: 1},
		"Lifetime is 1ns": {Idle: 2, Lifetime: 1, Rate: 1, Burst: 1},
		"Rate is 0":       {Idle: 2, Lifetime: 2, Burst: 1},
		"Burst is -1":     {Idle: 2, Lifetime: 2, Rate: 1, Burst: -1},
	} {
		_, err := NewStore(nil, l, nil)
		assert.ErrorContains(t, err, want)
	}
}
