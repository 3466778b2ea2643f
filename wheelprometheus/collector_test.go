package wheelprometheus

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
)

// Accept headers of scrapers.
const (
	acceptText        = "text/plain;version=0.0.4"
	acceptOpenMetrics = "application/openmetrics-text;version=1.0.0"
	acceptProtobuf    = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
)

// fixedStats is a source with known statistics.
type fixedStats timingwheel.Stats

func (f *fixedStats) Stats() timingwheel.Stats { return timingwheel.Stats(*f) }

// newManualWheel returns a wheel in Manual mode and a function that advances its clock.
func newManualWheel(t *testing.T, opts timingwheel.Options) (*timingwheel.TimingWheel, func(time.Duration)) {
	t.Helper()
	opts.Manual = true
	tw, err := timingwheel.New(opts)
	require.NoError(t, err)
	t.Cleanup(tw.Stop)
	return tw, func(d time.Duration) { tw.Advance(tw.Now().Add(d)) }
}

// server is a registry behind a real HTTP server.
type server struct {
	*prometheus.Registry
	t   *testing.T
	url string
}

func serve(t *testing.T, collectors ...prometheus.Collector) *server {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	for _, c := range collectors {
		require.NoError(t, reg.Register(c))
	}
	s := httptest.NewServer(promhttp.HandlerFor(reg, promhttp.HandlerOpts{EnableOpenMetrics: true, ErrorHandling: promhttp.HTTPErrorOnError}))
	t.Cleanup(s.Close)
	return &server{reg, t, s.URL}
}

// get returns the body and the headers of a scrape.
func (s *server) get(accept string) ([]byte, http.Header) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url, nil)
	require.NoError(s.t, err)
	req.Header.Set("Accept", accept)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	require.Equal(s.t, http.StatusOK, resp.StatusCode, "%s", body)
	return body, resp.Header
}

// scrape returns the metrics of a scrape by name. It cannot decode OpenMetrics.
func (s *server) scrape(accept string) map[string]*dto.MetricFamily {
	s.t.Helper()
	body, header := s.get(accept)
	families := map[string]*dto.MetricFamily{}
	d := expfmt.NewDecoder(bytes.NewReader(body), expfmt.ResponseFormat(header))
	for {
		var f dto.MetricFamily
		err := d.Decode(&f)
		if err == io.EOF {
			return families
		}
		require.NoError(s.t, err)
		families[f.GetName()] = &f
	}
}

// value returns the value of a counter or gauge of a wheel.
func value(t *testing.T, families map[string]*dto.MetricFamily, name, wheel string) float64 {
	t.Helper()
	require.Contains(t, families, name)
	m := series(families[name], wheel)
	require.NotNil(t, m, "%s of wheel %q", name, wheel)
	if m.Counter != nil {
		return m.Counter.GetValue()
	}
	return m.Gauge.GetValue()
}

// series returns the metric of a wheel, or nil if there is none.
func series(f *dto.MetricFamily, wheel string) *dto.Metric {
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == wheelLabel && l.GetValue() == wheel {
				return m
			}
		}
	}
	return nil
}

// The names and units are the same in text and in protobuf.
func TestEveryNumberIsExported(t *testing.T) {
	t.Parallel()
	st := fixedStats{
		Pending: 1, Armed: 2, Fired: 3, Stopped: 4, Postponed: 5, Moved: 6, Wakeups: 7, Running: 8, Buckets: 9, Levels: 10, Bytes: 11,
		Due: 12, Overdue: 1500 * time.Millisecond, Discarded: 14, Rejected: 15, Flushed: 16,
		Panics: 19, Expired: 22, Shards: 21, Tick: 250 * time.Microsecond,
	}
	st.Lateness.Max = 2500 * time.Millisecond
	want := map[string]float64{
		"timers_pending": 1, "timers_armed_total": 2, "timers_fired_total": 3, "timers_stopped_total": 4, "timers_postponed_total": 5,
		"cascades_total": 6, "wakeups_total": 7, "callbacks_running": 8, "buckets": 9, "levels": 10, "memory_bytes": 11, "timers_due": 12,
		"overdue_seconds": 1.5, "timers_discarded_total": 14, "timers_rejected_total": 15, "timers_flushed_total": 16,
		"callback_panics_total": 19, "keyed_entries_expired": 22, "shards": 21,
		"tick_seconds": 0.00025, "lateness_max_seconds": 2.5,
	}
	c := NewCollector(Options{})
	require.NoError(t, c.Add("w", &st))
	s := serve(t, c)
	for _, accept := range []string{acceptText, acceptProtobuf} {
		families := s.scrape(accept)
		assert.Len(t, families, len(want)+1, "the numbers and the histogram")
		for name, v := range want {
			assert.Equal(t, v, value(t, families, "timingwheel_"+name, "w"), name)
		}
	}
}

