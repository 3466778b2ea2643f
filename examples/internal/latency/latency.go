// Package latency records durations from many goroutines.
package latency

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Recorder is a histogram of durations, in microseconds up to an hour, with three significant
// digits. Create one with [New]. All methods are safe for concurrent use.
type Recorder struct {
	mu        sync.Mutex
	histogram *hdrhistogram.Histogram
}

// New returns an empty Recorder.
func New() *Recorder {
	return &Recorder{histogram: hdrhistogram.New(1, time.Hour.Microseconds(), 3)}
}

// Record adds d. A duration outside the range counts as the end of the range.
func (r *Recorder) Record(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.histogram.RecordValue(max(0, min(d.Microseconds(), time.Hour.Microseconds()))) // cannot fail within the range
}

// Count returns the number of durations.
func (r *Recorder) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return int(r.histogram.TotalCount())
}

// At returns the duration at a percentile from 0 to 100, or 0 if there are no durations.
func (r *Recorder) At(percentile float64) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Duration(r.histogram.ValueAtPercentile(percentile)) * time.Microsecond
}
