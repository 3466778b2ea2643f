package checker

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// Recorder takes events: a [History], or a [File] of one.
type Recorder interface {
	// Record records events, in their order. Those before a first one that is refused are recorded.
	Record(events ...Event) error
}

// File is a file of events. Whatever Record has returned from stays there, however the process ends, as long as the machine runs. Several processes may
// have it open and record at the same time as long as none is killed: a kill may cut a write short in the middle of the file. A process that may
// be killed has a file of its own.
type File struct {
	file *os.File
	mu   sync.Mutex
	line []byte
}

// OpenFile opens a file of events, which is made if it is not there.
func OpenFile(path string) (*File, error) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("checker: %w", err)
	}
	return &File{file: f}, nil
}

// Record appends events in one write, between which no other process writes.
func (f *File) Record(events ...Event) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.line = f.line[:0]
	var refused error
	for _, e := range events {
		if refused = e.check(); refused != nil {
			break
		}
		f.line = e.appendTo(f.line)
	}
	if len(f.line) > 0 {
		if _, err := f.file.Write(f.line); err != nil {
			return fmt.Errorf("checker: %w", err)
		}
	}
	return refused
}

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }

// ReadFile records the events of a file. Rules that look at the order of events see that of the file, so processes of which none is
// killed should share one. An unfinished last line, of a process that was killed while it wrote, is passed over. What edit returns is recorded in place of
// each event; nil: all are recorded as they are.
func (h *History) ReadFile(path string, edit func(Event) Event) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("checker: %w", err)
	}
	defer f.Close()
	return h.read(f, edit)
}

func (h *History) read(r io.Reader, edit func(Event) Event) error {
	lines := bufio.NewReaderSize(r, 1<<20)
	for n := 1; ; n++ {
		line, err := lines.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("checker: line %d: %w", n, err)
		}
		e, err := parse(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil {
			return fmt.Errorf("%w (line %d)", err, n)
		}
		if edit != nil {
			e = edit(e)
		}
		if err := h.Record(e); err != nil {
			return err
		}
	}
}
