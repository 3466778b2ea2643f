package watch

import (
	"math/bits"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// reports collects the calls that Report receives.
type reports struct {
	mu    sync.Mutex
	calls []Call
}

func (l *reports) add(c Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, c)
}

// take returns the collected calls and removes them.
func (l *reports) take() []Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	calls := l.calls
	l.calls = nil
	return calls
}

// call joins w, makes one call that runs f, and leaves w.
func call(w *Watch, pc uintptr, payloads int, f func()) {
	r := w.Join()
	defer w.Leave(r)
	r.Begin(pc, payloads)
	defer r.End()
	f()
}

// startSleepingCall starts a goroutine with one call of duration d.
func startSleepingCall(w *Watch, pc uintptr, d time.Duration) {
	go call(w, pc, 1, func() { time.Sleep(d) })
}

// verify checks the invariants of p and returns the numbers of blocks and of records in use.
func (p *pool) verify(t *testing.T) (blocks, used int) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	linked, open := map[*block]bool{}, map[*block]bool{}
	var prev *block
	for b := p.head.Load(); b != nil; b = b.next.Load() {
		require.False(t, linked[b])
		require.Same(t, prev, b.prev)
		linked[b], prev = true, b
		used += recordsPerBlock - bits.OnesCount64(b.free)
	}
	prev = nil
	for b := p.open; b != nil; b = b.openNext {
		require.False(t, open[b])
		require.Same(t, prev, b.openPrev)
		open[b], prev = true, b
	}
	for b := range linked {
		require.Equal(t, b.free != 0 && b.free != allFree, open[b], "P2")
		require.Equal(t, b.free == allFree, b == p.spare, "P1, P3")
	}
	for b := range open {
		require.True(t, linked[b], "P1")
	}
	require.True(t, p.spare == nil || linked[p.spare], "P1")
	return len(linked), used
}

func TestSlowCallIsReportedWhileItRunsAndWhenItEnds(t *testing.T) {
	t.Parallel()
	for name, payloads := range map[string]int{"callback": 1, "batch": 256} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log reports
				w := New(Config{After: 300 * time.Millisecond, Report: log.add, Scan: true})
				go call(w, 7, payloads, func() { time.Sleep(time.Second) })
				time.Sleep(299 * time.Millisecond)
				synctest.Wait()
				require.Empty(t, log.take())
				requireSlow(t, w, 0, 0)
				time.Sleep(time.Millisecond)
				synctest.Wait()
				want := Call{PC: 7, Took: 300 * time.Millisecond, Running: true, Payloads: payloads}
				require.Equal(t, []Call{want}, log.take())
				requireSlow(t, w, 1, 1)

				time.Sleep(time.Second)
				synctest.Wait()
				want.Took, want.Running = time.Second, false
				require.Equal(t, []Call{want}, log.take())
				requireSlow(t, w, 1, 0)
				time.Sleep(time.Hour)
				require.Empty(t, log.take())
				_, used := w.pool.verify(t)
				require.Zero(t, used)
			})
		})
	}
}

func requireSlow(t *testing.T, w *Watch, wantAll uint64, wantRunning int) {
	t.Helper()
	all, running := w.Slow()
	require.Equal(t, wantAll, all)
	require.Equal(t, wantRunning, running)
}

// A call that takes exactly After is slow.
func TestCallIsSlowFromAfterOn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		took time.Duration
		slow bool
	}{
		{0, false},
		{time.Second - 1, false},
		{time.Second, true},
		{time.Second + 1, true},
		{time.Hour, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			var log reports
			w := New(Config{After: time.Second, Report: log.add})
			call(w, 1, 1, func() { time.Sleep(c.took) })
			calls := log.take()
			if !c.slow {
				require.Empty(t, calls, c.took)
				requireSlow(t, w, 0, 0)
				return
			}
			require.Equal(t, []Call{{PC: 1, Took: c.took, Payloads: 1}}, calls)
			requireSlow(t, w, 1, 0)
		})
	}
}

func TestQuickCallsAreNotReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log reports
		w := New(Config{After: 50 * time.Millisecond, Report: log.add, Scan: true})
		for range 200 {
			startSleepingCall(w, 1, 20*time.Millisecond)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Minute)
		require.Empty(t, log.take())
		requireSlow(t, w, 0, 0)
	})
}

func TestEverySlowCallAmongManyIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log reports
		w := New(Config{After: 100 * time.Millisecond, Report: log.add, Scan: true})
		const n = 60
		for i := range n {
			d := time.Duration(0)
			if i%3 == 0 {
				d = time.Second
			}
			startSleepingCall(w, uintptr(i), d)
			time.Sleep(37 * time.Millisecond)
		}
		time.Sleep(time.Hour)
		running, ended := map[uintptr]int{}, map[uintptr]int{}
		for _, c := range log.take() {
			if c.Running {
				running[c.PC]++
				require.Equal(t, 100*time.Millisecond, c.Took)
				continue
			}
			ended[c.PC]++
			require.Equal(t, time.Second, c.Took)
		}
		want := map[uintptr]int{}
		for i := 0; i < n; i += 3 {
			want[uintptr(i)] = 1
		}
		require.Equal(t, want, running)
		require.Equal(t, want, ended)
		requireSlow(t, w, n/3, 0)
	})
}

func TestPanicAndGoexitEndACall(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		nap time.Duration
		end func()
	}{
		"slow panic":  {time.Second, func() { panic("late") }},
		"slow Goexit": {time.Second, runtime.Goexit},
		"quick panic": {0, func() { panic("early") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log reports
				w := New(Config{After: 100 * time.Millisecond, Report: log.add, Scan: true})
				go func() {
					defer func() { _ = recover() }()
					call(w, 1, 1, func() { time.Sleep(c.nap); c.end() })
				}()
				time.Sleep(time.Hour)
				if c.nap == 0 {
					require.Empty(t, log.take())
				} else {
					require.Equal(t, []Call{
						{PC: 1, Took: 100 * time.Millisecond, Running: true, Payloads: 1},
						{PC: 1, Took: time.Second, Payloads: 1},
					}, log.take())
				}
				_, used := w.pool.verify(t)
				require.Zero(t, used)
			})
		})
	}
}

// A Report that blocks does not delay reports of calls that become slow later.
func TestReportMayBlockAndUseTheWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log reports
		release := make(chan struct{})
		var w *Watch
		w = New(Config{After: 100 * time.Millisecond, Scan: true, Report: func(c Call) {
			log.add(c)
			w.Slow()
			w.ReportsDone()
			call(w, 1, 1, func() {})
			if c.Running {
				<-release
			}
		}})
		startSleepingCall(w, 1, time.Second)
		time.Sleep(time.Minute)
		startSleepingCall(w, 2, time.Second)
		time.Sleep(time.Hour)
		require.Len(t, log.take(), 4)
		close(release)
	})
}

func TestWithoutReportSlowCallsAreCounted(t *testing.T) {
	t.Parallel()
	for _, scan := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := New(Config{After: time.Second, Scan: scan})
			require.Nil(t, w.timer)
			startSleepingCall(w, 1, time.Minute)
			time.Sleep(2 * time.Second)
			requireSlow(t, w, 1, 1)
			requireSlow(t, w, 1, 1)
			time.Sleep(time.Hour)
			requireSlow(t, w, 1, 0)
		})
	}
}

func TestWithoutScanOnlyTheEndIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log reports
		w := New(Config{After: 100 * time.Millisecond, Report: log.add})
		require.Nil(t, w.timer)
		startSleepingCall(w, 1, time.Second)
		time.Sleep(time.Second / 2)
		synctest.Wait()
		require.Empty(t, log.take())
		requireSlow(t, w, 1, 1)
		time.Sleep(time.Second)
		require.Equal(t, []Call{{PC: 1, Took: time.Second, Payloads: 1}}, log.take())
		requireSlow(t, w, 1, 0)
	})
}

// Slow counts a call before the timer's scan. The scan still reports the call and does not count it
// again.
func TestCallCountedBySlowIsStillReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log reports
		w := New(Config{After: 80 * time.Millisecond, Report: log.add, Scan: true})
		startSleepingCall(w, 1, time.Second)
		time.Sleep(time.Millisecond)
		startSleepingCall(w, 2, time.Second)
		time.Sleep(84 * time.Millisecond)
		synctest.Wait()
		require.Len(t, log.take(), 1, "the next scan is at 90 ms")
		requireSlow(t, w, 2, 2)
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		require.Len(t, log.take(), 1)
		time.Sleep(time.Hour)
		requireSlow(t, w, 2, 0)
	})
}

