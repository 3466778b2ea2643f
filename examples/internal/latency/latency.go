// Package latency measures how long things take, from many goroutines at once.
package latency

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Recorder is a histogram of durations, in microseconds up to an hour, with three significant
// digits. Make one with [New]; all methods may be called from any goroutine.
type Recorder struct {
	mu        sync.Mutex
	histogram *hdrhistogram.Histogram
}

// New returns an empty Recorder.
func New() *Recorder {
	return &Recorder{histogram: hdrhistogram.New(1, time.Hour.Microseconds(), 3)}
}

// Record notes d. What lies outside of the range counts as its end.
func (r *Recorder) Record(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.histogram.RecordValue(max(0, min(d.Microseconds(), time.Hour.Microseconds()))) // in range, so it cannot fail
}

// Count returns how many durations there are.
func (r *Recorder) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return int(r.histogram.TotalCount())
}

// At returns the duration at a percentile from 0 to 100; 0 where there is none.
func (r *Recorder) At(percentile float64) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Duration(r.histogram.ValueAtPercentile(percentile)) * time.Microsecond
}
