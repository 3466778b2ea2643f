// Package fault collects what an example that checks itself finds wrong.
package fault

import (
	"errors"
	"fmt"
	"strings"
	"sync"
)

// shown is how many faults are told; a broken run has thousands of the same kind.
const shown = 10

// List holds faults. The zero value is empty; all methods may be called from any goroutine.
type List struct {
	mu    sync.Mutex
	count int
	first []string
}

// Add notes a fault.
func (l *List) Add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	if len(l.first) < shown {
		l.first = append(l.first, fmt.Sprintf(format, args...))
	}
}

// Check notes a fault unless ok.
func (l *List) Check(ok bool, format string, args ...any) {
	if !ok {
		l.Add(format, args...)
	}
}

// Err names the first faults and counts the rest; it is nil where there is none.
func (l *List) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count == 0 {
		return nil
	}
	text := "WRONG: " + strings.Join(l.first, "\n       ")
	if more := l.count - len(l.first); more > 0 {
		text += fmt.Sprintf("\n       and %d more", more)
	}
	return errors.New(text)
}
