package wheelprometheus

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
	"github.com/timingwheel-go/timingwheel/internal/prommetric"
)

// Source is a wheel that a collector reads: a *[timingwheel.TimingWheel], a
// *[timingwheel.Timeouts], a set from package keyed, or a type that wraps one of these. Each scrape
// calls Stats, and several scrapes may run concurrently.
type Source interface{ Stats() timingwheel.Stats }

// Options configures a collector. The zero value is ready to use.
type Options struct {
	// ConstLabels are added to all series, for example the name of a service. They must not include
	// the label "wheel". Defaults to none.
	ConstLabels prometheus.Labels

	// ClassicOnly omits the native histogram. Defaults to false: a scraper that accepts protobuf
	// gets both histograms.
	ClassicOnly bool
}

// ErrName is wrapped by errors from [Collector.Add] for a name that is in use or not UTF-8.
var ErrName = errors.New("wheelprometheus: bad wheel name")

// Collector is a [prometheus.Collector] for any number of wheels. Make one with [NewCollector]. All
// methods may be called at any time from any goroutine.
type Collector struct {
	numbers     []metric
	lateness    *prometheus.Desc
	classicOnly bool

	mu     sync.RWMutex
	wheels map[string]Source
}

// NewCollector returns a collector without wheels. Register it once. NewCollector panics if a label
// in [Options.ConstLabels] is "wheel", which each series has already, or is not a valid label name.
func NewCollector(opts Options) *Collector {
	if _, taken := opts.ConstLabels[wheelLabel]; taken {
		panic(`wheelprometheus: Options.ConstLabels has "wheel", which is the label for the name of a wheel`)
	}
	numbers, lateness := describe(opts.ConstLabels)
	c := &Collector{
		numbers:     numbers,
		lateness:    lateness,
		classicOnly: opts.ClassicOnly,
		wheels:      map[string]Source{},
	}
	for _, m := range c.numbers {
		if err := m.desc.Err(); err != nil {
			panic(fmt.Sprintf("wheelprometheus: Options.ConstLabels is %v: %v", opts.ConstLabels, err))
		}
	}
	return c
}

// Add adds a wheel, which appears in all scrapes that begin later. The name becomes the label wheel
// and may be empty. If the name is in use or not UTF-8, Add returns an error that wraps [ErrName]
// and adds nothing. A stopped wheel keeps its counters and stays in the collector, and in memory,
// until [Collector.Remove]. Add panics if s is nil or a nil pointer.
func (c *Collector) Add(name string, s Source) error {
	if nilcheck.IsNil(s) {
		panic(fmt.Sprintf("wheelprometheus: Add with a nil %T as wheel %q", s, name))
	}
	if !utf8.ValidString(name) {
		return fmt.Errorf("%w: %q; it must be UTF-8", ErrName, name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, taken := c.wheels[name]; taken {
		return fmt.Errorf("%w: %q is in use; names must be unique", ErrName, name)
	}
	c.wheels[name] = s
	return nil
}

// Remove removes the wheel with the given name and reports whether there was one. A scrape that is
// in progress may still include the wheel. The name may be used again immediately.
func (c *Collector) Remove(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, found := c.wheels[name]
	delete(c.wheels, name)
	return found
}

// Describe sends the descriptions of all metrics to descs. It implements [prometheus.Collector].
func (c *Collector) Describe(descs chan<- *prometheus.Desc) {
	for _, m := range c.numbers {
		descs <- m.desc
	}
	descs <- c.lateness
}

// Collect calls Stats on all wheels and sends the metrics to out, in the order of the wheels'
// names. No lock is held during the calls to Stats. Collect implements [prometheus.Collector].
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	c.mu.RLock()
	wheels := maps.Clone(c.wheels)
	c.mu.RUnlock()
	for _, name := range slices.Sorted(maps.Keys(wheels)) {
		st := wheels[name].Stats()
		for _, m := range c.numbers {
			out <- prometheus.MustNewConstMetric(m.desc, m.kind, m.Float(&st), name)
		}
		out <- prommetric.Histogram(c.lateness, &st.Lateness, c.classicOnly, name)
	}
}
