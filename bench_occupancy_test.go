package timingwheel

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// BenchmarkOccupancy looks at wheels of different sizes, from the usual one to one with very many slots.
func BenchmarkOccupancy(b *testing.B) {
	for _, c := range []struct {
		name    string
		opts    Options
		pending int
		spread  time.Duration
	}{
		{"empty", Options{}, 0, 0},
		{"default/pending=1k", Options{}, 1000, time.Minute},
		{"default/pending=1M", Options{}, 1_000_000, time.Hour},
		{"shards=64/pending=1M", Options{Shards: 64}, 1_000_000, time.Hour},
		{"size=65536/shards=4/pending=1M", Options{WheelSize: 65536, Shards: 4}, 1_000_000, time.Hour},
	} {
		b.Run("impl=wheel/"+c.name, func(b *testing.B) {
			c.opts.Manual = true
			w, err := NewTimeouts(c.opts, func([]uint32) {})
			if err != nil {
				b.Fatal(err)
			}
			defer w.Stop()
			for k := range c.pending {
				s := w.engine.shards[k%len(w.engine.shards)]
				s.lock()
				s.arm(rand.Int64N(int64(c.spread)), uint32(k))
				s.mu.Unlock()
			}
			b.ReportAllocs()
			for b.Loop() {
				if o := w.Occupancy(); o.Pending != c.pending {
					b.Fatal(fmt.Sprint(o.Pending))
				}
			}
		})
	}
}
