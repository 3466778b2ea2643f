// Package fault collects the faults that an example finds when it checks itself.
package fault

import (
	"errors"
	"fmt"
	"strings"
	"sync"
)

// shown is the number of faults that Err lists. A broken run has thousands of the same kind.
const shown = 10

// List holds faults. The zero value is empty. All methods are safe for concurrent use.
type List struct {
	mu    sync.Mutex
	count int
	first []string
}

// Add adds a fault.
func (l *List) Add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	if len(l.first) < shown {
		l.first = append(l.first, fmt.Sprintf(format, args...))
	}
}

// Check adds a fault unless ok.
func (l *List) Check(ok bool, format string, args ...any) {
	if !ok {
		l.Add(format, args...)
	}
}

// Err returns an error with the first faults and the number of the others, or nil if there is none.
func (l *List) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count == 0 {
		return nil
	}
	text := "FAIL: " + strings.Join(l.first, "\n      ")
	if more := l.count - len(l.first); more > 0 {
		text += fmt.Sprintf("\n      and %d more", more)
	}
	return errors.New(text)
}
