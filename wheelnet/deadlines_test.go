package wheelnet

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/clock"
)

// verify checks the invariants while no call is under way.
func (c *deadlines) verify(t testing.TB) {
	t.Helper()
	require.NoError(t, c.broken())
}

// broken returns an error that names an invariant that does not hold.
func (c *deadlines) broken() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if armed := c.timer != (timingwheel.Timer{}); armed != (c.armed != noDeadline) {
		return fmt.Errorf("armed for %d, with a timer: %v", c.armed, armed)
	}
	for i := range c.directions {
		d := &c.directions[i]
		gate, at := d.gate.Load(), d.deadline.Load()
		open := !c.closed && !c.delegated && !c.expired[i]
		switch {
		case !open && gate != gateShut:
			return fmt.Errorf("N3: direction %d: the gate is %d", i, gate)
		case open && gate == gateShut:
			return fmt.Errorf("direction %d: the gate is shut although the direction is open", i)
		case open && gate != noDeadline && c.armed > gate:
			return fmt.Errorf("N1: direction %d: armed for %d, the gate is %d", i, c.armed, gate)
		case open && at != noDeadline && at < gate:
			return fmt.Errorf("direction %d: the timer for %d does not cover the deadline %d", i, gate, at)
		}
	}
	return nil
}

// Random calls and pauses agree with a model: a direction expires at its deadline, at most one tick
// late and never early.
func TestDirectionsExpireAtTheirDeadlinesAsInModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			tw := newWheel(t, timingwheel.Options{})
			c, r := newRecorded(tw)
			rng := rand.New(rand.NewPCG(seed, 0))
			var want [2]time.Time
			stopped := false
			for range 300 {
				var at time.Time
				switch rng.IntN(8) {
				case 0: // no deadline
				case 1:
					at = time.Unix(1, 0)
				case 2:
					at = time.Now().Add(time.Duration(rng.Int64N(int64(200*time.Hour))) - 100*time.Hour)
				case 3:
					at = time.Now().Round(0).Add(time.Duration(rng.Int64N(int64(5 * tick)))) // by the wall clock
				default:
					at = time.Now().Add(time.Duration(rng.Int64N(int64(50*tick))) - 5*tick)
				}
				switch rng.IntN(4) {
				case 0:
					require.NoError(t, c.SetDeadline(at))
					want = [2]time.Time{at, at}
				case 1:
					require.NoError(t, c.SetWriteDeadline(at))
					want[1] = at
				default:
					require.NoError(t, c.SetReadDeadline(at))
					want[0] = at
				}
				switch rng.IntN(60) {
				case 0:
					tw.Flush()
				case 1:
					if seed%2 == 0 {
						tw.Stop()
						stopped = true
					}
				case 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15:
					time.Sleep(time.Duration(rng.Int64N(int64(20 * tick))))
				}
				synctest.Wait()
				c.verify(t)
				var is [2]bool
				is[0], is[1] = r.expired()
				for i, at := range want {
					switch {
					case is[i] && (at.IsZero() || time.Until(at) > 0):
						t.Fatalf("early: direction %d, seed %d", i, seed)
					case !is[i] && !at.IsZero() && time.Since(at) >= tick:
						t.Fatalf("late: direction %d, seed %d", i, seed)
					}
				}
			}
			require.NoError(t, c.Close())
			c.verify(t)
			if !stopped {
				require.Zero(t, tw.Len())
			}
			synctest.Wait()
		})
	}
}

