package chaos

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// Recorder records events: a [History], or a [File] of one.
type Recorder interface {
	// Record records events in their order, up to the first invalid event.
	Record(events ...Event) error
}

// File is a file of events. Events are in the file when Record has returned, however the process
// ends, as long as the machine runs. Several processes may record in one file if none of them is
// killed: a kill may leave an incomplete line in the middle of the file. A process that may be
// killed needs its own file.
type File struct {
	file *os.File
	mu   sync.Mutex
	line []byte
}

// OpenFile opens a file of events and creates it if it does not exist.
func OpenFile(path string) (*File, error) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("checker: %w", err)
	}
	return &File{file: f}, nil
}

// Record appends events in one write, which writes of other processes do not interleave.
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

// ReadFile records the events of a file. Rules about the order of events use the order in the file,
// so processes that are not killed should share one file. An incomplete last line of a killed
// process is skipped. If edit is not nil, ReadFile records its results instead of the events.
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
