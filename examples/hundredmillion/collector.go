package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// pauses are those of the garbage collector in some time.
type pauses struct {
	collections int64
	longest     time.Duration // that everything stood still for one collection
}

func (p *pauses) merge(o pauses) {
	p.collections += o.collections
	p.longest = max(p.longest, o.longest)
}

// collectorWatch tells the pauses since it was last asked. It is for one goroutine.
type collectorWatch struct{ seen int64 }

func newCollectorWatch() *collectorWatch {
	w := &collectorWatch{}
	w.since()
	return w
}

// since returns the pauses since the call before. The runtime remembers those of the last 256
// collections.
func (w *collectorWatch) since() (p pauses) {
	var st debug.GCStats
	debug.ReadGCStats(&st)
	p.collections = st.NumGC - w.seen
	for _, d := range st.Pause[:min(p.collections, int64(len(st.Pause)))] { // the latest comes first
		p.longest = max(p.longest, d)
	}
	w.seen = st.NumGC
	return p
}

// collect runs a full collection and returns how long it took and what is left.
func collect() (took time.Duration, heap uint64) {
	start := time.Now()
	runtime.GC()
	took = time.Since(start)
	return took, measure("/memory/classes/heap/objects:bytes")
}

// collectorTime is the time of processors that the collector has used, as of the last collection.
func collectorTime() time.Duration {
	ms := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}}
	metrics.Read(ms)
	return time.Duration(ms[0].Value.Float64() * float64(time.Second))
}

// held is the memory that the runtime has from the system.
func held() uint64 {
	return measure("/memory/classes/total:bytes") - measure("/memory/classes/heap/released:bytes")
}

// measure reads one number from the runtime. Unlike runtime.ReadMemStats it does not stop the
// program, which would disturb what is measured.
func measure(name string) uint64 {
	ms := []metrics.Sample{{Name: name}}
	metrics.Read(ms)
	return ms[0].Value.Uint64()
}
