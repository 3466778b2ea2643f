package timingwheel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/arena"
	"github.com/timingwheel-go/timingwheel/internal/survey"
)

// manualWheel returns a Manual wheel whose clock is 2030-01-01, at tick 0.
func manualWheel(t *testing.T, opts Options) *TimingWheel {
	t.Helper()
	opts.Manual, opts.Start = true, time.Date(2030, time.January, 1, 0, 0, 0, 0, time.UTC)
	return startWheel(t, opts)
}

func nothing() {}

// filled returns the cells with timers.
func filled(l survey.Level) map[int]int {
	cells := make(map[int]int)
	for k, n := range l.Cells {
		if n > 0 {
			cells[k] = n
		}
	}
	return cells
}

func TestSurveyOfAnEmptyWheel(t *testing.T) {
	t.Parallel()
	tw := manualWheel(t, Options{})
	o := tw.survey()
	require.Len(t, o.Levels, defaultLevels)
	interval := time.Millisecond
	for _, l := range o.Levels {
		assert.Equal(t, survey.Level{Interval: interval, Cells: make([]int, defaultWheelSize)}, l)
		interval *= defaultWheelSize
	}
	o.Levels = nil
	assert.Equal(t, survey.Wheel{Now: tw.Now(), WheelSize: 256}, o)
}

// The figures are from the worked example in timingwheel.go: ticks of 1 s, 8 slots, 3 levels.
func TestSurveyOfTheWorkedExample(t *testing.T) {
	t.Parallel()
	tw := manualWheel(t, Options{Tick: time.Second, WheelSize: 8, Levels: 3})
	start := tw.Now()
	at := func(tick int) time.Time { return start.Add(time.Duration(tick) * time.Second) }
	tw.Advance(at(5))
	tw.AtFunc(at(213), nothing)
	tw.AtFunc(at(1237), nothing)

	check := func(hands [3]int, cells [3]map[int]int, later int, next ...survey.Expiration) {
		t.Helper()
		o := tw.survey()
		for l, level := range o.Levels {
			assert.Equal(t, hands[l], level.Hand, "hand of level %d", l)
			assert.Equal(t, cells[l], filled(level), "cells of level %d", l)
		}
		assert.Equal(t, later, o.Levels[2].Later)
		assert.Equal(t, next, o.Next)
		assert.Zero(t, o.Unseen+o.Due+o.Moving)
		assert.Equal(t, tw.Len(), o.Pending)
	}
	none := map[int]int{}
	check([3]int{5, 0, 0}, [3]map[int]int{none, none, {3: 2}}, 0, survey.Expiration{At: at(192), Level: 2, Timers: 2})
	tw.Advance(at(192)) // 213 is on level 1 now, 1237 two laps ahead
	check([3]int{0, 0, 3}, [3]map[int]int{none, {2: 1}, {0: 1}}, 1, survey.Expiration{At: at(208), Level: 1, Timers: 1}, survey.Expiration{At: at(1216), Level: 2, Timers: 1})
	tw.Advance(at(208))
	check([3]int{0, 2, 3}, [3]map[int]int{{5: 1}, none, {0: 1}}, 1, survey.Expiration{At: at(213), Level: 0, Timers: 1}, survey.Expiration{At: at(1216), Level: 2, Timers: 1})
	tw.Advance(at(1216)) // its bucket of level 1 expires at 1232
	check([3]int{0, 0, 3}, [3]map[int]int{none, {2: 1}, none}, 0, survey.Expiration{At: at(1232), Level: 1, Timers: 1})
	tw.Advance(at(1237))
	check([3]int{5, 2, 3}, [3]map[int]int{none, none, none}, 0, []survey.Expiration(nil)...)
}

// Cascading timers are counted, although they are on no level.
func TestSurveyCountsCascadingTimers(t *testing.T) {
	t.Parallel()
	bubble(t, Options{Shards: 1}, func(t *testing.T, tw *TimingWheel) {
		for range 3 {
			tw.AfterFunc(time.Second, nothing)
		}
		s := tw.engine.shards[0]
		s.owner.mu.Lock()
		s.owner.drainAll()
		s.owner.wheel.pop(never) // as in the middle of a driver's work
		s.owner.mu.Unlock()
		o := tw.survey()
		assert.Equal(t, 3, o.Moving)
		assert.Equal(t, 3, o.Pending)
		assert.Zero(t, o.Unseen+o.Levels[1].Timers)
		s.owner.mu.Lock()
		s.startDriver()
		s.owner.mu.Unlock()
		synctest.Wait()
		o = tw.survey()
		assert.Zero(t, o.Moving)
		assert.Equal(t, 3, o.Pending)
	})
}

