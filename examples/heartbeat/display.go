package main

import (
	"fmt"
	"io"
	"time"

	"github.com/timingwheel-go/timingwheel/examples/internal/figures"
	"github.com/timingwheel-go/timingwheel/examples/internal/live"
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
	if width, ok := live.Width(w); ok {
		return &liveLine{w: w, width: width}
	}
	return lines{w}
}

func printHeader(w io.Writer, f *field) {
	cfg, n := f.cfg, countFates(f.plans)
	fmt.Fprintf(w, "heartbeat: %s connections to %v, timers: %s, seed %d\n",
		figures.Comma(cfg.conns), f.srv.listener.Addr(), cfg.impl, cfg.seed)
	fmt.Fprintf(w, "idle timeout %v, cut at most %v later; a beat at least every %v; for %v\n",
		cfg.timeout, cfg.bound, longestInterval(cfg.timeout), cfg.duration)
	fmt.Fprintf(w, "%s stay, %s close, %s crash, %s go silent\n",
		figures.Comma(n[stays]), figures.Comma(n[closes]), figures.Comma(n[crashes]), figures.Comma(n[silent]))
}

// lines prints plain lines.
type lines struct{ w io.Writer }

func (l lines) begin(f *field)       { printHeader(l.w, f) }
func (l lines) every() time.Duration { return time.Second }
func (l lines) update(s sample)      { fmt.Fprintln(l.w, s.line(false)) }
func (l lines) end()                 {}

// liveLine rewrites one line, with a bar for the time that has passed where there is room for it.
type liveLine struct {
	w     io.Writer
	width int
	line  *live.Line
}

const (
	longLine = 130 // columns from which on the long form of a sample fits, with a bar
	barWidth = 16
)

func (l *liveLine) begin(f *field) {
	printHeader(l.w, f)
	bar := 0
	if l.width >= longLine {
		bar = barWidth
	}
	l.line = live.Start(l.w, live.Options{
		Columns: l.width, Bar: bar, Total: int64(f.cfg.duration), Message: "connecting", Every: l.every(),
	})
}

func (l *liveLine) every() time.Duration { return 250 * time.Millisecond }
func (l *liveLine) update(s sample)      { l.line.Update(int64(s.elapsed), s.line(l.width < longLine)) }
func (l *liveLine) end()                 { l.line.End() }
