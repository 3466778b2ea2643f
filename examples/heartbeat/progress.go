package main

import (
	"fmt"
	"io"
	"runtime/metrics"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/timingwheel-go/timingwheel/examples/internal/figures"
	"github.com/timingwheel-go/timingwheel/examples/internal/live"
)

// sample is the state of a run at one time.
type sample struct {
	elapsed    time.Duration
	conns      int
	rate       int // beats per second since the previous sample
	pending    int // armed timers, or unknownPending
	cut        int
	late       []time.Duration // 50th and 99th percentile of the timeouts that passed; nil if none has
	heap       uint64          // bytes
	goroutines int
}

// line formats the sample. The short form fits into 80 columns.
func (s sample) line(short bool) string {
	p50, p99 := "-", "-"
	if s.late != nil {
		p50, p99 = figures.Millis(s.late[0]), figures.Millis(s.late[1])
	}
	elapsed, heap := s.elapsed.Round(time.Second), humanize.IBytes(s.heap)
	conns, rate, pending, cut := figures.Comma(s.conns), figures.Comma(s.rate), formatPending(s.pending), figures.Comma(s.cut)
	if short {
		return fmt.Sprintf("%4s %s conns %s/s %s pending %s cut late %s/%s %s", elapsed, conns, rate, pending, cut,
			strings.TrimSuffix(p50, "ms"), p99, strings.ReplaceAll(heap, " ", ""))
	}
	return fmt.Sprintf("%4s  conns %s  beats/s %s  pending %s  cut %s  late p50 %s p99 %s  heap %s  goroutines %s",
		elapsed, conns, rate, pending, cut, p50, p99, heap, figures.Comma(s.goroutines))
}

// formatPending formats a number of armed timers.
func formatPending(n int) string {
	if n == unknownPending {
		return "-"
	}
	return figures.Comma(n)
}

// sampler samples a run and keeps the highest values.
type sampler struct {
	sim     *simulation
	show    display
	start   time.Time
	beats   int64     // of the previous sample
	at      time.Time // of the previous sample
	peak    sample
	stop    chan struct{}
	stopped chan struct{}
}

func startSampler(sim *simulation, show display) *sampler {
	now := time.Now()
	s := &sampler{sim: sim, show: show, start: now, at: now, peak: sample{pending: unknownPending},
		stop: make(chan struct{}), stopped: make(chan struct{})}
	go s.run()
	return s
}

func (s *sampler) run() {
	defer close(s.stopped)
	ticker := time.NewTicker(s.show.every())
	defer ticker.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
			// After a stall, ticks may come too close together to measure a rate.
			if time.Since(s.at) >= s.show.every()/2 {
				s.show.update(s.sample())
			}
		}
	}
}

// end takes a last sample and returns the highest values.
func (s *sampler) end() sample {
	close(s.stop)
	<-s.stopped
	s.sample()
	s.show.end()
	return s.peak
}

func (s *sampler) sample() sample {
	srv, now := s.sim.srv, time.Now()
	beats := srv.beats.Load()
	next := sample{
		elapsed: now.Sub(s.start),
		conns:   int(srv.open.Load()),
		rate:    int(float64(beats-s.beats) / now.Sub(s.at).Seconds()),
		pending: srv.impl.pending(),
		cut:     int(srv.cuts.Load()),
	}
	_, next.late = srv.late(50, 99)
	next.heap, next.goroutines = measureProcess()
	s.beats, s.at = beats, now
	s.peak.conns = max(s.peak.conns, next.conns)
	s.peak.pending = max(s.peak.pending, next.pending)
	s.peak.heap = max(s.peak.heap, next.heap)
	s.peak.goroutines = max(s.peak.goroutines, next.goroutines)
	return next
}

// measureProcess returns the bytes of heap objects and the number of goroutines. In contrast to
// runtime.ReadMemStats it does not stop the program, so it does not disturb the run.
func measureProcess() (heap uint64, goroutines int) {
	ms := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/sched/goroutines:goroutines"}}
	metrics.Read(ms)
	return ms[0].Value.Uint64(), int(ms[1].Value.Uint64())
}

// display shows the progress of a run.
type display interface {
	begin(sim *simulation)
	every() time.Duration // the period of update
	update(s sample)
	end()
}

// newDisplay returns a display that rewrites one line if w is a terminal, or else one that prints a
// line for each sample.
func newDisplay(w io.Writer) display {
	if width, ok := live.Width(w); ok {
		return &liveLine{w: w, width: width}
	}
	return lines{w}
}

// printRun prints the line with which a run begins.
func printRun(w io.Writer, sim *simulation) {
	fmt.Fprintf(w, "server at %v, implementation %s, seed %d\n", sim.srv.listener.Addr(), sim.cfg.impl, sim.cfg.seed)
}

// lines prints a line for each sample.
type lines struct{ w io.Writer }

func (l lines) begin(sim *simulation) { printRun(l.w, sim) }
func (l lines) every() time.Duration  { return time.Second }
func (l lines) update(s sample)       { fmt.Fprintln(l.w, s.line(false)) }
func (l lines) end()                  {}

// liveLine rewrites one line. On a wide terminal, the line has a progress bar.
type liveLine struct {
	w     io.Writer
	width int
	line  *live.Line
}

const (
	longLine = 130 // columns for the long form of a sample and a bar
	barWidth = 16
)

func (l *liveLine) begin(sim *simulation) {
	printRun(l.w, sim)
	bar := 0
	if l.width >= longLine {
		bar = barWidth
	}
	l.line = live.Start(l.w, live.Options{
		Columns: l.width, Bar: bar, Total: int64(sim.cfg.duration), Message: "connecting", Every: l.every(),
	})
}

func (l *liveLine) every() time.Duration { return 250 * time.Millisecond }
func (l *liveLine) update(s sample)      { l.line.Update(int64(s.elapsed), s.line(l.width < longLine)) }
func (l *liveLine) end()                 { l.line.End() }
