package durableprometheus

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
	"github.com/timingwheel-go/timingwheel/internal/prommetric"
)

// Source provides the statistics of a queue. *[durable.Queue] implements Source.
type Source interface {
	// Stats returns the statistics, or an error if the store does not answer before ctx ends.
	Stats(ctx context.Context) (durable.Stats, error)
}

// Options configures a collector. The zero value is ready to use.
type Options struct {
	// ConstLabels are labels on all series. The names queue and partition are not accepted.
	// Defaults to none.
	ConstLabels prometheus.Labels

	// Timeout is how long a scrape waits for a store. It must be shorter than the scraper's
	// timeout. Zero means 5 seconds. A negative Timeout makes NewCollector panic.
	Timeout time.Duration

	// Partitions exports per-partition metrics as one series per partition, with the label
	// partition. Except for paused, their sum is the queue's value. Defaults to false.
	Partitions bool

	// ClassicOnly omits the native histogram of lateness. Defaults to false: a scraper that accepts
	// protobuf receives the classic and the native histogram.
	ClassicOnly bool
}

// ErrName is wrapped by the errors from [Collector.Add] for a name that is in use or not UTF-8.
var ErrName = errors.New("durableprometheus: bad queue name")

// Collector is a [prometheus.Collector] for any number of queues. Create a Collector with
// [NewCollector]. It is safe for concurrent use.
type Collector struct {
	opts     Options
	counts   []described[*durable.Counts]
	queue    []described[*durable.Stats]
	up       *prometheus.Desc
	lateness *prometheus.Desc

	mu      sync.RWMutex
	sources map[string]*registration
}

// registration is a queue of a collector.
type registration struct {
	Source
	inStats atomic.Bool // a call to Stats is under way
}

// NewCollector returns a collector without queues, to be registered once. It panics if a name in
// opts.ConstLabels is queue, partition or not accepted by Prometheus, or if opts.Timeout is
// negative.
func NewCollector(opts Options) *Collector {
	switch {
	case opts.Timeout < 0:
		panic(fmt.Sprintf("durableprometheus: Options.Timeout is %v; it must be positive, or 0 for 5s", opts.Timeout))
	case opts.Timeout == 0:
		opts.Timeout = 5 * time.Second
	}
	for _, label := range []string{queueLabel, partitionLabel} {
		if _, taken := opts.ConstLabels[label]; taken {
			panic(fmt.Sprintf("durableprometheus: Options.ConstLabels has %q, which is a label of the collector; it must be another name", label))
		}
	}
	var partition []string
	if opts.Partitions {
		partition = []string{partitionLabel}
	}
	c := &Collector{
		opts:     opts,
		counts:   describeAll(countMetrics, opts.ConstLabels, partition...),
		queue:    describeAll(queueMetrics, opts.ConstLabels),
		up:       desc(upName, upHelp, opts.ConstLabels),
		lateness: desc(latenessName, latenessHelp, opts.ConstLabels),
		sources:  map[string]*registration{},
	}
	if err := c.up.Err(); err != nil {
		panic(fmt.Sprintf("durableprometheus: Options.ConstLabels is %v: %v", opts.ConstLabels, err))
	}
	return c
}

// Add exports a queue from the next scrape on. name becomes the value of the label queue. Add
// returns an error that wraps [ErrName] if the name is in use or not UTF-8, and panics if s is nil.
// The collector keeps the queue in memory until Remove is called. A closed queue has only the
// series timingwheel_durable_up, which is 0.
func (c *Collector) Add(name string, s Source) error {
	if q, ok := s.(*durable.Queue); s == nil || ok && q == nil {
		panic(fmt.Sprintf("durableprometheus: Add with a nil %T as queue %q", s, name))
	}
	if !utf8.ValidString(name) {
		return fmt.Errorf("%w: %q; it must be UTF-8", ErrName, name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, taken := c.sources[name]; taken {
		return fmt.Errorf("%w: %q is in use; names must be unique", ErrName, name)
	}
	c.sources[name] = &registration{Source: s}
	return nil
}

// Remove removes a queue, and reports whether the collector had it. A scrape under way may still
// export the queue.
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
	descs <- c.lateness
}

// Collect calls Stats on all queues concurrently and sends their metrics; see
// [prometheus.Collector]. It returns within Options.Timeout, even if a source ignores its context.
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
	out <- prommetric.Histogram(c.lateness, &stats.Lateness.Histogram, c.opts.ClassicOnly, name)
}

var errBusy = errors.New("durableprometheus: the call for the last scrape is still under way")

// stats calls Stats of a queue. If a source does not return when its context ends, stats does not
// call it again before it has returned, so that scrapes do not accumulate goroutines.
func (w *registration) stats(timeout time.Duration) (durable.Stats, error) {
	if !w.inStats.CompareAndSwap(false, true) {
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
		w.inStats.Store(false)
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
