// Package live shows the progress of a run on a terminal, as a line with a bar that it rewrites.
package live

import (
	"io"
	"os"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
	"golang.org/x/term"
)

// Width returns the number of columns of w. It returns false if w is not a terminal, or is a
// terminal that cannot rewrite a line.
func Width(w io.Writer) (columns int, ok bool) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return 0, false
	}
	columns, _, err := term.GetSize(int(f.Fd()))
	if err != nil || columns <= 0 {
		columns = 80
	}
	return columns, true
}

// Line is a line with a bar and a message. [Start] begins it and End ends it.
type Line struct {
	bar     progress.Writer
	tracker progress.Tracker
	ended   chan struct{}
}

// Options of a line.
type Options struct {
	Columns int           // of the terminal, from Width
	Bar     int           // columns of the bar; 0: no bar
	Total   int64         // value at 100 percent
	Message string        // first message
	Every   time.Duration // interval between two updates of the line
}

// Start shows a line on w, which must be a terminal.
func Start(w io.Writer, o Options) *Line {
	l := &Line{bar: progress.NewWriter(), ended: make(chan struct{})}
	l.bar.SetOutputWriter(w)
	l.bar.SetTerminalWidth(o.Columns)
	l.bar.SetTrackerPosition(progress.PositionLeft)
	l.bar.SetTrackerLength(o.Bar)
	l.bar.SetUpdateFrequency(o.Every)
	l.bar.Style().Visibility = progress.StyleVisibility{Tracker: o.Bar > 0}
	l.bar.Style().Options.Separator = " "
	l.tracker.Total = max(o.Total, 1)
	l.tracker.Message = o.Message
	l.bar.AppendTracker(&l.tracker)
	go func() {
		l.bar.Render()
		close(l.ended)
	}()
	return l
}

// Update sets the value and the message.
func (l *Line) Update(value int64, message string) {
	// A tracker at its end would replace its message by "done".
	l.tracker.SetValue(min(value, l.tracker.Total-1))
	l.tracker.UpdateMessage(message)
}

// End stops the updates. The last line stays on the terminal.
func (l *Line) End() {
	for !l.bar.IsRenderInProgress() { // Stop has no effect before Render has begun
		time.Sleep(time.Millisecond)
	}
	l.bar.Stop()
	<-l.ended
}