func TestReportsDoneWaitsForReportsOfScans(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		require.Nil(t, (*Watch)(nil).ReportsDone())
		release := make(chan struct{})
		w := New(Config{After: 100 * time.Millisecond, Scan: true, Report: func(c Call) {
			if c.Running {
				<-release
			}
		}})
		require.Nil(t, w.ReportsDone())
		startSleepingCall(w, 1, time.Second)
		time.Sleep(200 * time.Millisecond)
		startSleepingCall(w, 2, time.Second) // its scan overlaps the first scan
		time.Sleep(time.Minute)
		synctest.Wait()
		reportsDone := w.ReportsDone()
		require.NotNil(t, reportsDone)
		require.Equal(t, reportsDone, w.ReportsDone())
		time.AfterFunc(time.Hour, func() { close(release) })
		began := time.Now()
		<-reportsDone
		require.Equal(t, time.Hour, time.Since(began))
		require.Nil(t, w.ReportsDone())
	})
}

// No timer is set while no call runs, or if all running calls have been reported.
func TestTimerIsUnsetIfNoUnreportedCallRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := New(Config{After: 100 * time.Millisecond, Report: func(Call) {}, Scan: true})
		require.False(t, w.armed.Load())
		release := make(chan struct{})
		go call(w, 1, 1, func() { <-release })
		synctest.Wait()
		require.True(t, w.armed.Load())
		time.Sleep(time.Second)
		synctest.Wait()
		require.False(t, w.armed.Load(), "the only call has been reported")
		requireSlow(t, w, 1, 1)
		call(w, 1, 1, func() {})
		require.True(t, w.armed.Load())
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		require.False(t, w.armed.Load())
		require.False(t, w.timer.Stop())
		close(release)
	})
}

// A stream of calls that are almost slow does not make the timer scan continuously.
func TestScansArePausedByAnEighthOfAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log reports
		w := New(Config{After: 80 * time.Millisecond, Report: log.add, Scan: true})
		startSleepingCall(w, 1, time.Second)
		time.Sleep(time.Millisecond)
		startSleepingCall(w, 2, time.Second)
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		calls := log.take()
		require.Len(t, calls, 2)
		assert.Equal(t, 80*time.Millisecond, calls[0].Took)
		assert.Equal(t, 89*time.Millisecond, calls[1].Took, "an eighth of After later, and not after 1 ms")
		time.Sleep(time.Hour)
	})
	for _, c := range []struct{ after, want time.Duration }{
		{1, time.Millisecond},
		{8 * time.Millisecond, time.Millisecond},
		{8 * time.Second, time.Second},
	} {
		require.Equal(t, c.want, pauseFor(c.after))
	}
}

// The next scan comes when the first of the running calls may become slow.
func TestNextScanIsForTheOldestCall(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]int{"oldest first": 1, "oldest last": 0} {
		synctest.Test(t, func(t *testing.T) {
			var log reports
			w := New(Config{After: 80 * time.Millisecond, Report: log.add, Scan: true})
			call(w, 1, 1, func() {}) // sets the timer
			r := []*Record{w.Join(), w.Join()}
			time.Sleep(30 * time.Millisecond)
			r[1-second].Begin(2, 1)
			time.Sleep(30 * time.Millisecond)
			r[second].Begin(3, 1)
			time.Sleep(time.Second)
			synctest.Wait()
			calls := log.take()
			require.Len(t, calls, 2, name)
			for _, c := range calls {
				require.Equal(t, 80*time.Millisecond, c.Took, name)
			}
		})
	}
}

