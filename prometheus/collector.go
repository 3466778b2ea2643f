package timingwheelprom

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/nilcheck"
)

// Source is what a collector asks: a *[timingwheel.TimingWheel], a *[timingwheel.Timeouts], or what
// wraps one. Stats is called by each scrape, and by several at once.
type Source interface{ Stats() timingwheel.Stats }

// Options configures a collector. The zero value is ready to use.
type Options struct {
	// ConstLabels are labels that all series have, such as the name of a service. The label wheel
	// is not among them. Defaults to none.
	ConstLabels prometheus.Labels

	// ClassicOnly leaves the native histogram out. Defaults to false: a scraper that asks for
	// protobuf gets both.
	ClassicOnly bool
}

// ErrName is wrapped by the errors of [Collector.Add].
var ErrName = errors.New("timingwheelprom: bad name of a wheel")

// Collector is a [prometheus.Collector] of any number of wheels. Make one with [NewCollector]. All
// methods may be called at any time from any goroutine.
type Collector struct {
	numbers  []metric
	lateness *Lateness

	mu     sync.RWMutex
	wheels map[string]Source
}

// NewCollector returns a collector without wheels, to be registered once. It panics where a name of
// [Options.ConstLabels] is "wheel", which each series has, or not one that Prometheus accepts.
func NewCollector(opts Options) *Collector {
	if _, taken := opts.ConstLabels[wheelLabel]; taken {
		panic(`timingwheelprom: Options.ConstLabels has "wheel", which is the label of a wheel's name; accepted is any other name`)
	}
	numbers, lateness := describe(opts.ConstLabels)
	c := &Collector{
		numbers:  numbers,
		lateness: NewLateness(lateness, opts.ClassicOnly),
		wheels:   map[string]Source{},
	}
	for _, m := range c.numbers {
		if err := m.desc.Err(); err != nil {
			panic(fmt.Sprintf("timingwheelprom: Options.ConstLabels is %v: %v", opts.ConstLabels, err))
		}
	}
	return c
}

// Add shows a wheel from the next scrape on. The name, which becomes the label wheel, may be empty.
// A name that is in use or no UTF-8 gives an error that wraps [ErrName]; a nil source, also a nil
// pointer, panics. A wheel that is stopped stays until it is removed: its counters are still true.
// The collector keeps the wheel in memory until then.
func (c *Collector) Add(name string, s Source) error {
	if nilcheck.IsNil(s) {
		panic(fmt.Sprintf("timingwheelprom: Add of a nil %T as wheel %q", s, name))
	}
	if !utf8.ValidString(name) {
		return fmt.Errorf("%w: %q; accepted is UTF-8", ErrName, name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, taken := c.wheels[name]; taken {
		return fmt.Errorf("%w: %q is in use; accepted is a name that is not, or was removed", ErrName, name)
	}
	c.wheels[name] = s
	return nil
}

// Remove takes a wheel out and reports whether it was there. A scrape that is under way may still
// show it.
func (c *Collector) Remove(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, was := c.wheels[name]
	delete(c.wheels, name)
	return was
}

// Describe sends the descriptions of all metrics; see [prometheus.Collector].
func (c *Collector) Describe(descs chan<- *prometheus.Desc) {
	for _, m := range c.numbers {
		descs <- m.desc
	}
	descs <- c.lateness.Desc()
}

// Collect sends the metrics of all wheels; see [prometheus.Collector]. No lock is held while the
// wheels are asked.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	c.mu.RLock()
	wheels := maps.Clone(c.wheels)
	c.mu.RUnlock()
	for _, name := range slices.Sorted(maps.Keys(wheels)) {
		st := wheels[name].Stats()
		for _, m := range c.numbers {
			out <- prometheus.MustNewConstMetric(m.desc, m.kind, m.Float(&st), name)
		}
		out <- c.lateness.Metric(&st.Lateness, name)
	}
}
