package timingwheel

import (
	"reflect"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

// The documents and the benchmarks state these sizes. A change must be deliberate. The sizes hold
// on 32 bits as well, where only pointers are smaller.
func TestSizesOfHandles(t *testing.T) {
	t.Parallel()
	const word = unsafe.Sizeof(uintptr(0))
	require.EqualValues(t, 8+word, unsafe.Sizeof(Timer{}))
	require.LessOrEqual(t, unsafe.Sizeof(Timer{}), uintptr(16))
	require.LessOrEqual(t, unsafe.Sizeof(FuncTimer{}), uintptr(48))
	if word == 8 {
		require.LessOrEqual(t, unsafe.Sizeof(deadlineContext{}), uintptr(96), "a size class of the allocator")
	}
}

// holdsPointers reports whether values of type t contain pointers for the garbage collector.
func holdsPointers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return t.Len() > 0 && holdsPointers(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if holdsPointers(t.Field(i).Type) {
				return true
			}
		}
		return false
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr,
		reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return false
	default:
		return true
	}
}

// The data of a timer contains no pointer, so the garbage collector does not scan it.
func TestTimersHoldNoPointers(t *testing.T) {
	t.Parallel()
	for _, v := range []any{arena.Page{}, [arena.PageSize]uint64{}, chunkMeta{}, chunkPage{}} {
		require.False(t, holdsPointers(reflect.TypeOf(v)), "%T", v)
	}
	require.True(t, holdsPointers(reflect.TypeOf(owner{})), "the check works")
}

// Timers can be compared and used as map keys.
func TestTimerIsComparable(t *testing.T) {
	t.Parallel()
	s, _ := newRecordingWheelAndShard(t, Options{})
	a, b := s.after(ms, "a"), s.after(ms, "b")
	names := map[Timer]string{a: "a", b: "b", {}: "zero"}
	same := a
	require.True(t, same == a && a != b && a != Timer{})
	require.Equal(t, "a", names[same])
	require.Len(t, names, 3)
}

// Fields of a shard that different goroutines write are at least a cache line apart. Two shards are
// as well.
func TestShardIsPadded(t *testing.T) {
	t.Parallel()
	const line = 64
	var s shard
	last := unsafe.Offsetof(s.owner) + unsafe.Offsetof(s.owner.scratch) + unsafe.Sizeof(s.owner.scratch)
	require.GreaterOrEqual(t, unsafe.Sizeof(s)-last, uintptr(line))
	for _, part := range []struct {
		name         string
		before, from uintptr // the end of what stands before it
	}{
		{"the object before", 0, unsafe.Offsetof(s.config)},
		{"claims", unsafe.Offsetof(s.now) + unsafe.Sizeof(s.now), unsafe.Offsetof(s.claimed) + unsafe.Offsetof(s.claimed.fired)},
		{"removals", unsafe.Offsetof(s.claimed) + unsafe.Sizeof(s.claimed), unsafe.Offsetof(s.removals) + unsafe.Offsetof(s.removals.head)},
		{"the inbox", unsafe.Offsetof(s.removals) + unsafe.Sizeof(s.removals), unsafe.Offsetof(s.inbox)},
		{"the owner", unsafe.Offsetof(s.inbox) + unsafe.Sizeof(s.inbox), unsafe.Offsetof(s.owner)},
	} {
		require.Greater(t, part.from, part.before, part.name)
		require.GreaterOrEqual(t, part.from-part.before, uintptr(line), part.name)
	}
}

// While a preempted driver holds owner.mu, callers arm, stop and reschedule timers without waiting.
// The remaining work is done when the driver unlocks.
func TestCallersDoNotWaitForTheWheel(t *testing.T) {
	t.Parallel()
	s, sh := newRecordingWheelAndShard(t, Options{})
	placed := s.fillPlaced(500, time.Minute)
	sh.owner.mu.Lock() // this goroutine would wait for itself
	timers := s.fill(1000, time.Minute)
	require.True(t, timers[999].Reschedule(time.Second))
	require.True(t, placed[499].Reschedule(time.Second))
	require.True(t, placed[498].Reschedule(time.Hour))
	_, ok := placed[498].Deadline()
	require.True(t, ok)
	requireAllStop(t, placed[:400])
	requireAllStop(t, timers[:300])
	require.Equal(t, 400, sh.removals.len())
	require.True(t, sh.drainRequested.Load())
	sh.unlockAndDrain()
	require.False(t, sh.drainRequested.Load())
	require.Less(t, sh.removals.len(), 400)
	verifyShard(t, sh)
	require.Equal(t, 800, s.Len())
	s.to(time.Second)
	require.Len(t, s.ran, 2)
	s.to(time.Minute)
	require.Len(t, s.ran, 797)
}

