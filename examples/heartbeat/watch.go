package main

import (
	"fmt"
	"runtime/metrics"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/timingwheel-go/timingwheel/examples/internal/figures"
)

// sample is a look at a run under way.
type sample struct {
	elapsed    time.Duration
	conns      int
	rate       int // beats per second since the sample before
	pending    int
	cut        int
	late       []time.Duration // of the timers that fired: 50th and 99th percentile; nil if none has
	heap       uint64          // bytes
	goroutines int
}

// line is the sample as text. The short form fits into 80 columns.
func (s sample) line(short bool) string {
	p50, p99 := "-", "-"
	if s.late != nil {
		p50, p99 = figures.Millis(s.late[0]), figures.Millis(s.late[1])
	}
	format := "%4s  conns %s  beats/s %s  pending %s  cut %s  late p50 %s p99 %s  heap %s  goroutines %s"
	heap := humanize.IBytes(s.heap)
	if short {
		format = "%4s %s conns %s/s %s pend %s cut %s/%s %s %s gor"
		p50, heap = strings.TrimSuffix(p50, "ms"), strings.ReplaceAll(heap, " ", "")
	}
	return fmt.Sprintf(format, s.elapsed.Round(time.Second), figures.Comma(s.conns), figures.Comma(s.rate), figures.Comma(s.pending),
		figures.Comma(s.cut), p50, p99, heap, figures.Comma(s.goroutines))
}

// watch samples a run until its end and keeps the highest values.
type watch struct {
	f       *field
	show    display
	start   time.Time
	beats   int64
	at      time.Time
	peak    sample
	stop    chan struct{}
	stopped chan struct{}
}

func startWatch(f *field, show display) *watch {
	now := time.Now()
	w := &watch{f: f, show: show, start: now, at: now, stop: make(chan struct{}), stopped: make(chan struct{})}
	go w.run()
	return w
}

func (w *watch) run() {
	defer close(w.stopped)
	tick := time.NewTicker(w.show.every())
	defer tick.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-tick.C:
			// After a stall ticks come close together, with too little in between to measure a
			// rate.
			if time.Since(w.at) >= w.show.every()/2 {
				w.show.update(w.sample())
			}
		}
	}
}

// end stops sampling and returns the highest values, the last ones included.
func (w *watch) end() sample {
	close(w.stop)
	<-w.stopped
	w.sample()
	w.show.end()
	return w.peak
}

func (w *watch) sample() sample {
	srv, now := w.f.srv, time.Now()
	beats := srv.beats.Load()
	s := sample{
		elapsed: now.Sub(w.start),
		conns:   int(srv.open.Load()),
		rate:    int(float64(beats-w.beats) / now.Sub(w.at).Seconds()),
		pending: srv.impl.pending(),
		cut:     int(srv.cuts.Load()),
	}
	_, s.late = srv.late(50, 99)
	s.heap, s.goroutines = measureProcess()
	w.beats, w.at = beats, now
	w.peak.conns = max(w.peak.conns, s.conns)
	w.peak.pending = max(w.peak.pending, s.pending)
	w.peak.heap = max(w.peak.heap, s.heap)
	w.peak.goroutines = max(w.peak.goroutines, s.goroutines)
	return s
}

// measureProcess returns the bytes of heap objects and the number of goroutines. Unlike
// runtime.ReadMemStats it does not stop the program, which would disturb what is measured.
func measureProcess() (heap uint64, goroutines int) {
	ms := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/sched/goroutines:goroutines"}}
	metrics.Read(ms)
	return ms[0].Value.Uint64(), int(ms[1].Value.Uint64())
}
