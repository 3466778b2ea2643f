package main

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestEachHandlesEachItemOnce(t *testing.T) {
	t.Parallel()
	for _, sizes := range [][]int{nil, {0}, {1}, {chunk}, {chunk + 1, 0, 3 * chunk, 17}} {
		ph := &phase{}
		done := make([][]atomic.Int32, len(sizes))
		total := 0
		for w, size := range sizes {
			done[w] = make([]atomic.Int32, size)
			total += size
		}
		ph.each(context.Background(), sizes, func(w, from, to int) {
			for i := from; i < to; i++ {
				done[w][i].Add(1)
			}
		})
		assert.EqualValues(t, total, ph.done.Load())
		for w := range done {
			for i := range done[w] {
				assert.EqualValues(t, 1, done[w][i].Load())
			}
		}
	}
}

func TestEachEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	ph := &phase{}
	ph.each(ctx, []int{10 * chunk}, func(_, from, _ int) {
		if from == 2*chunk {
			cancel()
		}
	})
	assert.EqualValues(t, 3*chunk, ph.done.Load())
}

func TestFiguresOfAPhase(t *testing.T) {
	t.Parallel()
	ph := &phase{name: "arm", total: 4_000_000, parallel: 2, ended: true, took: 2 * time.Second, cpu: time.Second}
	assert.Zero(t, ph.nanos())
	assert.Zero(t, ph.cpuNanos())
	ph.done.Store(4_000_000)
	assert.InDelta(t, 1000, ph.nanos(), 1e-9) // 2 s on 2 goroutines for 4M
	assert.InDelta(t, 250, ph.cpuNanos(), 1e-9)
	assert.InDelta(t, 2e6, ph.rate(), 1e-9)
	assert.Equal(t, "arm 4,000,000  1000 ns", ph.line())
	ph.detail = func() string { return "28.8 B/timer" }
	ph.pauses.merge(pauses{3, time.Millisecond})
	ph.pauses.merge(pauses{4, 200 * time.Microsecond})
	assert.Equal(t, "arm 4,000,000  1000 ns  28.8 B/timer  7 GC, pause up to 1.0ms", ph.line())
	ph.pace = clocked
	assert.Contains(t, ph.line(), "arm 4,000,000  2.00 M/s")
	ph.pace = idle
	assert.Contains(t, ph.line(), "arm 2.0s")

	var out bytes.Buffer
	d := newDisplay(&out)
	ph.total = 16_000_000
	d.update(ph, ph.line())
	assert.Regexp(t, `^ 25% arm 2\.0s .*\n$`, out.String())
	out.Reset()
	d.end(&phase{name: "nothing to do"}, "nothing to do")
	assert.Empty(t, out.String())
}

func TestCollectionsAreCounted(t *testing.T) {
	w := newGCWatch()
	took, heap := collectGarbage()
	assert.Positive(t, took)
	assert.Positive(t, heap)
	p := w.since()
	assert.Positive(t, p.collections)
	assert.Positive(t, p.longest)
}