// While a preempted caller holds inbox.mu, Stop, Reschedule to a later time and Deadline do not
// wait.
func TestStopDoesNotWaitForAnArmingCaller(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Shards: 1})
	sh := tw.engine.shards[0]
	timers := make([]Timer, removalGroup-1) // one more would lock owner.mu and inbox.mu
	for k := range timers {
		timers[k] = tw.AfterFunc(time.Hour, func() {})
	}
	sh.placeAll()
	staged := tw.AfterFunc(time.Hour, func() {})
	sh.inbox.mu.Lock()
	require.True(t, staged.Reschedule(2*time.Hour))
	require.True(t, timers[0].Reschedule(2*time.Hour))
	_, ok := timers[0].Deadline()
	require.True(t, ok)
	requireAllStop(t, timers)
	sh.inbox.mu.Unlock()
	require.Equal(t, 1, tw.Len())
	require.True(t, staged.Stop())
}

func TestShardVerifyFindsDamage(t *testing.T) {
	t.Parallel()
	for want, damage := range map[string]func(s *recordingWheel, sh *shard, timers []Timer){
		"S1, records": func(_ *recordingWheel, sh *shard, timers []Timer) {
			sh.inbox.records.Put(timers[0].index, true)
			sh.inbox.records.Put(timers[0].index, true)
		},
		"S1, chunks": func(_ *recordingWheel, sh *shard, _ []Timer) {
			sh.owner.store.chunks.Put(1, true)
			sh.owner.store.chunks.Put(1, true)
		},
		"S1: page 0": func(_ *recordingWheel, sh *shard, _ []Timer) { sh.pages.Set(0, nil) },
		"S2":         func(_ *recordingWheel, sh *shard, timers []Timer) { *sh.owner.store.pos(timers[3].index)++ },
		"position":   func(_ *recordingWheel, sh *shard, timers []Timer) { *sh.owner.store.pos(timers[4].index) = 0 },
		"S3":         func(_ *recordingWheel, sh *shard, _ []Timer) { sh.owner.store.all[0].tail += 3 },
		"live":       func(_ *recordingWheel, sh *shard, _ []Timer) { sh.owner.store.all[0].live++; sh.owner.wheel.live++ },
		"W1: H":      func(_ *recordingWheel, sh *shard, _ []Timer) { sh.owner.store.all[0].heapIndex++ },
		"W1: bucket": func(_ *recordingWheel, sh *shard, _ []Timer) { sh.owner.store.all[0].at++ },
		"W2: bucket": func(_ *recordingWheel, sh *shard, _ []Timer) { sh.owner.wheel.cur = sh.owner.store.all[0].at + 1 },
		"W4":         func(_ *recordingWheel, sh *shard, _ []Timer) { sh.owner.wheel.live++ },
		"W5: a bucket of the cascade": func(_ *recordingWheel, sh *shard, _ []Timer) {
			sh.owner.wheel.cascade.coarse = []*bucket{{level: 1}}
		},
		"W5: a bucket of level 1": func(_ *recordingWheel, sh *shard, _ []Timer) {
			sh.owner.wheel.cascade.fine = []*bucket{{level: 1, state: bucketCascading}}
		},
		"W5: a bucket of level 0": func(_ *recordingWheel, sh *shard, _ []Timer) {
			sh.owner.wheel.cascade.coarse = []*bucket{{state: bucketCascading}}
		},
		"W5: the coarse buckets": func(_ *recordingWheel, sh *shard, _ []Timer) {
			sh.owner.wheel.cascade.coarse = []*bucket{{level: 2, state: bucketCascading}, {level: 1, state: bucketCascading}}
		},
		"B1: record": func(s *recordingWheel, _ *shard, _ []Timer) {
			s.after(ms, "").swapWord(func(w arena.Word) arena.Word { return w.With(arena.Placed) })
		},
		"B2: timer": func(s *recordingWheel, sh *shard, _ []Timer) { s.after(ms, ""); sh.inbox.first = never },
		"B3: free": func(_ *recordingWheel, sh *shard, timers []Timer) {
			sh.inbox.free = append(sh.inbox.free, timers[0].index)
		},
		"W3": func(_ *recordingWheel, _ *shard, timers []Timer) {
			timers[0].swapWord(func(w arena.Word) arena.Word { return w.WithBits(1) })
		},
		"flushed": func(_ *recordingWheel, sh *shard, _ []Timer) { sh.claimed.flushBegun.Add(1) },
	} {
		s, sh := newRecordingWheelAndShard(t, Options{})
		timers := s.fillPlaced(10, time.Minute)
		require.NoError(t, sh.verify())
		damage(s, sh, timers)
		require.ErrorContains(t, sh.verify(), want)
	}
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		sh := tw.engine.shards[0]
		tw.AfterFunc(time.Minute, func() {})
		at := sh.alarm.at.Load()
		sh.alarm.at.Store(never)
		require.ErrorContains(t, sh.verify(), "S5: a timer")
		sh.alarm.at.Store(at)
		sh.placeAll()
		at = sh.alarm.at.Load()
		sh.alarm.at.Store(never)
		require.ErrorContains(t, sh.verify(), "S5: bucket")
		sh.alarm.at.Store(at)
	})
}