// promlint checks names, units, types and help texts.
func TestMetricsPassLint(t *testing.T) {
	t.Parallel()
	c := NewCollector(Options{})
	tw, advance := newManualWheel(t, timingwheel.Options{})
	require.NoError(t, c.Add("w", tw))
	tw.AfterFunc(time.Second, func() {})
	advance(time.Minute)
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(c))
	problems, err := testutil.GatherAndLint(reg)
	require.NoError(t, err)
	require.Empty(t, problems)
}

// In OpenMetrics the names of counters end in _total, and the histogram has classic buckets.
func TestOpenMetricsScrape(t *testing.T) {
	t.Parallel()
	tw, advance := newManualWheel(t, timingwheel.Options{})
	c := NewCollector(Options{ConstLabels: prometheus.Labels{"service": "shop"}})
	require.NoError(t, c.Add("orders", tw))
	tw.AfterFunc(time.Second, func() {})
	advance(time.Minute)
	body, header := serve(t, c).get(acceptOpenMetrics)
	require.Contains(t, header.Get("Content-Type"), "application/openmetrics-text")
	text := string(body)
	require.Contains(t, text, "# TYPE timingwheel_timers_armed counter\n")
	require.Contains(t, text, `timingwheel_timers_armed_total{service="shop",wheel="orders"} 1.0`+"\n")
	require.Contains(t, text, "# TYPE timingwheel_lateness_seconds histogram\n")
	require.Contains(t, text, `timingwheel_lateness_seconds_bucket{service="shop",wheel="orders",le="+Inf"} 1`+"\n")
	require.Contains(t, text, `timingwheel_lateness_seconds_sum{service="shop",wheel="orders"} 59.0`+"\n")
	require.NotContains(t, text, "_created")
	require.Regexp(t, "# EOF\n$", text)
}

// Each of two wheels has its own series. A stopped wheel keeps its counters, and a removed wheel
// has no series.
func TestAddedWheelsAppearAndRemovedWheelsDisappear(t *testing.T) {
	t.Parallel()
	a, advance := newManualWheel(t, timingwheel.Options{})
	b, err := timingwheel.NewTimeouts(timingwheel.Options{Manual: true}, func([]int) {})
	require.NoError(t, err)
	c := NewCollector(Options{})
	s := serve(t, c)
	require.Empty(t, s.scrape(acceptText), "series without a wheel")
	require.NoError(t, c.Add("a", a))
	require.NoError(t, c.Add("b", b))
	for range 3 {
		a.AfterFunc(time.Second, func() {})
		b.Add(time.Hour, 1)
	}
	advance(time.Minute)
	families := s.scrape(acceptText)
	require.Equal(t, 3.0, value(t, families, "timingwheel_timers_fired_total", "a"))
	require.Equal(t, 0.0, value(t, families, "timingwheel_timers_fired_total", "b"))
	require.Equal(t, 3.0, value(t, families, "timingwheel_timers_pending", "b"))

	b.Stop()
	families = s.scrape(acceptText)
	require.Equal(t, 3.0, value(t, families, "timingwheel_timers_armed_total", "b"))
	require.Equal(t, 3.0, value(t, families, "timingwheel_timers_discarded_total", "b"))
	require.Equal(t, 0.0, value(t, families, "timingwheel_timers_pending", "b"))

	require.True(t, c.Remove("b"))
	require.False(t, c.Remove("b"))
	families = s.scrape(acceptText)
	require.Nil(t, series(families["timingwheel_timers_armed_total"], "b"))
	require.NotNil(t, series(families["timingwheel_timers_armed_total"], "a"))
	require.NoError(t, c.Add("b", a), "the name of a removed wheel can be used again")

	require.True(t, s.Unregister(c))
	require.Empty(t, s.scrape(acceptText))
	require.NoError(t, s.Register(c))
	require.Equal(t, 3.0, value(t, s.scrape(acceptText), "timingwheel_timers_fired_total", "b"))
}

