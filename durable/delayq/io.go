package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// lockedWriter serializes the writes of several goroutines.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// screenOf returns the function that reads the size of a terminal, or nil if w is none that
// supports control characters.
func screenOf(w io.Writer) func() (columns, rows int) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return func() (columns, rows int) {
		columns, rows, err := term.GetSize(int(f.Fd()))
		if err != nil || columns <= 0 || rows <= 0 {
			return 80, 24
		}
		return columns, rows
	}
}

// isTerminal reports whether r reads from a terminal.
func isTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// until returns the error of f, or the cause of the end of ctx if ctx ends first. Reading from a
// terminal and writing to a pipe cannot be interrupted.
func until(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// lineWriter forwards whole lines, so that lines of several commands do not mix. It keeps the last
// line and, unless it is lossy, the first write error.
type lineWriter struct {
	to     io.Writer
	lossy  bool // a command does not fail because its messages on stderr cannot be printed
	part   []byte
	last   string
	failed error
}

// longestLine is the number of bytes after which an incomplete line is forwarded.
const longestLine = 64 << 10

func (l *lineWriter) Write(p []byte) (int, error) {
	l.part = append(l.part, p...)
	end := bytes.LastIndexByte(l.part, '\n') + 1
	if end == 0 && len(l.part) >= longestLine {
		end = len(l.part)
	}
	l.pass(end)
	return len(p), l.failed
}

// close forwards an incomplete last line.
func (l *lineWriter) close() {
	if len(l.part) > 0 {
		l.part = append(l.part, '\n')
		l.pass(len(l.part))
	}
}

// pass forwards the first n bytes.
func (l *lineWriter) pass(n int) {
	trimmed := bytes.TrimSpace(l.part[:n])
	if last := bytes.TrimSpace(trimmed[bytes.LastIndexByte(trimmed, '\n')+1:]); len(last) > 0 {
		l.last = string(last)
	}
	if _, err := l.to.Write(l.part[:n]); !l.lossy {
		l.failed = cmp.Or(l.failed, err)
	}
	l.part = append(l.part[:0], l.part[n:]...)
}

// errorPrinter prints errors of background calls, at most one per pause: an unreachable server
// causes many.
type errorPrinter struct {
	w       io.Writer
	pause   time.Duration
	mu      sync.Mutex
	last    time.Time
	skipped int // errors since last that were not printed
}

func (c *errorPrinter) add(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.last.IsZero() && time.Since(c.last) < c.pause {
		c.skipped++
		return
	}
	more := ""
	if c.skipped > 0 {
		more = fmt.Sprintf(" (and %d more that were not shown)", c.skipped)
	}
	fmt.Fprintf(c.w, "delayq: %v%s\n", err, more)
	c.last, c.skipped = time.Now(), 0
}
