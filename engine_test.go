package timingwheel

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

// sendTo makes each goroutine arm its timers on shard i.
func sendTo(tw *TimingWheel, i uint32) {
	if tw.engine.routes == nil { // one shard
		return
	}
	for k := range tw.engine.routes {
		tw.engine.routes[k].Store(i)
	}
}

// goingTo returns the number of routes to shard i. The route of this goroutine changes when its
// stack moves.
func goingTo(tw *TimingWheel, i uint32) (n int) {
	for k := range tw.engine.routes {
		if tw.engine.routes[k].Load() == i {
			n++
		}
	}
	return n
}

// A goroutine stays on one shard until it finds inbox.mu locked there, and then moves to the next
// shard.
func TestArmingMovesOnIfItsShardIsLocked(t *testing.T) {
	t.Parallel()
	const shards = 4
	tw := startWheel(t, Options{Shards: shards})
	for at := range uint32(shards) {
		sendTo(tw, at)
		s, next := tw.engine.shards[at], (at+1)%shards
		for range 1000 {
			require.Same(t, s, tw.AfterFunc(time.Hour, func() {}).ref.shard)
		}
		require.Equal(t, len(tw.engine.routes), goingTo(tw, at))
		s.inbox.mu.Lock()
		timer := tw.AfterFunc(time.Hour, func() {})
		s.inbox.mu.Unlock()
		require.Same(t, tw.engine.shards[next], timer.ref.shard)
		require.Equal(t, len(tw.engine.routes)-1, goingTo(tw, at))
		require.Equal(t, 1, goingTo(tw, next))
	}
}

// If inbox.mu of all shards is locked, a caller waits for one of them and then arms its timer.
func TestArmingWaitsIfAllShardsAreLocked(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Shards: 3})
	for _, s := range tw.engine.shards {
		s.inbox.mu.Lock()
	}
	armed := make(chan Timer)
	go func() { armed <- tw.AfterFunc(time.Hour, func() {}) }()
	for _, s := range tw.engine.shards {
		s.inbox.mu.Unlock()
	}
	timer := receive(t, armed, "AfterFunc")
	require.True(t, timer.Stop())
}

func TestRoutesReachEveryShard(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{2, 3, 64, maxShards} {
		found := map[uint32]bool{}
		r := newRoutes(shards)
		for i := range r {
			found[r[i].Load()] = true
		}
		require.Len(t, found, shards)
	}
}

// age uses up the generations of a record and returns the handle of the last one.
func age(timer Timer) Timer {
	timer.swapWord(func(w arena.Word) arena.Word {
		for !w.Exhausted() { // all bits of the generation
			w |= (1<<20 - 1<<6)
		}
		return w
	})
	timer.gen = timer.word().Gen()
	return timer
}

// A record without further generations is never used again, whether its timer was stopped or has
// fired.
func TestRecordWithItsLastGenerationIsRetired(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(s *recordingWheel, timer Timer){
		"stopped": func(s *recordingWheel, timer Timer) { require.True(s.t, timer.Stop()) },
		"stopped on the wheel": func(s *recordingWheel, timer Timer) {
			s.TimingWheel.engine.shards[0].placeAll()
			require.True(s.t, timer.Stop())
		},
		"fired": func(s *recordingWheel, _ Timer) { s.to(ms) },
	} {
		for _, neighbours := range []int{0, 10} {
			s, sh := newRecordingWheelAndShard(t, Options{})
			others := s.fill(neighbours, time.Hour)
			e := age(s.after(ms, ""))
			end(s, e)
			require.False(t, e.Stop())
			s.verify()
			for range 3 {
				timers := s.fill(2*arena.PageSize, time.Hour)
				for _, o := range timers {
					require.False(t, e.ref == o.ref && e.index == o.index, name)
				}
				s.requireInert([]Timer{e})
				s.stopAll(timers)
			}
			s.stopAll(others)
			require.Zero(t, s.Len())
			verifyShard(t, sh)
		}
	}
}

// Timers of every kind that have the last generations of their records fire, are flushed and are
// stopped like others.
func TestLastGenerationOfEveryKindOfTimer(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(tw *TimingWheel, f func()) (stop func() bool){
		"timer":     func(tw *TimingWheel, f func()) func() bool { return tw.AfterFunc(time.Second, f).Stop },
		"FuncTimer": func(tw *TimingWheel, f func()) func() bool { return tw.NewFuncTimer(time.Second, f).Stop },
		"touched": func(tw *TimingWheel, f func()) func() bool {
			timer := tw.NewFuncTimer(time.Second, f)
			pass(2 * ms)
			require.True(t, timer.Touch())
			return timer.Stop
		},
		"plan": func(tw *TimingWheel, f func()) func() bool { return tw.ScheduleFunc(Every(time.Second), f).Stop },
		"context": func(tw *TimingWheel, f func()) func() bool {
			ctx, cancel := tw.WithTimeout(context.Background(), time.Second)
			stop := context.AfterFunc(ctx, f)
			return func() bool { defer cancel(); return stop() }
		},
	}
	for name, arm := range kinds {
		for how, end := range map[string]func(tw *TimingWheel){
			"fire":  func(*TimingWheel) { pass(2 * time.Second) },
			"flush": func(tw *TimingWheel) { require.GreaterOrEqual(t, tw.Flush(), 12); synctest.Wait() },
			"stop":  nil,
		} {
			bubble(t, Options{Shards: 1}, func(t *testing.T, tw *TimingWheel) {
				s := tw.engine.shards[0]
				for range 2 * arena.PageSize {
					tw.AfterFunc(time.Hour, boom).Stop()
				}
				s.own(s.owner.drainAll)
				lastButOne(s)
				called := make([]bool, 12)
				stops := make([]func() bool, len(called))
				for k := range called {
					stops[k] = arm(tw, func() { called[k] = true })
				}
				if end != nil {
					end(tw)
				}
				for k := range called {
					require.Equal(t, end == nil || name == "plan", stops[k](), "%s, %s", name, how)
					require.Equal(t, end != nil, called[k], "%s, %s", name, how)
				}
				synctest.Wait()
				require.Zero(t, tw.Len(), "%s, %s", name, how)
				verifyShard(t, s)
			})
		}
	}
}