// A scan that is about to leave the timer unset sees each call that found armed set.
func TestDisarmSeesACallThatFoundTheTimerArmed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		call func(*Record)
		want bool
	}{
		"no call":  {func(*Record) {}, true},
		"ended":    {func(r *Record) { r.Begin(1, 1); r.End() }, true},
		"running":  {func(r *Record) { r.Begin(1, 1) }, false},
		"counted":  {func(r *Record) { r.Begin(1, 1); r.mark(r.word.Load(), counted) }, false},
		"reported": {func(r *Record) { r.Begin(1, 1); r.mark(r.word.Load(), reported) }, true},
	} {
		w := New(Config{After: time.Hour, Report: func(Call) {}, Scan: true})
		w.armed.Store(true) // a scan is under way
		c.call(w.Join())
		require.False(t, w.timer.Stop(), name)
		require.Equal(t, c.want, w.disarm(), name)
		require.Equal(t, !c.want, w.armed.Load(), name)
	}
}

// Calls that begin while a scan clears armed are reported too.
func TestCallThatBeginsDuringAScanIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log reports
		const after = 10 * time.Millisecond
		w := New(Config{After: after, Report: log.add, Scan: true})
		const goroutines, rounds = 8, 200
		var done sync.WaitGroup
		for g := range goroutines {
			done.Go(func() {
				rng := rand.New(rand.NewPCG(1, uint64(g)))
				for i := range rounds {
					pc := uintptr(g*rounds + i)
					call(w, pc, 1, func() { time.Sleep(2 * after) }) // scans come at multiples of after too
					time.Sleep(time.Duration(rng.IntN(3)) * after)
				}
			})
		}
		done.Wait()
		running := map[uintptr]int{}
		for _, c := range log.take() {
			if c.Running {
				running[c.PC]++
			}
		}
		require.Len(t, running, goroutines*rounds)
		for pc, n := range running {
			require.Equal(t, 1, n, pc)
		}
		requireSlow(t, w, goroutines*rounds, 0)
	})
}

// A scan must not mark another call than the one whose word it has read.
func TestMarkFailsIfTheCallHasEnded(t *testing.T) {
	t.Parallel()
	w := New(Config{After: time.Hour})
	r := w.Join()
	for name, next := range map[string]func(){
		"ended":      r.End,
		"next began": func() { r.End(); r.Begin(2, 1) },
	} {
		r.Begin(1, 1)
		word, c := r.observe(w.now())
		require.Equal(t, running, word&stateMask, name)
		require.EqualValues(t, 1, c.PC, name)
		next()
		require.False(t, r.mark(word, counted), name)
		require.False(t, r.mark(word, reported), name)
		require.Zero(t, w.slow.Load(), name)
		r.End()
	}
}

// The steps are those in the table at Record.
func TestStepsOfARecordCountASlowCallOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		marks []uint64
		want  uint64
	}{
		"ended unseen":          {nil, idle},
		"counted":               {[]uint64{counted}, counted},
		"reported":              {[]uint64{reported}, reported},
		"counted then reported": {[]uint64{counted, reported}, reported},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := New(Config{After: time.Second})
				r := w.Join()
				for k := range uint64(3) {
					r.Begin(1, 1)
					require.Equal(t, running, r.word.Load()&stateMask)
					require.Equal(t, k+1, r.word.Load()/nextCall, "the number of the call")
					time.Sleep(time.Second)
					for _, s := range c.marks {
						require.True(t, r.mark(r.word.Load(), s))
						require.Equal(t, s, r.word.Load()&stateMask)
						require.Equal(t, k+1, w.slow.Load())
					}
					r.End()
					require.Equal(t, (k+1)*nextCall, r.word.Load())
					require.Equal(t, k+1, w.slow.Load())
				}
			})
		})
	}
}

// A scan has marked a call and not counted it yet.
func TestSlowWaitsForAScanToCount(t *testing.T) {
	t.Parallel()
	w := New(Config{After: time.Hour})
	r := w.Join()
	r.Begin(1, 1)
	w.scanMu.Lock()
	r.word.Store(r.word.Load()&^stateMask | reported) // mark, first half
	over := make(chan struct{})
	go func() {
		defer close(over)
		all, running := w.Slow()
		assert.EqualValues(t, 1, all)
		assert.Equal(t, 1, running)
	}()
	time.Sleep(10 * time.Millisecond) // without the lock Slow would return 0, 1
	w.slow.Add(1)                     // mark, second half
	w.scanMu.Unlock()
	<-over
}

