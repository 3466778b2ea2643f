package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
	"golang.org/x/term"
)

// display shows a run under way.
type display interface {
	begin(f *field)
	every() time.Duration // how often update is to be called
	update(s sample)
	end()
}

// newDisplay returns a live line if w is a terminal, else one that prints line after line.
func newDisplay(w io.Writer) display {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return lines{w}
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 {
		width = 80
	}
	return &liveLine{w: f, width: width}
}

func printHeader(w io.Writer, f *field) {
	cfg, n := f.cfg, countFates(f.plans)
	fmt.Fprintf(w, "heartbeat: %s connections to %v, timers: %s, seed %d\n",
		comma(cfg.conns), f.srv.listener.Addr(), cfg.impl, cfg.seed)
	fmt.Fprintf(w, "idle timeout %v, cut at most %v later; a beat at least every %v; for %v\n",
		cfg.timeout, cfg.bound, longestInterval(cfg.timeout), cfg.duration)
	fmt.Fprintf(w, "%s stay, %s close, %s crash, %s go silent\n",
		comma(n[stays]), comma(n[closes]), comma(n[crashes]), comma(n[silent]))
}

// lines prints plain lines.
type lines struct{ w io.Writer }

func (l lines) begin(f *field)       { printHeader(l.w, f) }
func (l lines) every() time.Duration { return time.Second }
func (l lines) update(s sample)      { fmt.Fprintln(l.w, s.line(false)) }
func (l lines) end()                 {}

// liveLine rewrites one line, with a bar for the time that has passed where there is room for it.
type liveLine struct {
	w       io.Writer
	width   int
	bar     progress.Writer
	tracker progress.Tracker
	ended   chan struct{}
}

const (
	longLine = 130 // columns from which on the long form of a sample fits, with a bar
	barWidth = 16
)

func (l *liveLine) begin(f *field) {
	printHeader(l.w, f)
	l.bar = progress.NewWriter()
	l.bar.SetOutputWriter(l.w)
	l.bar.SetTerminalWidth(l.width)
	l.bar.SetTrackerPosition(progress.PositionLeft)
	l.bar.SetTrackerLength(barWidth)
	l.bar.SetUpdateFrequency(l.every())
	l.bar.Style().Visibility = progress.StyleVisibility{Tracker: l.width >= longLine}
	l.bar.Style().Options.Separator = " "
	l.tracker.Total = int64(f.cfg.duration)
	l.tracker.Message = "connecting"
	l.bar.AppendTracker(&l.tracker)
	l.ended = make(chan struct{})
	go func() {
		l.bar.Render()
		close(l.ended)
	}()
}

func (l *liveLine) every() time.Duration { return 250 * time.Millisecond }

func (l *liveLine) update(s sample) {
	// A tracker that is at its end would say done in the place of its message.
	l.tracker.SetValue(min(int64(s.elapsed), l.tracker.Total-1))
	l.tracker.UpdateMessage(s.line(l.width < longLine))
}

func (l *liveLine) end() {
	for !l.bar.IsRenderInProgress() { // stopping a bar that has not begun would leave it running
		time.Sleep(time.Millisecond)
	}
	l.bar.Stop()
	<-l.ended
}
