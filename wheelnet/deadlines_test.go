package wheelnet

import (
	"errors"
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

const tick = time.Millisecond // of timingwheel.Options{}

// newWheel returns a wheel that is stopped at the end of the test.
func newWheel(t testing.TB, opts timingwheel.Options) *timingwheel.TimingWheel {
	tw, err := timingwheel.New(opts)
	require.NoError(t, err)
	t.Cleanup(tw.Stop)
	return tw
}

// recorder is an inner connection. It records the deadlines that it gets.
type recorder struct {
	net.Conn
	mu          sync.Mutex
	read, write time.Time
	calls       int
	closed      bool
}

func (r *recorder) SetDeadline(t time.Time) error {
	return errors.Join(r.SetReadDeadline(t), r.SetWriteDeadline(t))
}

func (r *recorder) SetReadDeadline(t time.Time) error { return r.set(&r.read, t) }

func (r *recorder) SetWriteDeadline(t time.Time) error { return r.set(&r.write, t) }

func (r *recorder) set(d *time.Time, t time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return net.ErrClosed
	}
	*d = t
	r.calls++
	return nil
}

func (r *recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	return nil
}

// cut reports whether reads and writes of r return at once.
func (r *recorder) cut() (read, write bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	over := func(t time.Time) bool { return !t.IsZero() && !t.After(time.Now()) }
	return over(r.read), over(r.write)
}

// newRecorded returns a connection and its inner connection.
func newRecorded(tw *timingwheel.TimingWheel) (*plainConn, *recorder) {
	r := new(recorder)
	c := Conn(r, tw).(*plainConn)
	r.calls = 0
	return c, r
}

// verify checks the invariants while no call is under way.
func (c *deadlines) verify(t testing.TB) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Equal(t, c.armed != none, c.timer != timingwheel.Timer{})
	for i := range c.directions {
		d := &c.directions[i]
		gate := d.gate.Load()
		if c.closed || c.handed || c.cut[i] {
			require.EqualValues(t, shut, gate, "N3")
			continue
		}
		require.NotEqualValues(t, shut, gate, "the gate of a direction that is settled")
		if gate != none {
			require.LessOrEqual(t, c.armed, gate, "N1")
		}
		if at := d.deadline.Load(); at != none {
			require.GreaterOrEqual(t, at, gate, "a deadline that the timer does not cover")
		}
	}
}

// A model of the deadlines of both directions, under random calls and random pauses: a direction is
// cut from its deadline on, at most one tick late and never early.
func TestDirectionIsCutExactlyFromItsDeadline(t *testing.T) {
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
				is[0], is[1] = r.cut()
				for i, at := range want {
					if is[i] {
						require.False(t, at.IsZero() || time.Until(at) > 0, "early: direction %d, seed %d", i, seed)
					} else {
						require.True(t, at.IsZero() || time.Since(at) < tick, "late: direction %d, seed %d", i, seed)
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

// Goroutines move the deadlines while others expire. A read is never cut before the latest deadline
// that was set before the read began, and the last deadline holds.
func TestConcurrentCallsNeverCutEarly(t *testing.T) {
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
	time.Sleep(5 * time.Millisecond) // callbacks that were under way end
	read, write := r.cut()
	assert.False(t, read || write, "cut before a deadline in an hour")
	c.verify(t)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Millisecond)))
	require.Eventually(t, func() bool { read, _ := r.cut(); return read }, time.Minute, time.Millisecond)
	_, write = r.cut()
	assert.False(t, write)
}

// One goroutine keeps its deadline ahead; every read error is a deadline that was cut early.
func TestDeadlineThatIsKeptAheadIsNeverCut(t *testing.T) {
	t.Parallel()
	tw := newWheel(t, timingwheel.Options{Tick: 20 * time.Microsecond})
	c, r := newRecorded(tw)
	end := time.Now().Add(300 * time.Millisecond)
	var early atomic.Int64
	for time.Now().Before(end) {
		at := time.Now().Add(100 * time.Microsecond)
		if err := c.SetReadDeadline(at); err != nil {
			t.Fatal(err)
		}
		read, _ := r.cut()
		if read && time.Now().Before(at) {
			early.Add(1)
		}
	}
	assert.Zero(t, early.Load())
}

// scripted are the timers of a connection whose callbacks are called by the test.
type scripted struct {
	token    timingwheel.Timer
	armed    []int64
	canceled int
	started  bool // the callback is under way, so Cancel comes too late
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
		assert.Equal(t, s.token, timer)
		s.canceled++
		return !s.started
	}
	c.timers = &timers
	return c, r, s
}

// If the callback waits for the lock, a call leaves the timer to it. A second timer would be one
// too many.
func TestCallbackUnderWayArmsTheTimer(t *testing.T) {
	t.Parallel()
	c, r, s := newScripted(t)
	now := time.Now()
	hour, second := c.reading(now.Add(time.Hour)), c.reading(now.Add(time.Second))
	require.NoError(t, c.SetReadDeadline(now.Add(time.Hour)))
	require.Equal(t, []int64{hour}, s.armed)
	s.started = true
	require.NoError(t, c.SetReadDeadline(now.Add(time.Second)))
	assert.Equal(t, []int64{hour}, s.armed)
	assert.EqualValues(t, shut, c.directions[reads].gate.Load(), "N3")
	require.NoError(t, c.SetWriteDeadline(now.Add(2*time.Hour)))
	c.expire()
	assert.Equal(t, []int64{hour, second}, s.armed)
	assert.Zero(t, r.calls)
	c.verify(t)
}

