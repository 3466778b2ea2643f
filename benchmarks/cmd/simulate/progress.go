package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
	"golang.org/x/term"
)

// display shows the progress of a run.
type display interface {
	begin(parts int)
	next(part string)     // begins the next part
	update(share float64) // completed share of the part
	end()
}

// newDisplay returns a progress bar if w is a terminal. Otherwise the display prints a line for
// each part.
func newDisplay(w io.Writer) display {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return &lines{w: w}
	}
	return &bar{w: w}
}

// lines prints plain lines.
type lines struct {
	w           io.Writer
	part, parts int
}

func (l *lines) begin(parts int)  { l.parts = parts }
func (l *lines) update(_ float64) {}
func (l *lines) end()             {}
func (l *lines) next(part string) {
	l.part++
	fmt.Fprintf(l.w, "%d of %d: %s\n", l.part, l.parts, part)
}

// bar is a progress bar for all parts.
type bar struct {
	w       io.Writer
	done    int
	writer  progress.Writer
	tracker progress.Tracker
	ended   chan struct{}
}

const steps = 1000 // of the bar, for each part

func (b *bar) begin(parts int) {
	b.done = -1
	b.writer = progress.NewWriter()
	b.writer.SetOutputWriter(b.w)
	b.writer.SetUpdateFrequency(250 * time.Millisecond)
	b.writer.Style().Visibility = progress.StyleVisibility{ETA: true, Percentage: true, Time: true, Tracker: true}
	b.tracker.Total = int64(parts * steps)
	b.writer.AppendTracker(&b.tracker)
	b.ended = make(chan struct{})
	go func() {
		b.writer.Render()
		close(b.ended)
	}()
}

func (b *bar) next(part string) {
	b.done++
	b.tracker.UpdateMessage(part)
	b.update(0)
}

func (b *bar) update(share float64) {
	// A tracker at its end would replace its message by "done".
	b.tracker.SetValue(min(int64(b.done*steps)+int64(share*steps), b.tracker.Total-1))
}

func (b *bar) end() {
	for !b.writer.IsRenderInProgress() { // Stop has no effect before Render has begun
		time.Sleep(time.Millisecond)
	}
	b.writer.Stop()
	<-b.ended
}