// A scan must not combine a call with the beginning of an earlier call, which would make it slow.
func TestScanDoesNotMixTwoCalls(t *testing.T) {
	t.Parallel()
	w := New(Config{After: time.Hour})
	r := w.Join()
	over := make(chan struct{})
	go func() {
		defer close(over)
		for range 20_000 {
			r.began.Store(int64(-2 * time.Hour)) // the beginning of the previous call
			r.Begin(1, 1)
			runtime.Gosched()
			r.End()
		}
	}()
	for {
		slow, _ := w.check()
		require.Empty(t, slow)
		requireSlow(t, w, 0, 0)
		select {
		case <-over:
			return
		default:
		}
	}
}

// A scan may mark a call between the clock reading of End and the end of the call. The end is then
// reported.
func TestEndOfAMarkedCallIsReported(t *testing.T) {
	t.Parallel()
	for _, state := range []uint64{counted, reported} {
		var log reports
		w := New(Config{After: time.Hour, Report: log.add})
		r := w.Join()
		r.Begin(1, 1)
		r.mark(r.word.Load(), state)
		r.End()
		require.Len(t, log.take(), 1)
		requireSlow(t, w, 1, 0)
	}
}

// After a burst of goroutines all blocks but one are released.
func TestEmptyBlocksAreReleased(t *testing.T) {
	t.Parallel()
	w := New(Config{After: time.Hour})
	var all []*Record
	for range 10 * recordsPerBlock {
		all = append(all, w.Join())
	}
	blocks, used := w.pool.verify(t)
	require.Equal(t, 10, blocks)
	require.Equal(t, len(all), used)
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for i, r := range all {
		w.Leave(r)
		blocks, used = w.pool.verify(t)
		require.Equal(t, len(all)-1-i, used)
		require.LessOrEqual(t, blocks, used+1)
	}
	require.Equal(t, 1, blocks)

	first := w.Join()
	require.Same(t, w.pool.head.Load(), first.block, "the spare block must be used first")
	require.Nil(t, w.pool.spare)
}

func TestLeaveTwicePanics(t *testing.T) {
	t.Parallel()
	w := New(Config{After: time.Hour})
	r, other := w.Join(), w.Join()
	w.Leave(r)
	require.Panics(t, func() { w.Leave(r) })
	w.Leave(other)
	require.Panics(t, func() { w.Leave(other) })
	w.pool.verify(t)
}

// Random calls of Join and Leave never return a record that is in use.
func TestPoolModel(t *testing.T) {
	t.Parallel()
	w := New(Config{After: time.Hour})
	rng := rand.New(rand.NewPCG(1, 2))
	var inUse []*Record
	set := map[*Record]bool{}
	for range 40 {
		grow := rng.IntN(2) == 0
		for range rng.IntN(4 * recordsPerBlock) {
			if grow {
				r := w.Join()
				require.False(t, set[r])
				set[r] = true
				inUse = append(inUse, r)
			} else if n := len(inUse); n > 0 {
				i := rng.IntN(n)
				w.Leave(inUse[i])
				delete(set, inUse[i])
				inUse[i] = inUse[n-1]
				inUse = inUse[:n-1]
			}
		}
		_, used := w.pool.verify(t)
		require.Len(t, inUse, used)
		met := map[*Record]bool{}
		w.pool.each(func(r *Record) { met[r] = true })
		for r := range set {
			require.True(t, met[r])
		}
	}
}

// A block is removed while a scan visits it. The scan continues to all other blocks.
func TestScanContinuesFromARemovedBlock(t *testing.T) {
	t.Parallel()
	w := New(Config{After: time.Hour})
	var all []*Record
	for range 4 * recordsPerBlock {
		all = append(all, w.Join())
	}
	// The scan visits the newest block first.
	met := map[*Record]bool{}
	w.pool.each(func(r *Record) {
		if len(met) == 0 {
			w.pool.verify(t) // would deadlock if the scan held the lock of the pool
			for _, r := range all[recordsPerBlock:] {
				w.Leave(r)
			}
			blocks, _ := w.pool.verify(t)
			require.Equal(t, 2, blocks)
		}
		met[r] = true
	})
	for _, r := range all[:recordsPerBlock] {
		require.True(t, met[r])
	}
}

