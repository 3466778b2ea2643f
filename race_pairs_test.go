package timingwheel

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pairState is what two operations work on: a few timers and plans that both may touch.
type pairState struct {
	tw    *TimingWheel
	l     *ledger
	board [8]atomic.Pointer[record]
	plans [2]atomic.Pointer[Timer]
	runs  atomic.Int64 // of plans
	over  atomic.Bool  // two runs of one plan overlapped
}

func (s *pairState) any() *record { return s.board[rand.IntN(len(s.board))].Load() }

func (s *pairState) put(r *record) { s.board[rand.IntN(len(s.board))].Store(r) }

func (s *pairState) delay() time.Duration { return rand.N(500 * time.Microsecond) }

func (s *pairState) arm() { s.put(s.l.arm(s.tw, s.delay())) }

func (s *pairState) plan() {
	var inside atomic.Int32
	timer := s.tw.ScheduleFunc(Every(20*time.Microsecond), func() {
		if inside.Add(1) != 1 {
			s.over.Store(true)
		}
		s.runs.Add(1)
		runtime.Gosched()
		inside.Add(-1)
	})
	if old := s.plans[rand.IntN(len(s.plans))].Swap(&timer); old != nil {
		old.Stop()
	}
}

var pairOps = []struct {
	name string
	call func(s *pairState)
}{
	{"AfterFunc", (*pairState).arm},
	{"AfterFunc(0)", func(s *pairState) { s.put(s.l.arm(s.tw, 0)) }},
	{"AtFunc", func(s *pairState) { s.put(s.l.armAt(s.tw, time.Now().Add(s.delay()))) }},
	{"Stop", func(s *pairState) { s.any().stop() }},
	{"Reschedule later", func(s *pairState) { s.any().timer.Reschedule(time.Millisecond) }},
	{"Reschedule earlier", func(s *pairState) { s.any().timer.Reschedule(10 * time.Microsecond) }},
	{"Reschedule(0)", func(s *pairState) { s.any().timer.Reschedule(0) }},
	{"RescheduleAt", func(s *pairState) { s.any().timer.RescheduleAt(time.Now().Add(s.delay())) }},
	{"Deadline", func(s *pairState) { s.any().timer.Deadline() }},
	{"Flush", func(s *pairState) { s.tw.Flush() }},
	{"ScheduleFunc", (*pairState).plan},
	{"Stop of a plan", func(s *pairState) { s.plans[0].Load().Stop() }},
	{"Reschedule of a plan", func(s *pairState) { s.plans[1].Load().Reschedule(s.delay()) }},
	{"Len, Next, Stats", func(s *pairState) { s.tw.Len(); s.tw.Next(); s.tw.Stats() }},
}

// Every pair of operations, each with itself among them, at once on a wheel of three tiny levels.
func TestRaceEveryPair(t *testing.T) {
	t.Parallel()
	for i, a := range pairOps {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			for _, b := range pairOps[i:] {
				for _, executor := range []Executor{nil, Goroutines} {
					racePair(t, executor, a.call, b.call)
					require.False(t, t.Failed(), "against %s, executor %T", b.name, executor)
				}
			}
		})
	}
}

func racePair(t *testing.T, executor Executor, a, b func(*pairState)) {
	t.Helper()
	tw := startWheel(t, Options{WheelSize: 4, Levels: 3, Tick: 10 * time.Microsecond, Shards: 1, Executor: executor})
	s := &pairState{tw: tw, l: newLedger()}
	s.l.hasty = true
	for i := range s.board {
		s.board[i].Store(s.l.arm(tw, s.delay()))
	}
	for i := range s.plans {
		s.plans[i].Store(new(Timer))
	}
	s.plan()
	s.plan()
	var both sync.WaitGroup
	for _, call := range []func(*pairState){a, b} {
		both.Go(func() {
			for range max(scaled(200), 30) {
				call(s)
				if r := s.any(); r.runs.Load()+r.stops.Load() > 0 {
					s.arm() // so that the pair always has timers to work on
				}
			}
		})
	}
	both.Wait()
	for i := range s.plans {
		s.plans[i].Load().Stop()
	}
	assert.NoError(t, drainWheel(tw))
	verifyShards(t, tw.engine)
	s.l.requireNoneLost(t)
	assert.False(t, s.over.Load(), "two runs of one plan overlapped")
	tw.Stop()
}
