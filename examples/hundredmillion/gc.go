package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// pauses are the pauses of the garbage collector in an interval.
type pauses struct {
	collections int64
	longest     time.Duration
}

func (p *pauses) merge(o pauses) {
	p.collections += o.collections
	p.longest = max(p.longest, o.longest)
}

// gcWatch returns the pauses since its last call. It is not safe for concurrent use.
type gcWatch struct{ seen int64 }

func newGCWatch() *gcWatch {
	w := &gcWatch{}
	w.since()
	return w
}

// since returns the pauses since the previous call. The runtime keeps the pauses of the last 256
// collections.
func (w *gcWatch) since() (p pauses) {
	var st debug.GCStats
	debug.ReadGCStats(&st)
	p.collections = st.NumGC - w.seen
	for _, d := range st.Pause[:min(p.collections, int64(len(st.Pause)))] { // most recent first
		p.longest = max(p.longest, d)
	}
	w.seen = st.NumGC
	return p
}

// collectGarbage runs a full garbage collection. It returns its time and the live heap.
func collectGarbage() (took time.Duration, heap uint64) {
	start := time.Now()
	runtime.GC()
	return time.Since(start), readMetric("/memory/classes/heap/objects:bytes")
}

// gcTime returns the CPU time of the garbage collector until the last collection.
func gcTime() time.Duration {
	ms := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}}
	metrics.Read(ms)
	return time.Duration(ms[0].Value.Float64() * float64(time.Second))
}

// memoryHeld returns the memory that the runtime has from the system.
func memoryHeld() uint64 {
	return readMetric("/memory/classes/total:bytes") - readMetric("/memory/classes/heap/released:bytes")
}

// readMetric reads a metric of the runtime. Unlike runtime.ReadMemStats it does not stop the
// program, which would disturb the measurement.
func readMetric(name string) uint64 {
	ms := []metrics.Sample{{Name: name}}
	metrics.Read(ms)
	return ms[0].Value.Uint64()
}