// lastButOne uses up the generations of the records of all open pages, which are free, but one.
func lastButOne(s *shard) {
	s.inbox.mu.Lock()
	defer s.inbox.mu.Unlock()
	for _, pg := range s.inbox.records.Pages.All {
		for k := range uint32(arena.PageSize) {
			pg.Store(k, pg.Load(k)|(1<<20-1<<7))
		}
	}
}

// After a page was given back and opened again, old handles stay inert, although the successor of
// the page uses the same records and generations.
func TestHandlesStayInertWhenPagesAreOpenedAgain(t *testing.T) {
	t.Parallel()
	s, sh := newRecordingWheelAndShard(t, Options{})
	rng := rand.New(rand.NewPCG(5, 5))
	var stale []Timer
	type name struct{ index, gen uint32 }
	old, reused := map[name]bool{}, 0
	for round := range 5 {
		timers := s.fill(10*arena.PageSize, time.Hour)
		require.GreaterOrEqual(t, sh.inbox.records.OpenPages, 10)
		for _, e := range timers {
			if old[name{e.index, e.gen}] {
				reused++
			}
			old[name{e.index, e.gen}] = true
		}
		s.requireInert(stale)
		for range rng.IntN(2000) { // some records have many generations
			k := rng.IntN(arena.PageSize) // free records in many pages would hold these
			require.True(t, timers[k].Stop())
			stale = append(stale, timers[k])
			timers[k] = s.after(time.Hour, "")
		}
		if round%2 == 0 {
			s.stopAll(timers)
		} else {
			require.Equal(t, len(timers), s.Flush())
		}
		require.Zero(t, s.Len())
		require.LessOrEqual(t, sh.inbox.records.OpenPages, 5, "an empty page, and the pages of the free records of the inbox")
		stale = append(stale, timers...)
		s.requireInert(stale)
	}
	require.Greater(t, reused, arena.PageSize, "records with the same index and generation")
}

// After a spike the memory of records, payloads and lists is freed, except for a page of each.
func TestPagesAreGivenBackAfterASpike(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(s *recordingWheel, timers []Timer){
		"stopped": func(s *recordingWheel, timers []Timer) { s.stopAll(timers) },
		"fired":   func(s *recordingWheel, _ []Timer) { s.to(time.Minute) },
		"flushed": func(s *recordingWheel, _ []Timer) { s.Flush() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, sh := newRecordingWheelAndShard(t, Options{})
			s.stopAll(s.fill(1, time.Hour))
			before := s.Stats().Bytes
			timers := s.fill(40*arena.PageSize, time.Minute)
			require.Equal(t, 40, sh.inbox.records.OpenPages)
			require.Greater(t, s.Stats().Bytes, before+40*arena.PageSize*16)
			end(s, timers)
			require.Zero(t, s.Len())
			require.LessOrEqual(t, sh.inbox.records.OpenPages, 2, "an empty page, and the page of the free records of the inbox")
			require.LessOrEqual(t, sh.owner.store.chunksUsed(), 2)
			require.LessOrEqual(t, sh.owner.store.chunks.OpenPages, 2)
			for p := range uint32(40) {
				require.Equal(t, sh.inbox.records.Pages.At(p) == nil, sh.pages.At(p) == nil, "payloads of page %d", p)
			}
		})
	}
}

// Each survivor of a spike keeps its page. New timers go to the lowest pages with room, so the
// survivors of many spikes share few pages.
func TestLowestPagesAreFilledFirst(t *testing.T) {
	t.Parallel()
	const pages = 20
	s, sh := newRecordingWheelAndShard(t, Options{})
	timers := s.fill(pages*arena.PageSize, time.Hour)
	var survivors []Timer
	for i, e := range timers {
		if i%arena.PageSize == 7 {
			survivors = append(survivors, e)
			continue
		}
		require.True(t, e.Stop())
	}
	require.Equal(t, pages, s.Len())
	require.Equal(t, pages, sh.inbox.records.OpenPages, "the worst case: one page for each survivor")
	more := s.fill(4*(arena.PageSize-1)-inboxSize, time.Hour)
	low := 0
	for _, e := range more {
		if e.index>>arena.PageShift < 5 {
			low++
		}
	}
	require.GreaterOrEqual(t, low, len(more)-inboxSize-freeRecords, "except for the free records of the inbox")
	require.Equal(t, pages, sh.inbox.records.OpenPages)
	s.stopAll(survivors)
	s.Len()
	require.LessOrEqual(t, sh.inbox.records.OpenPages, 8)
	s.stopAll(more)
}

// lateExecutor runs calls on other goroutines, some of them after a while.
type lateExecutor struct{}

func (lateExecutor) Go(f func()) {
	time.AfterFunc(time.Duration(max(0, rand.IntN(500)-200))*time.Microsecond, f)
}
