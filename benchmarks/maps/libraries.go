package maps

import (
	"hash/maphash"

	"github.com/alphadose/haxmap"
	cmap "github.com/orcaman/concurrent-map/v2"
	"github.com/puzpuzpuz/xsync/v4"

	"github.com/timingwheel-go/timingwheel"
)

// xsyncStore is the map of package keyed.
type xsyncStore[K key] struct {
	m *xsync.Map[K, timingwheel.Timer]
}

func newXsync[K key]() store[K] {
	return xsyncStore[K]{xsync.NewMap[K, timingwheel.Timer]()}
}

func (s xsyncStore[K]) find(k K) (timingwheel.Timer, bool)   { return s.m.Load(k) }
func (s xsyncStore[K]) remove(k K) (timingwheel.Timer, bool) { return s.m.LoadAndDelete(k) }
func (s xsyncStore[K]) size() int                            { return s.m.Size() }

func (s xsyncStore[K]) insert(k K, arm func() timingwheel.Timer) (added bool) {
	s.m.Compute(k, func(_ timingwheel.Timer, present bool) (timingwheel.Timer, xsync.ComputeOp) {
		added = !present
		return arm(), xsync.UpdateOp
	})
	return added
}

func (s xsyncStore[K]) sweep(k K) (swept bool) {
	s.m.Compute(k, func(t timingwheel.Timer, present bool) (timingwheel.Timer, xsync.ComputeOp) {
		if !present || pending(t) {
			return t, xsync.CancelOp
		}
		swept = true
		return t, xsync.DeleteOp
	})
	return swept
}

// orcamanStore is 32 maps, each with a read-write lock.
type orcamanStore[K key] struct {
	m cmap.ConcurrentMap[K, timingwheel.Timer]
}

func newOrcaman[K key]() store[K] {
	seed := maphash.MakeSeed()
	return orcamanStore[K]{cmap.NewWithCustomShardingFunction[K, timingwheel.Timer](func(k K) uint32 {
		return uint32(maphash.Comparable(seed, k))
	})}
}

func (s orcamanStore[K]) find(k K) (timingwheel.Timer, bool)   { return s.m.Get(k) }
func (s orcamanStore[K]) remove(k K) (timingwheel.Timer, bool) { return s.m.Pop(k) }
func (s orcamanStore[K]) size() int                            { return s.m.Count() }

func (s orcamanStore[K]) insert(k K, arm func() timingwheel.Timer) (added bool) {
	s.m.Upsert(k, timingwheel.Timer{}, func(present bool, _, _ timingwheel.Timer) timingwheel.Timer {
		added = !present
		return arm()
	})
	return added
}

func (s orcamanStore[K]) sweep(k K) (swept bool) {
	s.m.RemoveCb(k, func(_ K, t timingwheel.Timer, present bool) bool {
		swept = present && !pending(t)
		return swept
	})
	return swept
}

// haxmapStore is not correct, and only shows the cost of the map. haxmap cannot atomically check
// and delete an entry, or create one while others wait. Two concurrent calls to GetAndDel may both
// report that they deleted the key.
type haxmapStore[K key] struct {
	m *haxmap.Map[K, timingwheel.Timer]
}

func newHaxmap[K key]() store[K] { return haxmapStore[K]{haxmap.New[K, timingwheel.Timer]()} }

func (s haxmapStore[K]) find(k K) (timingwheel.Timer, bool)   { return s.m.Get(k) }
func (s haxmapStore[K]) remove(k K) (timingwheel.Timer, bool) { return s.m.GetAndDel(k) }
func (s haxmapStore[K]) size() int                            { return int(s.m.Len()) }

func (s haxmapStore[K]) insert(k K, arm func() timingwheel.Timer) bool {
	_, present := s.m.GetOrCompute(k, arm)
	return !present
}

func (s haxmapStore[K]) sweep(k K) bool {
	t, present := s.m.Get(k)
	if !present || pending(t) {
		return false
	}
	s.m.Del(k)
	return true
}