// The pool grows and shrinks during scans. Each scan visits every record that stays in use.
func TestScanMissesNoRecordInUse(t *testing.T) {
	t.Parallel()
	w := New(Config{After: time.Hour})
	var stay, others []*Record
	for range 4 * recordsPerBlock {
		others = append(others, w.Join(), w.Join(), w.Join())
		if len(stay) < 64 {
			stay = append(stay, w.Join())
		}
	}
	over := make(chan struct{})
	var churn sync.WaitGroup
	for k := range 2 {
		churn.Go(func() {
			mine := slices.Clone(others[k*len(others)/2 : (k+1)*len(others)/2])
			for {
				select {
				case <-over:
					return
				default:
				}
				for _, r := range mine {
					w.Leave(r)
				}
				for i := range mine {
					mine[i] = w.Join()
				}
			}
		})
	}
	for range 200 {
		met := map[*Record]bool{}
		w.pool.each(func(r *Record) { met[r] = true })
		for _, r := range stay {
			require.True(t, met[r])
		}
		runtime.Gosched()
	}
	close(over)
	churn.Wait()
	w.pool.verify(t)
}

// withinAMinute fails the test if f blocks.
func withinAMinute(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		require.FailNow(t, "blocked", what)
	}
}

// With 200,000 blocked calls, a scan that is stuck in the middle or in a report delays no other
// call.
func TestStuckScanDelaysNoCall(t *testing.T) {
	t.Parallel()
	const n = 200_000 // all blocks are full
	entered, release := make(chan struct{}), make(chan struct{})
	w := New(Config{After: time.Nanosecond, Scan: true, Report: func(c Call) {
		if c.Running && c.PC == 1 {
			close(entered)
			<-release
		}
	}})
	w.timer.Stop()
	w.armed.Store(true) // no scan yet
	all := make([]*Record, n)
	for i := range all {
		all[i] = w.Join()
		all[i].Begin(0, 1)
	}
	all[0].End()
	all[0].Begin(1, 1)
	use := func() {
		var more []*Record
		for range 3 * recordsPerBlock { // the pool grows and then shrinks
			more = append(more, w.Join())
		}
		for _, r := range more {
			r.Begin(2, 1)
			r.End()
		}
		for _, r := range more {
			w.Leave(r)
		}
		all[n/2].End()
		w.Leave(all[n/2])
		all[n/2] = w.Join()
		all[n/2].Begin(2, 1)
	}

	var scans sync.WaitGroup
	half, goOn := make(chan struct{}), make(chan struct{})
	scans.Go(func() {
		w.scanMu.Lock() // as Slow and check do
		defer w.scanMu.Unlock()
		met := 0
		w.pool.each(func(*Record) {
			if met++; met == n/2 {
				close(half)
				<-goOn
			}
		})
	})
	<-half
	withinAMinute(t, "calls during a scan that is stuck in the middle", use)
	close(goOn)

	scans.Go(w.scan)
	withinAMinute(t, "the scan", func() { <-entered })
	withinAMinute(t, "calls during a scan that is stuck in a report", func() {
		use()
		_, running := w.Slow()
		assert.Equal(t, n, running)
	})
	close(release)
	scans.Wait()
	withinAMinute(t, "the end of all calls", func() {
		for _, r := range all {
			r.End()
			w.Leave(r)
		}
	})
	blocks, used := w.pool.verify(t)
	require.Equal(t, 1, blocks)
	require.Zero(t, used)
	for s := w.ReportsDone(); s != nil; s = w.ReportsDone() {
		withinAMinute(t, "reports", func() { <-s })
	}
}

