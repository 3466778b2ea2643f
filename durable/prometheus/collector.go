package durableprom

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/timingwheel-go/timingwheel/durable"
	timingwheelprom "github.com/timingwheel-go/timingwheel/prometheus"
)

// Source returns the figures of a queue. A *[durable.Queue] is one.
type Source interface {
	Stats(ctx context.Context) (durable.Stats, error)
}

// Options configures a collector. The zero value is ready to use.
type Options struct {
	// ConstLabels are labels that all series have. The labels queue and partition are not among
	// them. Defaults to none.
	ConstLabels prometheus.Labels

	// Timeout is how long a scrape waits for a store. It has to be shorter than the timeout of the
	// scraper. Defaults to 5 seconds. A negative one panics.
	Timeout time.Duration

	// Partitions gives each partition its own series, with the label partition, of the metrics that
	// are counted for each. The sum over the label is the queue. Defaults to false.
	Partitions bool

	// ClassicOnly leaves the native histogram of lateness out. Defaults to false: a scraper that
	// asks for protobuf gets both.
	ClassicOnly bool
}

// ErrName is wrapped by the errors of [Collector.Add].
var ErrName = errors.New("durableprom: bad name of a queue")

// Collector is a [prometheus.Collector] of any number of queues. Make one with [NewCollector]. All
// methods may be called at any time from any goroutine.
type Collector struct {
	opts     Options
	counts   []described[*durable.Counts]
	queue    []described[*durable.Stats]
	up       *prometheus.Desc
	lateness *timingwheelprom.Lateness

	mu      sync.RWMutex
	sources map[string]*watched
}

// watched is a queue of a collector.
type watched struct {
	Source
	asked atomic.Bool // a call of Stats is under way
}

// NewCollector returns a collector without queues, to be registered once. It panics if a name of
// Options.ConstLabels is queue or partition, or not one that Prometheus accepts, and if the timeout
// is negative.
func NewCollector(opts Options) *Collector {
	switch {
	case opts.Timeout < 0:
		panic(fmt.Sprintf("durableprom: Options.Timeout is %v; more than 0 is accepted, and 0 for 5s", opts.Timeout))
	case opts.Timeout == 0:
		opts.Timeout = 5 * time.Second
	}
	for _, label := range []string{queueLabel, partitionLabel} {
		if _, taken := opts.ConstLabels[label]; taken {
			panic(fmt.Sprintf("durableprom: Options.ConstLabels has %q, which is a label of the collector; any other name is accepted", label))
		}
	}
	var partition []string
	if opts.Partitions {
		partition = []string{partitionLabel}
	}
	lateness := desc(latenessName, latenessHelp, opts.ConstLabels)
	c := &Collector{
		opts:     opts,
		counts:   describeAll(countMetrics, opts.ConstLabels, partition...),
		queue:    describeAll(queueMetrics, opts.ConstLabels),
		up:       desc(upName, upHelp, opts.ConstLabels),
		lateness: timingwheelprom.NewLateness(lateness, opts.ClassicOnly),
		sources:  map[string]*watched{},
	}
	if err := c.up.Err(); err != nil {
		panic(fmt.Sprintf("durableprom: Options.ConstLabels is %v: %v", opts.ConstLabels, err))
	}
	return c
}

// Add shows a queue from the next scrape on. The name becomes the label queue. A name that is in
// use or no UTF-8 gives an error that wraps [ErrName]. A nil source panics. The collector keeps the
// queue in memory until it is removed. A queue that is closed is not up.
func (c *Collector) Add(name string, s Source) error {
	if q, ok := s.(*durable.Queue); s == nil || ok && q == nil {
		panic(fmt.Sprintf("durableprom: Add of a nil %T as queue %q", s, name))
	}
	if !utf8.ValidString(name) {
		return fmt.Errorf("%w: %q; accepted is UTF-8", ErrName, name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, taken := c.sources[name]; taken {
		return fmt.Errorf("%w: %q is in use; accepted is a name that is not, or was removed", ErrName, name)
	}
	c.sources[name] = &watched{Source: s}
	return nil
}

// Remove takes a queue out and reports whether it was there. A scrape that is under way may still
// show it.
func (c *Collector) Remove(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, was := c.sources[name]
	delete(c.sources, name)
	return was
}

// Describe sends the descriptions of all metrics; see [prometheus.Collector].
func (c *Collector) Describe(descs chan<- *prometheus.Desc) {
	for _, m := range c.counts {
		descs <- m.desc
	}
	for _, m := range c.queue {
		descs <- m.desc
	}
	descs <- c.up
	descs <- c.lateness.Desc()
}

// Collect asks all queues at the same time and sends their metrics; see [prometheus.Collector]. It
// returns after Options.Timeout, even if a source ignores its context.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	c.mu.RLock()
	sources := maps.Clone(c.sources)
	c.mu.RUnlock()
	var all sync.WaitGroup
	for name, w := range sources {
		all.Go(func() {
			stats, err := w.stats(c.opts.Timeout)
			if err != nil {
				out <- prometheus.MustNewConstMetric(c.up, gauge, 0, name)
				return
			}
			c.send(out, name, &stats)
		})
	}
	all.Wait()
}

func (c *Collector) send(out chan<- prometheus.Metric, name string, stats *durable.Stats) {
	out <- prometheus.MustNewConstMetric(c.up, gauge, 1, name)
	for _, m := range c.queue {
		m.send(out, stats, name)
	}
	for _, m := range c.counts {
		if !c.opts.Partitions {
			m.send(out, &stats.Counts, name)
			continue
		}
		for i := range stats.Partitions {
			m.send(out, &stats.Partitions[i], name, strconv.Itoa(i))
		}
	}
	out <- c.lateness.Metric(&stats.Lateness.Histogram, name)
}

var errBusy = errors.New("durableprom: the call of the last scrape is still under way")

// stats asks a queue. A source that does not return when its context ends is not asked again before
// it returns, so that scrapes do not accumulate goroutines.
func (w *watched) stats(timeout time.Duration) (durable.Stats, error) {
	if !w.asked.CompareAndSwap(false, true) {
		return durable.Stats{}, errBusy
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	type answer struct {
		durable.Stats
		error
	}
	answers := make(chan answer, 1)
	go func() {
		defer cancel()
		stats, err := w.Stats(ctx)
		w.asked.Store(false)
		answers <- answer{stats, err}
	}()
	select {
	case a := <-answers:
		return a.Stats, a.error
	case <-ctx.Done():
		select {
		case a := <-answers: // the context ended because Stats has returned
			return a.Stats, a.error
		default:
			return durable.Stats{}, ctx.Err()
		}
	}
}