// The slots of a large wheel share 512 cells.
func TestSurveyFoldsLargeWheels(t *testing.T) {
	t.Parallel()
	tw := manualWheel(t, Options{WheelSize: 4096, Levels: 2})
	for k := range 4096 {
		tw.AfterFunc(time.Duration(k)*time.Millisecond+1, nothing)
	}
	o := tw.survey()
	require.Len(t, o.Levels[0].Cells, 512)
	assert.Equal(t, 7, o.Levels[0].Cells[0], "slot 0 is empty")
	assert.Equal(t, 8, o.Levels[0].Cells[511])
	assert.Equal(t, 4095, o.Levels[0].Timers)
	assert.Equal(t, 1, o.Levels[1].Timers, "tick 4096")
}

// Next lists the earliest 16 expirations, each with the timers of all shards.
func TestSurveyNextOverShards(t *testing.T) {
	t.Parallel()
	e, err := new(job[func()]).newEngine(Options{Manual: true, Shards: 3, Start: modelStart}, 0, 1)
	require.NoError(t, err)
	defer e.stop()
	for k := range 20 {
		for _, s := range e.shards[:1+k%3] {
			armOn(s, int64(time.Duration(k+1)*time.Millisecond), nothing)
		}
	}
	next := e.survey(quantum).Next
	require.Len(t, next, 16)
	for k, x := range next {
		assert.Equal(t, survey.Expiration{At: modelStart.Add(time.Duration(k+1) * time.Millisecond), Timers: 1 + k%3}, x)
	}
}

// A large wheel has more slots than a call may read. If it has few buckets, no timer is unseen.
func TestSurveyOfALargeWheelIsWhole(t *testing.T) {
	t.Parallel()
	tw := manualWheel(t, Options{WheelSize: maxWheelSize, Shards: 8})
	for k := range 20_000 {
		tw.AfterFunc(time.Duration(k+1)*3*time.Millisecond, nothing)
	}
	o := tw.survey()
	checkSums(t, o)
	assert.Zero(t, o.Unseen)
	assert.Equal(t, 20_000, o.Levels[0].Timers)
	assert.Positive(t, o.Levels[0].Cells[60_000/128])
}

// With extreme options a survey does not panic, its result is bounded, and it includes the largest
// deadline.
func TestSurveyOfExtremes(t *testing.T) {
	t.Parallel()
	for _, opts := range []Options{
		{Tick: maxTick, WheelSize: maxWheelSize, Levels: maxLevels},
		{Tick: minTick, WheelSize: maxWheelSize, Levels: maxLevels, Shards: maxShards},
		{Tick: minTick, WheelSize: minWheelSize, Levels: maxLevels},
		{Tick: maxTick, WheelSize: minWheelSize, Levels: 1},
	} {
		tw := manualWheel(t, opts)
		tw.AfterFunc(math.MaxInt64, nothing)
		tw.AfterFunc(1, nothing)
		o := tw.survey()
		assert.Equal(t, 2, o.Pending, "%+v", opts)
		assert.Zero(t, o.Unseen, "%+v", opts)
		for l, level := range o.Levels {
			assert.LessOrEqual(t, len(level.Cells), 512)
			assert.Positive(t, level.Interval, "level %d of %+v", l, opts)
		}
	}
}

