package webpage

import (
	"fmt"
	"slices"
	"sync"
	"unicode/utf8"
)

// MaxName is the longest name of what a page shows, in bytes.
const MaxName = 128

// Registry holds what a page shows by names, in the order of Add. Its zero value is empty. All
// methods may be called at any time from any goroutine.
type Registry[T any] struct {
	mu      sync.Mutex
	entries []Entry[T]
}

// Entry is a thing with its name.
type Entry[T any] struct {
	Name  string
	Value T
}

// Add adds a thing behind those that are there. A name that is empty, longer than [MaxName] bytes,
// not UTF-8 or in use gives an error, and changes nothing.
func (r *Registry[T]) Add(name string, value T) error {
	if name == "" || len(name) > MaxName || !utf8.ValidString(name) {
		return fmt.Errorf("%q; accepted is UTF-8 of 1 to %d bytes", name, MaxName)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.index(name) >= 0 {
		return fmt.Errorf("%q is in use; accepted is a name that is not, or was removed", name)
	}
	r.entries = append(r.entries, Entry[T]{name, value})
	return nil
}

// Remove removes the thing of that name and reports whether there was one.
func (r *Registry[T]) Remove(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.index(name)
	if i < 0 {
		return false
	}
	r.entries = slices.Delete(r.entries, i, i+1)
	return true
}

// index returns the index of that name, or -1. mu is held.
func (r *Registry[T]) index(name string) int {
	return slices.IndexFunc(r.entries, func(e Entry[T]) bool { return e.Name == name })
}

// All returns the entries in a new slice.
func (r *Registry[T]) All() []Entry[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.entries)
}

// Choose returns the entry of that name, or the first one if the name is empty, and reports whether
// there is one.
func (r *Registry[T]) Choose(name string) (Entry[T], bool) {
	for _, e := range r.All() {
		if name == "" || e.Name == name {
			return e, true
		}
	}
	return Entry[T]{}, false
}