// Goroutines move the deadlines while earlier ones expire. The last deadline is the one that holds.
func TestLastDeadlineHoldsAfterConcurrentCalls(t *testing.T) {
	t.Parallel()
	tw := newWheel(t, timingwheel.Options{Tick: 50 * time.Microsecond})
	c, r := newRecorded(tw)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	time.AfterFunc(300*time.Millisecond, func() { close(stop) })
	for i := range uint64(4) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(i, 1))
			for {
				select {
				case <-stop:
					return
				default:
				}
				at := time.Now().Add(time.Duration(rng.Int64N(int64(400*time.Microsecond))) - 50*time.Microsecond)
				if i%2 == 0 {
					assert.NoError(t, c.SetReadDeadline(at))
				} else {
					assert.NoError(t, c.SetDeadline(at))
				}
			}
		})
	}
	wg.Wait()
	far := time.Now().Add(time.Hour)
	require.NoError(t, c.SetDeadline(far))
	time.Sleep(5 * time.Millisecond) // until callbacks in flight have returned
	read, write := r.expired()
	assert.False(t, read || write, "expired an hour early")
	c.verify(t)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Millisecond)))
	require.Eventually(t, func() bool { read, _ := r.expired(); return read }, time.Minute, time.Millisecond)
	_, write = r.expired()
	assert.False(t, write)
}

// A goroutine moves its deadline before it passes.
func TestDeadlineKeptAheadNeverExpires(t *testing.T) {
	t.Parallel()
	tw := newWheel(t, timingwheel.Options{Tick: 50 * time.Microsecond})
	c, r := newRecorded(tw)
	end := time.Now().Add(300 * time.Millisecond)
	var early atomic.Int64
	for time.Now().Before(end) {
		at := time.Now().Add(100 * time.Microsecond)
		if err := c.SetReadDeadline(at); err != nil {
			t.Fatal(err)
		}
		read, _ := r.expired()
		if read && time.Now().Before(at) {
			early.Add(1)
		}
	}
	assert.Zero(t, early.Load())
}

// scripted replaces the timers of a connection. The test calls timerFired itself.
type scripted struct {
	token    timingwheel.Timer
	armed    []int64
	canceled int
	fired    bool // Cancel is too late
}

// newScripted returns a connection with scripted timers.
func newScripted(t testing.TB) (*plainConn, *recorder, *scripted) {
	tw := newWheel(t, timingwheel.Options{})
	c, r := newRecorded(tw)
	s := &scripted{token: tw.AfterFunc(time.Hour, func() {})}
	timers := *c.timers
	timers.Arm = func(at int64, _ func()) timingwheel.Timer {
		s.armed = append(s.armed, at)
		return s.token
	}
	timers.Cancel = func(timer timingwheel.Timer) bool {
		if timer != s.token { // assert.Equal is too slow for the race below
			t.Errorf("Cancel(%v), want the armed timer", timer)
		}
		s.canceled++
		return !s.fired
	}
	c.timers = &timers
	return c, r, s
}

// A call for an earlier deadline finds the timer fired, while the callback waits for the lock. The
// call arms no second timer, and the callback applies the deadline.
func TestCallbackInFlightAppliesEarlierDeadline(t *testing.T) {
	t.Parallel()
	c, r, s := newScripted(t)
	now := time.Now()
	hour, second := c.readingOf(now.Add(time.Hour)), c.readingOf(now.Add(time.Second))
	require.NoError(t, c.SetReadDeadline(now.Add(time.Hour)))
	require.Equal(t, []int64{hour}, s.armed)
	s.fired = true
	require.NoError(t, c.SetReadDeadline(now.Add(time.Second)))
	assert.Equal(t, []int64{hour}, s.armed)
	assert.EqualValues(t, gateShut, c.directions[reads].gate.Load(), "N3")
	require.NoError(t, c.SetWriteDeadline(now.Add(2*time.Hour)))
	c.timerFired()
	assert.Equal(t, []int64{hour, second}, s.armed)
	assert.Zero(t, r.calls)
	c.verify(t)
}

// A stopped wheel keeps the timers that it handed to the runtime until they are cancelled.
func TestCallbackCancelsItsTimer(t *testing.T) {
	t.Parallel()
	c, _, s := newScripted(t)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Hour)))
	s.fired = true
	c.timerFired()
	assert.Equal(t, 1, s.canceled)
}

