// Package maps compares concurrent maps for package keyed: the cost of a Set, Touch, Delete and
// expiry of a key, and the memory of a key. Package keyed uses xsync: its lookups take no lock.
//
//	go -C benchmarks test -run "^$" -bench "Maps$" -benchtime 200000x ./maps
//	go -C benchmarks test -run "^$" -bench MapsFill -benchtime 2x ./maps
package maps

import "github.com/timingwheel-go/timingwheel"

// key has the types of keys that all maps accept. haxmap accepts no others.
type key interface{ uint64 | string }

// store has the operations of package keyed on its map.
type store[K key] interface {
	// find returns the timer of k.
	find(k K) (timingwheel.Timer, bool)
	// insert sets the timer of k to the result of arm and reports whether k was absent. A sweep of
	// k that the new timer causes waits until insert is done.
	insert(k K, arm func() timingwheel.Timer) bool
	// remove deletes k and returns its timer.
	remove(k K) (timingwheel.Timer, bool)
	// sweep atomically deletes k if its timer is not pending. It reports whether it did.
	sweep(k K) bool
	size() int
}

// stores returns the compared maps. A map that is not exact has no atomic insert or sweep.
func stores[K key]() []candidate[K] {
	return []candidate[K]{
		{"xsync", true, newXsync[K]},
		{"sync.Map", true, newSyncMap[K]},
		{"orcaman", true, newOrcaman[K]},
		{"haxmap", false, newHaxmap[K]},
		{"sharded", true, newSharded[K]},
	}
}

type candidate[K key] struct {
	name  string
	exact bool
	make  func() store[K]
}

func pending(t timingwheel.Timer) bool {
	_, ok := t.Deadline()
	return ok
}
