package maps

import (
	"github.com/timingwheel-go/timingwheel"
)

// key is what all the maps take: haxmap has no keys of other types.
type key interface{ uint64 | string }

// store is what keyed asks of a map, so that each of them does all of it in its own way.
type store[K key] interface {
	// find returns the timer of k.
	find(k K) (timingwheel.Timer, bool)
	// insert puts the timer that arm makes, for a k that may be present, and reports whether it was not. A sweep of k that arm's timer
	// brings about waits for it.
	insert(k K, arm func() timingwheel.Timer) bool
	// remove takes k out.
	remove(k K) (timingwheel.Timer, bool)
	// sweep takes k out if its timer is not pending, at once, and reports whether it did.
	sweep(k K) bool
	size() int
}

// stores are the maps that are compared. Those that are not exact cannot do insert or sweep at once.
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