// A call moves a deadline that has just passed to a later time, while the callback applies the
// direction. In each order of their steps, the later deadline holds (N2).
func TestLaterDeadlineHoldsIfCallbackRaces(t *testing.T) {
	c, r, _ := newScripted(t)
	const rounds = 100_000
	limit := time.Now().Add(500 * time.Millisecond) // reached if the goroutines share a processor
	var started, done atomic.Int64                  // rounds
	await := func(counter *atomic.Int64, n int64) {
		for i := 1; counter.Load() < n; i++ {
			if i%1000 == 0 {
				runtime.Gosched()
			}
		}
	}
	go func() {
		for round := range int64(rounds) {
			await(&started, round+1)
			if started.Load() > rounds {
				return
			}
			c.timerFired()
			done.Store(round + 1)
		}
	}()
	defer started.Store(rounds + 1)
	// Arm the timer. On a busy machine the first deadline below passes before it is applied, which
	// arms no timer, and only an armed timer fires.
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Hour)))
	for round := range int64(rounds) {
		now := time.Now()
		if now.After(limit) {
			break
		}
		at := now.Add(200 * time.Nanosecond)
		if err := c.SetReadDeadline(at); err != nil {
			t.Fatal(err)
		}
		for time.Now().Before(at) {
		}
		started.Store(round + 1)
		for range round % 256 { // so that the call meets each step of the callback
			done.Load()
		}
		if err := c.SetReadDeadline(now.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		await(&done, round+1)
		if read, _ := r.expired(); read {
			t.Fatalf("round %d: expired an hour early", round)
		}
	}
	c.verify(t)
}

func TestLaterDeadlinesDoNotReachInnerConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tw := newWheel(t, timingwheel.Options{})
		c, r := newRecorded(tw)
		for range 100 {
			require.NoError(t, c.SetDeadline(time.Now().Add(time.Second)))
			require.NoError(t, c.SetDeadline(time.Time{}))
			require.NoError(t, c.SetReadDeadline(time.Now().Add(2*time.Second)))
			time.Sleep(500 * time.Millisecond)
		}
		synctest.Wait() // the timer may have fired just now
		assert.Zero(t, r.calls)
		assert.Equal(t, 1, tw.Len())
	})
}

func TestEarlierDeadlinesKeepOneTimer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tw := newWheel(t, timingwheel.Options{})
		c, _ := newRecorded(tw)
		for i := range 1000 {
			require.NoError(t, c.SetDeadline(time.Now().Add(time.Hour-time.Duration(i)*time.Second)))
			require.Equal(t, 1, tw.Len())
		}
		require.NoError(t, c.Close())
		assert.Zero(t, tw.Len())
	})
}

func TestPastDeadlineNeedsNoTimer(t *testing.T) {
	t.Parallel()
	tw := newWheel(t, timingwheel.Options{})
	c, r := newRecorded(tw)
	for range 10 { // as net/http for each request
		require.NoError(t, c.SetReadDeadline(time.Unix(1, 0)))
		read, write := r.expired()
		assert.True(t, read)
		assert.False(t, write)
		require.NoError(t, c.SetReadDeadline(time.Time{}))
		read, _ = r.expired()
		assert.False(t, read)
	}
	assert.Equal(t, 20, r.calls)
	assert.Zero(t, tw.Len())
}

func TestFlushExpiresNoDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tw := newWheel(t, timingwheel.Options{})
		c, r := newRecorded(tw)
		at := time.Now().Add(time.Second)
		require.NoError(t, c.SetDeadline(at))
		require.Equal(t, 1, tw.Flush())
		synctest.Wait()
		assert.Zero(t, r.calls)
		c.verify(t)
		time.Sleep(time.Until(at))
		synctest.Wait()
		read, write := r.expired()
		assert.True(t, read && write)
	})
}

// After Stop, the inner connection keeps the deadlines.
func TestDeadlinesHoldAfterStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tw := newWheel(t, timingwheel.Options{})
		ours, theirs := net.Pipe()
		defer theirs.Close()
		c := Conn(ours, tw)
		set := time.Now()
		require.NoError(t, c.SetReadDeadline(set.Add(time.Second)))
		tw.Stop()
		_, err := c.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(set))

		require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Second)))
		_, err = c.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.Equal(t, 2*time.Second, time.Since(set))

		fresh, other := net.Pipe()
		defer other.Close()
		late := Conn(fresh, tw)
		require.NoError(t, late.SetReadDeadline(time.Now().Add(time.Second)))
		_, err = late.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NoError(t, late.SetWriteDeadline(time.Now().Add(time.Second)))
		_, err = late.Write(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.Equal(t, 4*time.Second, time.Since(set))
		require.NoError(t, late.Close())
		require.NoError(t, c.Close())
	})
}

