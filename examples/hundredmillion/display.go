package main

import (
	"fmt"
	"io"
	"time"

	"github.com/timingwheel-go/timingwheel/examples/internal/live"
)

// display shows the progress of a run.
type display interface {
	say(format string, args ...any)
	every() time.Duration // interval between calls to update
	begin(ph *phase)
	update(ph *phase, line string)
	end(ph *phase, line string)
}

// newDisplay returns a display with a progress bar for each phase if w is a terminal. Otherwise it
// prints lines.
func newDisplay(w io.Writer) display {
	if columns, ok := live.Width(w); ok {
		return &bars{w: w, columns: columns}
	}
	return lines{w}
}

// lines prints plain lines.
type lines struct{ w io.Writer }

func (l lines) say(format string, args ...any) { fmt.Fprintf(l.w, format+"\n", args...) }
func (l lines) every() time.Duration           { return 2 * time.Second }
func (l lines) begin(*phase)                   {}
func (l lines) end(ph *phase, line string)     { l.update(ph, line) }

func (l lines) update(ph *phase, line string) {
	if ph.total == 0 {
		return
	}
	fmt.Fprintf(l.w, "%3d%% %s\n", 100*ph.done.Load()/int64(ph.total), line)
}

// bars rewrites one line for each phase.
type bars struct {
	w       io.Writer
	columns int
	line    *live.Line
}

const (
	lineColumns = 64 // width of most lines
	barColumns  = 30 // maximum
)

func (b *bars) say(format string, args ...any) { fmt.Fprintf(b.w, format+"\n", args...) }
func (b *bars) every() time.Duration           { return 250 * time.Millisecond }

func (b *bars) begin(ph *phase) {
	b.line = live.Start(b.w, live.Options{
		Columns: b.columns, Bar: max(0, min(barColumns, b.columns-lineColumns)),
		Total: int64(ph.total), Message: ph.name, Every: b.every(),
	})
}

func (b *bars) update(ph *phase, line string) { b.line.Update(ph.done.Load(), line) }

func (b *bars) end(ph *phase, line string) {
	b.update(ph, line)
	b.line.End()
}