// While goroutines arm, stop and reschedule timers and callbacks run, the sum is correct. At the
// end no timer is unseen.
func TestRaceSurveySumsUpUnderLoad(t *testing.T) {
	t.Parallel()
	bubble(t, Options{Shards: 2, WheelSize: 4096}, func(t *testing.T, tw *TimingWheel) {
		var others sync.WaitGroup
		for g := range uint64(4) {
			others.Go(func() {
				rng := rand.New(rand.NewPCG(g, 0))
				for k := range 4000 {
					timer := tw.AfterFunc(rand.N(20*time.Second), nothing)
					switch k % 4 {
					case 0:
						timer.Stop()
					case 1:
						timer.Reschedule(time.Duration(rng.Int64N(int64(10 * time.Second))))
					}
					if k%16 == 0 {
						time.Sleep(time.Millisecond)
					}
				}
			})
		}
		for range 200 {
			o := tw.survey()
			checkSums(t, o)
			time.Sleep(2 * time.Millisecond)
		}
		others.Wait()
		synctest.Wait()
		o := tw.survey()
		checkSums(t, o)
		assert.Zero(t, o.Unseen)
		assert.Equal(t, tw.Stats().Pending, o.Pending)
		assert.Positive(t, o.Pending)
	})
}

func checkSums(t require.TestingT, o survey.Wheel) {
	sum := o.Due + o.Moving + o.Unseen
	for _, l := range o.Levels {
		cells := 0
		for _, n := range l.Cells {
			cells += n
		}
		if cells != l.Timers || l.Later > l.Timers { // a require for each level takes a tenth of a model's time
			require.FailNow(t, "wrong sums", "%d timers in cells: %+v", cells, l)
		}
		sum += cells
	}
	require.Equal(t, o.Pending, sum)
	require.True(t, slices.IsSortedFunc(o.Next, func(a, b survey.Expiration) int { return a.At.Compare(b.At) }))
}

// checkSurvey compares a survey, which goes from buckets to slots, with a count that goes from the
// records of timers to their buckets and slots. It makes two surveys: once with the lock released
// at each step, and once with the lock held throughout.
func (m *model) checkSurvey() {
	for _, step := range []int{1 + m.step%3, math.MaxInt} {
		o := m.sut.survey(step)
		checkSums(m, o)
		switch {
		case o.Pending != len(m.pending) || o.Unseen != 0:
			m.failf("survey: %d pending, %d unseen, want %d", o.Pending, o.Unseen, len(m.pending))
		case !o.Now.Equal(m.time(m.now)) && !m.stopped:
			m.failf("survey: now is %v, want %v", o.Now, m.time(m.now))
		case o.Stopped != m.stopped:
			m.failf("survey: stopped is %v", o.Stopped)
		}
		if err := m.sut.verifySurvey(o); err != nil {
			m.failf("survey in steps of %d: %v", step, err)
		}
	}
}

func (e *engine) verifySurvey(o survey.Wheel) error {
	want := survey.Wheel{Levels: make([]survey.Level, len(o.Levels))}
	for l := range want.Levels {
		want.Levels[l] = o.Levels[l]
		want.Levels[l].Timers, want.Levels[l].Later, want.Levels[l].Cells = 0, 0, make([]int, e.config.size)
	}
	for _, s := range e.shards {
		s.owner.mu.Lock()
		s.tallyRecords(&want)
		s.owner.mu.Unlock()
	}
	if o.Due != want.Due || o.Moving != want.Moving {
		return fmt.Errorf("%d due and %d moving, want %d and %d", o.Due, o.Moving, want.Due, want.Moving)
	}
	for l := range o.Levels { // wheels of the model are small: a cell is a slot
		if !reflect.DeepEqual(o.Levels[l], want.Levels[l]) {
			return fmt.Errorf("level %d is %+v, want %+v", l, o.Levels[l], want.Levels[l])
		}
	}
	return nil
}

// tallyRecords counts the timers of all used records.
func (s *shard) tallyRecords(o *survey.Wheel) {
	own := &s.owner
	for _, pg := range s.inbox.records.Pages.All {
		for k := range arena.PageSize {
			if pg.Pos[k] == 0 {
				if k := arena.Word(pg.Words[k].Load()).Kind(); k == arena.Placed {
					o.Due++
				}
				continue // free, or a plan in a run; nothing is left in the inbox
			}
			b := own.store.all[own.store.meta(pg.Pos[k]>>chunkShift).bucket]
			switch b.state {
			case bucketCascading:
				o.Moving++
			case bucketQueued:
				l := &o.Levels[b.level]
				shift := uint(b.level) * s.config.bits
				l.Timers++
				l.Cells[(int64(b.slot)-own.wheel.cur>>shift)&(s.config.size-1)]++
				if b.at>>shift-own.wheel.cur>>shift >= s.config.size {
					l.Later++
				}
			}
		}
	}
}
