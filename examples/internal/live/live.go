// Package live shows a run under way on a terminal, as a line that is rewritten, with a progress
// bar.
package live

import (
	"io"
	"os"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
	"golang.org/x/term"
)

// Width reports how many columns w has, and false where w is no terminal or one that cannot rewrite
// a line: control characters have no place there.
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

// Line is a line with a bar and a message. Use one from [Start] to its End.
type Line struct {
	bar     progress.Writer
	tracker progress.Tracker
	ended   chan struct{}
}

// Options of a line.
type Options struct {
	Columns int           // of the terminal, as Width returns them
	Bar     int           // columns of the bar; 0 leaves it out
	Total   int64         // what 100 percent are
	Message string        // the first one
	Every   time.Duration // how often the line is rewritten
}

// Start begins to show a line on w, which is a terminal.
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

// Update sets what is shown.
func (l *Line) Update(value int64, message string) {
	// A tracker that is at its end would say done in the place of its message.
	l.tracker.SetValue(min(value, l.tracker.Total-1))
	l.tracker.UpdateMessage(message)
}

// End stops rewriting the line, whose last form stays.
func (l *Line) End() {
	for !l.bar.IsRenderInProgress() { // stopping a bar that has not begun would leave it running
		time.Sleep(time.Millisecond)
	}
	l.bar.Stop()
	<-l.ended
}