func TestBadNamesAreRejected(t *testing.T) {
	t.Parallel()
	c := NewCollector(Options{})
	require.NoError(t, c.Add("", &fixedStats{}))
	require.NoError(t, c.Add("日本 \"\n", &fixedStats{}))
	for _, name := range []string{"", "\xff"} {
		err := c.Add(name, &fixedStats{})
		require.ErrorIs(t, err, ErrName)
		require.Contains(t, err.Error(), fmt.Sprintf("%q", name))
	}
	require.Panics(t, func() { c.Add("nil", nil) })
	require.PanicsWithValue(t, `wheelprometheus: Add with a nil *timingwheel.TimingWheel as wheel "none"`, func() { c.Add("none", (*timingwheel.TimingWheel)(nil)) })
	for _, label := range []string{"wheel", "", "__name__"} {
		require.Panics(t, func() { NewCollector(Options{ConstLabels: prometheus.Labels{label: "x"}}) }, "label %q", label)
	}
	require.Len(t, serve(t, c).scrape(acceptText)["timingwheel_buckets"].Metric, 2)
}

// Scrapes run while timers are armed, stopped and fired, and while another wheel is added and
// removed.
func TestCountersNeverDecrease(t *testing.T) {
	t.Parallel()
	tw, err := timingwheel.New(timingwheel.Options{Shards: 4})
	require.NoError(t, err)
	defer tw.Stop()
	c := NewCollector(Options{})
	require.NoError(t, c.Add("w", tw))
	s := serve(t, c)
	stop := make(chan struct{})
	var busy sync.WaitGroup
	for range 2 {
		busy.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				tw.AfterFunc(time.Duration(i%3)*time.Millisecond, func() {})
				tw.AfterFunc(time.Hour, func() {}).Stop()
				if i%16 == 0 {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	busy.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = c.Add("other", &fixedStats{})
				c.Remove("other")
				time.Sleep(time.Millisecond)
			}
		}
	})
	last := map[string]float64{}
	lastBuckets := map[float64]uint64{}
	counted := func() bool {
		return last["timingwheel_timers_fired_total"] > 0 && last["timingwheel_timers_stopped_total"] > 0
	}
	for i, begin := 0, time.Now(); i < 50 || !counted() && time.Since(begin) < time.Minute; i++ {
		families := s.scrape(acceptProtobuf)
		for name, f := range families {
			if f.GetType() != dto.MetricType_COUNTER {
				continue
			}
			v := value(t, families, name, "w")
			require.GreaterOrEqual(t, v, last[name], name)
			last[name] = v
		}
		h := series(families["timingwheel_lateness_seconds"], "w").GetHistogram()
		for bound, n := range nativeBuckets(t, h) {
			require.GreaterOrEqual(t, n, lastBuckets[bound])
			lastBuckets[bound] = n
		}
	}
	close(stop)
	busy.Wait()
	require.True(t, counted(), "%v", last)
	require.NotEmpty(t, lastBuckets)
}

// Metric names are valid for every version of Prometheus.
func TestNamesAreValidForOldPrometheus(t *testing.T) {
	t.Parallel()
	c := NewCollector(Options{})
	require.NoError(t, c.Add("w", &fixedStats{}))
	for name := range serve(t, c).scrape(acceptText) {
		require.True(t, model.LegacyValidation.IsValidMetricName(name), name)
	}
}
