package webpage

import (
	"fmt"
	"slices"
	"sync"
	"unicode/utf8"
)

// MaxName is the maximum length of a name in a [Registry], in bytes.
const MaxName = 128

// Registry holds the values that a page shows, by name and in the order of Add. The zero value is
// empty and ready to use. All methods may be called at any time from any goroutine.
type Registry[T any] struct {
	mu      sync.Mutex
	entries []Entry[T]
}

// Entry is a value with its name.
type Entry[T any] struct {
	Name  string
	Value T
}

// Add appends a value. If name is empty, longer than [MaxName] bytes, not UTF-8 or in use, Add
// returns an error and adds nothing.
func (r *Registry[T]) Add(name string, value T) error {
	if name == "" || len(name) > MaxName || !utf8.ValidString(name) {
		return fmt.Errorf("%q; it must be UTF-8 of 1 to %d bytes", name, MaxName)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.index(name) >= 0 {
		return fmt.Errorf("%q is in use; names must be unique", name)
	}
	r.entries = append(r.entries, Entry[T]{name, value})
	return nil
}

// Remove removes the value with the given name and reports whether there was one.
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

// index returns the index of the entry with the given name, or -1. The caller holds mu.
func (r *Registry[T]) index(name string) int {
	return slices.IndexFunc(r.entries, func(e Entry[T]) bool { return e.Name == name })
}

// All returns the entries in a new slice.
func (r *Registry[T]) All() []Entry[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.entries)
}

// Choose returns the entry with the given name, or the first entry if name is empty. It reports
// whether there is one.
func (r *Registry[T]) Choose(name string) (Entry[T], bool) {
	for _, e := range r.All() {
		if name == "" || e.Name == name {
			return e, true
		}
	}
	return Entry[T]{}, false
}
