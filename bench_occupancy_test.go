package timingwheel

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// BenchmarkOccupancy looks at wheels of different sizes, from the usual one to one with a bucket in
// each of very many slots.
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
				armOn(s, rand.Int64N(int64(c.spread)), uint32(k))
			}
			b.ReportAllocs()
			for b.Loop() {
				if o := w.Occupancy(); o.Pending != c.pending {
					b.Fatal(fmt.Sprint(o.Pending))
				}
			}
		})
	}
	b.Run("impl=wheel/worst/pending=786k", func(b *testing.B) {
		w, err := NewTimeouts(Options{Manual: true, Tick: time.Microsecond, WheelSize: maxWheelSize, Shards: 4}, func([]uint32) {})
		if err != nil {
			b.Fatal(err)
		}
		defer w.Stop()
		slots := rand.Perm(3 * maxWheelSize) // in no order, as on a wheel that has turned for long
		for _, s := range w.engine.shards {
			for _, k := range slots {
				tick := int64(k%maxWheelSize) << (16 * (k / maxWheelSize))
				armOn(s, max(1, tick)*int64(time.Microsecond), 0)
			}
		}
		for b.Loop() {
			if o := w.Occupancy(); o.Pending != w.Len() {
				b.Fatal(o.Pending)
			}
		}
	})
}