// Before Stop, a deadline is moved later without moving the timer. After Stop, the timer fires
// early.
func TestDeadlineMovedBeforeStopIsNotEarly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tw := newWheel(t, timingwheel.Options{})
		ours, theirs := net.Pipe()
		defer theirs.Close()
		c := Conn(ours, tw)
		set := time.Now()
		require.NoError(t, c.SetReadDeadline(set.Add(time.Second)))
		require.NoError(t, c.SetReadDeadline(set.Add(3*time.Second)))
		tw.Stop()
		require.NoError(t, c.SetReadDeadline(set.Add(2*time.Second)))
		_, err := c.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.Equal(t, 2*time.Second, time.Since(set))
		require.NoError(t, c.Close())
	})
}

func TestStopWhileDeadlinesMove(t *testing.T) {
	t.Parallel()
	for range 200 {
		tw, err := timingwheel.New(timingwheel.Options{Tick: 50 * time.Microsecond})
		require.NoError(t, err)
		c, r := newRecorded(tw)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for range 200 {
					assert.NoError(t, c.SetDeadline(time.Now().Add(100*time.Microsecond)))
				}
			})
		}
		tw.Stop()
		wg.Wait()
		require.Eventually(t, func() bool { read, write := r.expired(); return read && write }, time.Minute, 100*time.Microsecond)
		require.NoError(t, c.Close())
	}
}

func TestClosedConnectionsLeaveNothing(t *testing.T) {
	tw := newWheel(t, timingwheel.Options{})
	conns := make([]net.Conn, 100_000)
	for i := range conns {
		c, _ := newRecorded(tw)
		require.NoError(t, c.SetDeadline(time.Now().Add(time.Hour)))
		conns[i] = c
	}
	require.Equal(t, len(conns), tw.Len())
	for _, c := range conns {
		require.NoError(t, c.Close())
	}
	assert.Zero(t, tw.Len())
	var freed atomic.Int64
	for _, c := range conns[:1000] {
		runtime.AddCleanup(c.(*plainConn), func(struct{}) { freed.Add(1) }, struct{}{})
	}
	clear(conns)
	require.Eventually(t, func() bool {
		runtime.GC()
		return freed.Load() == 1000
	}, time.Minute, time.Millisecond, "closed connections are not freed")
	runtime.KeepAlive(tw)
}

func TestDeadlineAfterCloseReturnsErrClosed(t *testing.T) {
	t.Parallel()
	tw := newWheel(t, timingwheel.Options{})
	c, _ := newRecorded(tw)
	require.NoError(t, c.SetDeadline(time.Now().Add(time.Hour)))
	require.NoError(t, c.Close())
	for _, at := range []time.Time{{}, time.Now().Add(time.Second), time.Now().Add(2 * time.Hour), time.Unix(1, 0)} {
		assert.ErrorIs(t, c.SetDeadline(at), net.ErrClosed)
		assert.ErrorIs(t, c.SetReadDeadline(at), net.ErrClosed)
		assert.ErrorIs(t, c.SetWriteDeadline(at), net.ErrClosed)
	}
	assert.Zero(t, tw.Len())
}

func TestCloseWhileDeadlinesMoveLeavesNoTimer(t *testing.T) {
	t.Parallel()
	tw := newWheel(t, timingwheel.Options{Tick: 50 * time.Microsecond})
	for range 500 {
		c, _ := newRecorded(tw)
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				for range 50 {
					if err := c.SetDeadline(time.Now().Add(50 * time.Microsecond)); err != nil {
						assert.ErrorIs(t, err, net.ErrClosed)
						return
					}
				}
			})
		}
		require.NoError(t, c.Close())
		wg.Wait()
		c.verify(t)
	}
	assert.Zero(t, tw.Len())
}

