package timingwheel

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// record is what a race test knows of one timer. Only the goroutine that armed the timer resets it;
// anybody may stop it.
type record struct {
	timer     Timer
	notBefore time.Duration // since ledger.start; written by the timer's owner
	ranAt     atomic.Int64  // since ledger.start
	runs      atomic.Int32
	stops     atomic.Int32
}

func (r *record) stop() bool {
	if !r.timer.Stop() {
		return false
	}
	r.stops.Add(1)
	return true
}

// ledger is every timer of a test, for the account at its end.
type ledger struct {
	start   time.Time
	hasty   bool // there are no lower bounds: timers are flushed, or reset by more than one goroutine
	mu      sync.Mutex
	records []*record
}

func newLedger() *ledger { return &ledger{start: time.Now()} }

func (l *ledger) enter(r *record) *record {
	l.mu.Lock()
	l.records = append(l.records, r)
	l.mu.Unlock()
	return r
}

func (l *ledger) callback(r *record) func() {
	return func() {
		r.ranAt.Store(int64(time.Since(l.start)))
		r.runs.Add(1)
	}
}

func (l *ledger) arm(tw *TimingWheel, d time.Duration) *record {
	r := &record{notBefore: time.Since(l.start) + max(d, 0)}
	r.timer = tw.AfterFunc(d, l.callback(r))
	return l.enter(r)
}

func (l *ledger) armAt(tw *TimingWheel, at time.Time) *record {
	r := &record{notBefore: at.Sub(l.start)}
	r.timer = tw.AtFunc(at, l.callback(r))
	return l.enter(r)
}

func (l *ledger) reset(r *record, d time.Duration) bool {
	at := time.Since(l.start) + max(d, 0)
	if !r.timer.Reschedule(d) {
		return false
	}
	r.notBefore = at
	return true
}

// account adds up what has happened. To each timer at most one thing has, and to none too early.
func (l *ledger) account(t *testing.T) (armed, fired, stopped uint64) {
	t.Helper()
	for _, r := range l.records { // so many that a require for each would take longer than the test
		runs, stops := r.runs.Load(), r.stops.Load()
		if runs+stops > 1 {
			t.Fatalf("ran %d times, stopped %d times", runs, stops)
		}
		if r.timer == (Timer{}) {
			require.Zero(t, runs+stops, "refused by a stopped wheel, but not inert")
			continue
		}
		armed++
		fired += uint64(runs)
		stopped += uint64(stops)
		if at := time.Duration(r.ranAt.Load()); runs == 1 && at < r.notBefore && !l.hasty {
			t.Fatalf("early by %v", r.notBefore-at)
		}
	}
	return armed, fired, stopped
}

// settle compares the account with the wheel's own.
func (l *ledger) settle(t *testing.T, tw *TimingWheel) {
	t.Helper()
	armed, fired, stopped := l.account(t)
	st := tw.Stats()
	assert.Equal(t, armed, st.Armed, "armed")
	assert.Equal(t, fired, st.Fired, "fired")
	assert.Equal(t, stopped, st.Stopped, "stopped; the rest was discarded")
	assert.Zero(t, tw.Len())
	assert.Zero(t, st.Running)
}

// settleAll is settle where nothing may have been discarded.
func (l *ledger) settleAll(t *testing.T, tw *TimingWheel) {
	t.Helper()
	l.requireNoneLost(t)
	l.settle(t, tw)
}

func (l *ledger) requireNoneLost(t *testing.T) {
	t.Helper()
	armed, fired, stopped := l.account(t)
	require.Equal(t, armed, fired+stopped, "lost")
}

// merge enters the timers of another ledger.
func (l *ledger) merge(o *ledger) {
	shift := o.start.Sub(l.start)
	for _, r := range o.records {
		r.notBefore += shift
		r.ranAt.Add(int64(shift))
	}
	l.records = append(l.records, o.records...)
}

// tiny are wheels on which everything happens at once: cascades, rounds, laps, races for one
// bucket.
var tiny = []Options{
	{WheelSize: 2, Levels: 1, Tick: time.Microsecond, Shards: 1},
	{WheelSize: 2, Levels: 3, Tick: time.Microsecond, Shards: 4},
	{WheelSize: 4, Levels: 2, Tick: 10 * time.Microsecond, Shards: 2},
	{WheelSize: 8, Levels: 3, Tick: 50 * time.Microsecond, Shards: 1, Executor: Goroutines},
	{WheelSize: 16, Levels: 3, Tick: 100 * time.Microsecond, Shards: 1, Executor: Inline},
	{WheelSize: 16, Levels: 1, Tick: time.Millisecond, Shards: 4},
	{WheelSize: 2, Levels: 3, Tick: time.Millisecond, Shards: 1},
}