// Calls, Slow and scans run concurrently. Each slow call is counted once, reported once when it has
// ended, and reported at most once before. The payloads would reveal a report that mixes two calls.
func TestEachSlowCallIsCountedAndReportedOnce(t *testing.T) {
	t.Parallel()
	const goroutines, rounds = 8, 400
	payloadsOf := func(pc uintptr) int { return int(pc)*3 + 1 }
	var asRunning, asEnded [goroutines * rounds]atomic.Int32
	w := New(Config{After: time.Nanosecond, Scan: true, Report: func(c Call) {
		assert.Equal(t, payloadsOf(c.PC), c.Payloads)
		if c.Running {
			asRunning[c.PC].Add(1)
		} else {
			asEnded[c.PC].Add(1)
		}
	}})
	var calls, scans sync.WaitGroup
	for g := range goroutines {
		calls.Go(func() {
			rng := rand.New(rand.NewPCG(2, uint64(g)))
			for i := 0; i < rounds; {
				r := w.Join()
				for k := rng.IntN(4); k >= 0 && i < rounds; k, i = k-1, i+1 {
					pc := uintptr(g*rounds + i)
					r.Begin(pc, payloadsOf(pc))
					began := time.Now()
					for time.Since(began) == 0 || rng.IntN(8) == 0 { // every call is slow
						runtime.Gosched()
					}
					if i%100 == 0 {
						time.Sleep(3 * time.Millisecond)
					}
					r.End()
				}
				w.Leave(r)
			}
		})
	}
	over := make(chan struct{})
	for k := range 3 {
		scans.Go(func() {
			last := uint64(0)
			for {
				select {
				case <-over:
					return
				default:
				}
				if k == 0 {
					w.beginScan()
					slow, _ := w.check()
					for _, c := range slow {
						w.report(c)
					}
					w.endScan()
				}
				all, running := w.Slow()
				assert.LessOrEqual(t, last, all)
				assert.LessOrEqual(t, uint64(running), all)
				assert.LessOrEqual(t, running, goroutines)
				last = all
				runtime.Gosched()
			}
		})
	}
	calls.Wait()
	close(over)
	scans.Wait()
	for s := w.ReportsDone(); s != nil; s = w.ReportsDone() {
		<-s
	}
	requireSlow(t, w, goroutines*rounds, 0)
	seenRunning := 0
	for i := range asEnded {
		require.EqualValues(t, 1, asEnded[i].Load(), i)
		require.LessOrEqual(t, asRunning[i].Load(), int32(1), i)
		seenRunning += int(asRunning[i].Load())
	}
	require.Positive(t, seenRunning)
	w.pool.verify(t)
}

func TestBeginAndEndDoNotAllocate(t *testing.T) {
	w := New(Config{After: time.Hour, Report: func(Call) {}, Scan: true})
	r := w.Join()
	pc := uintptr(0)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		pc++
		r.Begin(pc, 1)
		r.End()
	}))
	require.Zero(t, testing.AllocsPerRun(1000, func() { w.Leave(w.Join()) }), "the spare block must be used")
}

// Records of two goroutines must not share a cache line, see Record.
func TestLayoutOfRecordsAvoidsFalseSharing(t *testing.T) {
	t.Parallel()
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("64 bits only")
	}
	require.EqualValues(t, 64, unsafe.Sizeof(Record{}))
	require.LessOrEqual(t, unsafe.Offsetof(Record{}.index)+unsafe.Sizeof(Record{}.index), uintptr(56))
	require.Zero(t, unsafe.Offsetof(block{}.records))
	require.LessOrEqual(t, unsafe.Offsetof(Watch{}.armed), uintptr(64))
	require.GreaterOrEqual(t, unsafe.Offsetof(Watch{}.slow)-unsafe.Offsetof(Watch{}.armed), uintptr(64))
}

func BenchmarkBeginEnd(b *testing.B) {
	for name, c := range map[string]Config{
		"count": {After: time.Hour},
		"scan":  {After: time.Hour, Report: func(Call) {}, Scan: true},
	} {
		b.Run(name+"/one function", func(b *testing.B) {
			w := New(c)
			b.RunParallel(func(pb *testing.PB) {
				r := w.Join()
				defer w.Leave(r)
				for pb.Next() {
					r.Begin(1, 1)
					r.End()
				}
			})
		})
		b.Run(name+"/two functions", func(b *testing.B) {
			w := New(c)
			b.RunParallel(func(pb *testing.PB) {
				r := w.Join()
				defer w.Leave(r)
				for i := 0; pb.Next(); i++ {
					r.Begin(uintptr(i&1), i&1)
					r.End()
				}
			})
		})
	}
}

func BenchmarkJoinLeave(b *testing.B) {
	w := New(Config{After: time.Hour})
	for b.Loop() {
		w.Leave(w.Join())
	}
}

func BenchmarkSlow(b *testing.B) {
	w := New(Config{After: 1})
	for range 200_000 {
		w.Join().Begin(1, 1)
	}
	for b.Loop() {
		w.Slow()
	}
}