// A stopped wheel remembers the timers that it gave to the runtime until they are cancelled.
func TestCallbackCancelsTheTimerOfAStoppedWheel(t *testing.T) {
	t.Parallel()
	c, _, s := newScripted(t)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Hour)))
	s.started = true
	c.expire()
	assert.Equal(t, 1, s.canceled)
}

// A call moves the deadline from a time that passes just now to a later one, while the callback
// settles the direction. In any order of their steps, the later deadline holds (N2).
func TestLaterDeadlineMeetsCallback(t *testing.T) {
	c, r, _ := newScripted(t)
	const rounds = 100_000
	limit := time.Now().Add(2 * time.Second) // on a machine without a second processor
	var turn, done atomic.Int64
	await := func(v *atomic.Int64, at int64) {
		for n := 1; v.Load() < at; n++ {
			if n%1000 == 0 {
				runtime.Gosched()
			}
		}
	}
	go func() {
		for i := range int64(rounds) {
			await(&turn, i+1)
			if turn.Load() > rounds {
				return
			}
			c.expire()
			done.Store(i + 1)
		}
	}()
	defer turn.Store(rounds + 1)
	for i := range int64(rounds) {
		now := time.Now()
		if now.After(limit) {
			break
		}
		at := now.Add(200 * time.Nanosecond)
		require.NoError(t, c.SetReadDeadline(at))
		for time.Now().Before(at) {
		}
		turn.Store(i + 1)
		for range i % 256 {
			done.Load()
		}
		if err := c.SetReadDeadline(now.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		await(&done, i+1)
		if read, _ := r.cut(); read {
			t.Fatalf("round %d: cut although the deadline is in an hour", i)
		}
	}
	c.verify(t)
}

func TestDeadlinesThatMoveLaterDoNotReachTheInnerConnection(t *testing.T) {
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
	for range 10 { // as net/http does it for each request
		require.NoError(t, c.SetReadDeadline(time.Unix(1, 0)))
		read, write := r.cut()
		assert.True(t, read)
		assert.False(t, write)
		require.NoError(t, c.SetReadDeadline(time.Time{}))
		read, _ = r.cut()
		assert.False(t, read)
	}
	assert.Equal(t, 20, r.calls)
	assert.Zero(t, tw.Len())
}

func TestFlushCutsNoConnection(t *testing.T) {
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
		read, write := r.cut()
		assert.True(t, read && write)
	})
}

// A wheel that is stopped under a live connection gives the deadlines to the inner connection.
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

// A deadline that was moved before Stop, without a call of the timer, holds after it.
func TestDeadlineThatMovedLaterBeforeStopIsNotCutEarly(t *testing.T) {
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
		tw, err := timingwheel.New(timingwheel.Options{Tick: 20 * time.Microsecond})
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
		require.Eventually(t, func() bool { read, write := r.cut(); return read && write }, time.Minute, 100*time.Microsecond)
		require.NoError(t, c.Close())
	}
}

func TestNothingIsLeftOf100000ClosedConnections(t *testing.T) {
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
	}, time.Minute, time.Millisecond, "closed connections are kept")
	runtime.KeepAlive(tw)
}

func TestSetAfterCloseReturnsErrClosed(t *testing.T) {
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
	tw := newWheel(t, timingwheel.Options{Tick: 20 * time.Microsecond})
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

// FuzzDeadlines compares single calls with the rule: a direction is cut if and only if its deadline
// has passed.
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
				is[0], is[1] = r.cut()
				for i, at := range want {
					if is[i] && (at.IsZero() || time.Until(at) > 0) {
						t.Fatalf("direction %d is cut early", i)
					}
					if !is[i] && !at.IsZero() && time.Since(at) >= tick {
						t.Fatalf("direction %d is not cut", i)
					}
				}
			}
			require.NoError(t, c.Close())
		})
	})
}

// A machine without a battery for its clock starts in 1970, and its deadlines are of that time.
func TestDeadlinesOfAClockThatStartsIn1970LieAhead(t *testing.T) {
	t.Parallel()
	tw := newWheel(t, timingwheel.Options{})
	c, _ := newRecorded(tw)
	timers := *c.timers
	timers.Clock = &clock.Timeline{Base: time.Unix(20, 0), Manual: true} // it takes times as they are
	c.timers = &timers
	assert.EqualValues(t, time.Minute, c.reading(time.Unix(80, 0)))
	for _, past := range []time.Time{time.Unix(1, 0), time.Unix(0, 1), time.Unix(-1, 0), time.Time{}.Add(1)} {
		assert.LessOrEqual(t, c.reading(past), int64(0))
	}
}

// A connection that was closed elsewhere says so for each deadline that has passed.
func TestErrorOfInnerConnectionIsReturnedEachTime(t *testing.T) {
	t.Parallel()
	tw := newWheel(t, timingwheel.Options{})
	c, r := newRecorded(tw)
	require.NoError(t, r.Close())
	for range 2 {
		require.ErrorIs(t, c.SetReadDeadline(time.Unix(1, 0)), net.ErrClosed)
		require.ErrorIs(t, c.SetDeadline(time.Now().Add(-time.Hour)), net.ErrClosed)
	}
}