func optionName(o Options) string {
	return fmt.Sprintf("size=%d,levels=%d,tick=%v,shards=%d,executor=%T", o.WheelSize, o.Levels, o.Tick, o.Shards, o.Executor)
}

// 64 goroutines arm, stop and reset their own timers and stop each other's while they expire.
func TestRaceExactlyOnce(t *testing.T) {
	t.Parallel()
	for i, opts := range tiny {
		for _, halt := range []bool{false, true} {
			t.Run(optionName(opts)+map[bool]string{true: ",stopped"}[halt], func(t *testing.T) {
				t.Parallel()
				tw := startWheel(t, opts)
				l := newLedger()
				steps := max(scaled(2000), 200)
				var board [32]atomic.Pointer[record] // timers that anybody may stop
				var done atomic.Int32
				var all sync.WaitGroup
				for g := range 64 {
					all.Go(func() {
						raceOne(l, tw, rand.New(rand.NewPCG(uint64(i), uint64(g))), &board, steps)
						done.Add(1)
					})
				}
				if halt {
					await(t, "half of them are done", func() bool { return done.Load() >= 32 || tw.Stats().Armed > uint64(16*steps) })
					tw.Stop()
				}
				all.Wait()
				if halt {
					require.NoError(t, tw.Shutdown(t.Context()))
					l.settle(t, tw)
					return
				}
				require.NoError(t, drainWheel(tw))
				verifyShards(t, tw.engine)
				l.settleAll(t, tw)
			})
		}
	}
}

// raceOne is one goroutine's part of it.
func raceOne(l *ledger, tw *TimingWheel, rng *rand.Rand, board *[32]atomic.Pointer[record], steps int) {
	var own []*record
	for range steps {
		d := time.Duration(rng.IntN(3000)-100) * time.Microsecond
		switch rng.IntN(8) {
		case 0, 1, 2:
			r := l.arm(tw, d)
			own = append(own, r)
			board[rng.IntN(len(board))].Store(r)
		case 3:
			if r := board[rng.IntN(len(board))].Load(); r != nil {
				r.stop()
			}
		case 4:
			if len(own) > 0 {
				k := rng.IntN(len(own))
				own[k].stop()
				own[k] = own[len(own)-1]
				own = own[:len(own)-1]
			}
		case 5, 6:
			if len(own) > 0 {
				l.reset(own[rng.IntN(len(own))], d)
			}
		case 7:
			runtime.Gosched()
		}
	}
}

// The direct peer's failure: 16 adders on one small wheel of three levels. None early, none lost.
func TestSixteenAddersOnOneSmallWheel(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{WheelSize: 16, Levels: 3, Shards: 1, Tick: time.Millisecond})
	length := 3 * time.Second
	if testing.Short() {
		length = 300 * time.Millisecond
	}
	ledgers := make([]*ledger, 16) // one each: a shared one would be what they wait for
	var all sync.WaitGroup
	for g := range ledgers {
		ledgers[g] = newLedger()
		all.Go(func() {
			for time.Since(ledgers[g].start) < length {
				for range max(scaled(10), 1) {
					ledgers[g].arm(tw, time.Duration(1+rand.IntN(400))*time.Millisecond)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	all.Wait()
	require.NoError(t, drainWheel(tw))
	verifyShards(t, tw.engine)
	total := newLedger()
	for _, l := range ledgers {
		total.merge(l)
	}
	total.settleAll(t, tw)
}

// Callers that find no free slot together allocate a page each. Only the first opens its page.
func TestRaceCallersOpenOnePageTogether(t *testing.T) {
	t.Parallel()
	for range max(scaled(500), 50) {
		tw, err := New(Options{Shards: 1})
		require.NoError(t, err)
		together(8, func(int) { tw.AfterFunc(time.Hour, func() {}) })
		s := tw.engine.shards[0]
		s.armMu.Lock()
		pages := s.slots.Here
		s.armMu.Unlock()
		tw.Stop()
		require.Equal(t, 1, pages)
	}
}
