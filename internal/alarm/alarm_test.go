package alarm

import (
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

var base = time.Now()

func read() int64 { return int64(time.Since(base)) }

// hangTimeout is longer than anything takes on a loaded machine.
const hangTimeout = 30 * time.Second

// owner sets an alarm as a shard does: under a lock, and again if it rings before its time.
type owner struct {
	mu    sync.Mutex
	alarm Alarm
	read  func() int64
	at    int64         // none: off
	rings int           // including early ones
	rang  chan struct{} // gets a value for each ring that is not early
}

// newOwner returns the owner of an alarm of a group.
func newOwner(g *Group, read func() int64) *owner {
	o := &owner{read: read, at: math.MaxInt64, rang: make(chan struct{}, 1000)}
	o.alarm.Init(g, o.ring)
	return o
}

// newOwners returns a group and the owners of its n alarms, which are off at the end of the test.
func newOwners(t *testing.T, n int, read func() int64) (*Group, []*owner) {
	g := NewGroup(read)
	owners := make([]*owner, n)
	for k := range owners {
		owners[k] = newOwner(g, read)
	}
	t.Cleanup(func() {
		for _, o := range owners {
			o.close()
		}
	})
	return g, owners
}

func (o *owner) set(d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.read()
	o.at = now + int64(d)
	o.alarm.Set(o.at, now)
}

func (o *owner) off() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.at = math.MaxInt64
	o.alarm.Off()
}

func (o *owner) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.at = math.MaxInt64
	o.alarm.Close()
}

func (o *owner) ring() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.rings++
	switch now := o.read(); {
	case o.at == math.MaxInt64:
	case o.at > now:
		o.alarm.Set(o.at, now)
	default:
		o.at = math.MaxInt64
		o.alarm.Off()
		o.rang <- struct{}{}
	}
}

// await waits for a ring that is not early.
func (o *owner) await(t *testing.T) {
	t.Helper()
	select {
	case <-o.rang:
	case <-time.After(hangTimeout):
		require.FailNow(t, "the alarm does not ring")
	}
}

func TestAlarmRingsAtItsTime(t *testing.T) {
	t.Parallel()
	_, owners := newOwners(t, 1, read)
	o := owners[0]
	for _, d := range []time.Duration{1, 50 * time.Microsecond, ms, 99 * ms, 100 * ms, 101 * ms, 300 * ms} {
		before := time.Now()
		o.set(d)
		o.await(t)
		require.GreaterOrEqual(t, time.Since(before), d)
		require.Empty(t, o.rang)
	}
}

// An alarm that is moved or turned off does not ring for its old time, except for one ring that was
// on its way.
func TestAlarmIsMovedAndTurnedOff(t *testing.T) {
	t.Parallel()
	_, owners := newOwners(t, 2, read)
	o, other := owners[0], owners[1]
	for _, d := range []time.Duration{20 * ms, 120 * ms} {
		o.set(d)
		o.off()
		o.set(time.Hour)
		o.set(d)
		o.set(2 * d)
		other.set(3 * d)
		o.off()
		other.await(t)
		require.Empty(t, o.rang)
		before := time.Now()
		o.set(time.Hour)
		o.set(d)
		o.await(t)
		require.GreaterOrEqual(t, time.Since(before), d)
	}
	assert.LessOrEqual(t, o.rings, 20, "rings for old times")
}

// Alarms of one group are set and turned off at the same time. Each ring comes.
func TestRaceAlarmsOfAGroup(t *testing.T) {
	t.Parallel()
	_, owners := newOwners(t, 8, read)
	var all sync.WaitGroup
	for k, o := range owners {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(k), 1))
			for range 300 {
				switch rng.IntN(8) {
				case 0:
					o.set(time.Duration(rng.IntN(int(ms))))
					o.off()
					for len(o.rang) > 0 {
						<-o.rang
					}
				case 1:
					o.set(time.Hour)
				case 2:
					o.set(100*ms + time.Duration(rng.IntN(int(ms))))
					fallthrough
				default:
					o.set(time.Duration(rng.IntN(int(2 * ms))))
					o.await(t)
				}
			}
		})
	}
	all.Wait()
}

// In a bubble of testing/synctest an alarm rings exactly at its time.
func TestAlarmInABubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, owners := newOwners(t, 1, read)
		o := owners[0]
		for _, d := range []time.Duration{1, ms, 100 * ms, time.Hour, 24 * 365 * time.Hour} {
			before := time.Now()
			o.set(d)
			<-o.rang
			require.Equal(t, d, time.Since(before))
		}
		require.Equal(t, 5, o.rings)
	})
}

// A bubble whose clock shows the current date is recognised too.
func TestAlarmInABubbleWithTheCurrentDate(t *testing.T) {
	t.Parallel()
	now := time.Now().Round(0)
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(now))
		_, owners := newOwners(t, 1, read)
		before := time.Now()
		owners[0].set(50 * ms)
		<-owners[0].rang
		require.Equal(t, 50*ms, time.Since(before))
	})
}

// The runtime keeps no owner of an alarm that is off in memory.
func TestIdleAlarmIsCollected(t *testing.T) {
	t.Parallel()
	collected := func() weak.Pointer[owner] {
		o := newOwner(NewGroup(read), read)
		for _, d := range []time.Duration{ms, ms, 110 * ms} {
			o.set(d)
			o.await(t)
		}
		o.set(time.Hour)
		o.off()
		return weak.Make(o)
	}()
	require.Eventually(t, func() bool { runtime.GC(); return collected.Value() == nil }, hangTimeout, ms)
}
