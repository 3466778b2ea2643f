package timingwheel

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