// FuzzDeadlines checks after each call that a direction has expired if and only if its deadline has
// passed.
func FuzzDeadlines(f *testing.F) {
	f.Add([]byte{0, 10, 200, 3, 1, 255})
	f.Fuzz(func(t *testing.T, steps []byte) {
		synctest.Test(t, func(t *testing.T) {
			tw := newWheel(t, timingwheel.Options{WheelSize: 4, Levels: 2})
			c, r := newRecorded(tw)
			var want [2]time.Time
			for len(steps) >= 2 {
				kind, n := steps[0], time.Duration(steps[1])
				steps = steps[2:]
				at := time.Now().Add((n - 32) * tick / 2)
				if kind&4 != 0 {
					at = time.Time{}
				}
				switch kind & 3 {
				case 0:
					require.NoError(t, c.SetReadDeadline(at))
					want[0] = at
				case 1:
					require.NoError(t, c.SetWriteDeadline(at))
					want[1] = at
				case 2:
					require.NoError(t, c.SetDeadline(at))
					want = [2]time.Time{at, at}
				case 3:
					time.Sleep(n * tick / 4)
				}
				if kind >= 254 {
					tw.Stop()
				}
				synctest.Wait()
				c.verify(t)
				var is [2]bool
				is[0], is[1] = r.expired()
				for i, at := range want {
					if is[i] && (at.IsZero() || time.Until(at) > 0) {
						t.Fatalf("direction %d expired early", i)
					}
					if !is[i] && !at.IsZero() && time.Since(at) >= tick {
						t.Fatalf("direction %d did not expire", i)
					}
				}
			}
			require.NoError(t, c.Close())
		})
	})
}

// A machine without a battery-backed clock may start in 1970.
func TestDeadlineIsAheadIfClockStartsIn1970(t *testing.T) {
	t.Parallel()
	tw := newWheel(t, timingwheel.Options{})
	c, _ := newRecorded(tw)
	timers := *c.timers
	timers.Clock = &clock.Timeline{Base: time.Unix(20, 0), Manual: new(atomic.Int64)} // Manual converts times without the wall clock
	c.timers = &timers
	assert.EqualValues(t, time.Minute, c.readingOf(time.Unix(80, 0)))
	for _, past := range []time.Time{time.Unix(1, 0), time.Unix(0, 1), time.Unix(-1, 0), time.Time{}.Add(1)} {
		assert.LessOrEqual(t, c.readingOf(past), int64(0))
	}
}

// The inner connection was closed directly, before or after the directions expired.
func TestPastDeadlineReturnsErrorOfClosedInnerConnection(t *testing.T) {
	t.Parallel()
	tw := newWheel(t, timingwheel.Options{})
	for _, expired := range []bool{false, true} {
		c, r := newRecorded(tw)
		if expired {
			require.NoError(t, c.SetDeadline(time.Unix(1, 0)))
		}
		require.NoError(t, r.Close())
		for range 2 {
			require.ErrorIs(t, c.SetReadDeadline(time.Unix(1, 0)), net.ErrClosed)
			require.ErrorIs(t, c.SetDeadline(time.Now().Add(-time.Hour)), net.ErrClosed)
			require.Equal(t, expired, c.expired[reads])
		}
	}
}

// The first call after Stop hands both deadlines to the inner connection, which refuses them.
func TestFirstDeadlineAfterStopReturnsErrorOfInnerConnection(t *testing.T) {
	t.Parallel()
	for _, set := range []func(net.Conn, time.Time) error{net.Conn.SetReadDeadline, net.Conn.SetWriteDeadline} {
		tw := newWheel(t, timingwheel.Options{})
		c, r := newRecorded(tw)
		require.NoError(t, c.SetDeadline(time.Now().Add(2*time.Hour)))
		tw.Stop()
		require.NoError(t, r.Close())
		require.ErrorIs(t, set(c, time.Now().Add(time.Hour)), net.ErrClosed)
	}
}
