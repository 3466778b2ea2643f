package durableprometheus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

// The formats that scrapers ask for.
const (
	acceptText     = "text/plain;version=0.0.4"
	acceptProtobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
)

// fixed is a queue with fixed statistics.
type fixed durable.Stats

func (f *fixed) Stats(context.Context) (durable.Stats, error) { return durable.Stats(*f), nil }

// source is a function as a Source.
type source func(ctx context.Context) (durable.Stats, error)

func (s source) Stats(ctx context.Context) (durable.Stats, error) { return s(ctx) }

// scraped is the result of a scrape.
type scraped map[string]*dto.MetricFamily

// scrape registers collectors and scrapes them over HTTP.
func scrape(t *testing.T, accept string, collectors ...prometheus.Collector) scraped {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	for _, c := range collectors {
		require.NoError(t, reg.Register(c))
	}
	s := httptest.NewServer(promhttp.HandlerFor(reg,
		promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	defer s.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
	require.NoError(t, err)
	req.Header.Set("Accept", accept)
	resp, err := s.Client().Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, "%s", body)
	families := scraped{}
	d := expfmt.NewDecoder(bytes.NewReader(body), expfmt.ResponseFormat(resp.Header))
	for {
		var f dto.MetricFamily
		err := d.Decode(&f)
		if err == io.EOF {
			return families
		}
		require.NoError(t, err)
		families[f.GetName()] = &f
	}
}

// series returns the metrics that have the given labels.
func (s scraped) series(name string, labels prometheus.Labels) (found []*dto.Metric) {
	for _, m := range s["timingwheel_durable_"+name].GetMetric() {
		match := 0
		for _, l := range m.GetLabel() {
			if v, ok := labels[l.GetName()]; ok && v == l.GetValue() {
				match++
			}
		}
		if match == len(labels) {
			found = append(found, m)
		}
	}
	return found
}

// value returns the value of the only metric that has the given labels.
func (s scraped) value(t *testing.T, name string, labels prometheus.Labels) float64 {
	t.Helper()
	found := s.series(name, labels)
	require.Len(t, found, 1, "%s %v", name, labels)
	if c := found[0].Counter; c != nil {
		return c.GetValue()
	}
	return found[0].Gauge.GetValue()
}

// Each number of Stats is exported under its name, for the queue or for each partition.
func TestEveryStatisticIsExported(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_700_000_000_000)
	counts := durable.Counts{
		Now: now, Scheduled: 1, Due: 2, InFlight: 3, Dead: 4, DeadBytes: 5,
		NextDue: now.Add(-1500 * time.Millisecond),
		Counters: driver.Counters{Enqueued: 6, Acked: 7, Retried: 8, Buried: 9, Cancelled: 10, Crashed: 11,
			Expired: 12, Trimmed: 13},
		Unreadable: 17, Lost: 18, Paused: true,
	}
	st := fixed{
		Counts: counts, Partitions: []durable.Counts{{}, counts},
		Prefetched: 14, Firing: 15, Consumers: 16, Unowned: 19,
		Overdue: 20, OverdueFor: 1500 * time.Millisecond, OldestRun: 2500 * time.Millisecond,
	}
	perPartition := map[string]float64{
		"messages_pending": 1, "messages_due": 2, "messages_leased": 3,
		"messages_dead": 4, "dead_bytes": 5,
		"messages_enqueued_total": 6, "messages_acked_total": 7, "messages_retried_total": 8,
		"messages_buried_total":    9,
		"messages_cancelled_total": 10, "crashes_total": 11, "messages_expired_total": 12,
		"dead_trimmed_total": 13, "messages_unreadable": 17, "messages_lost_total": 18, "paused": 1,
	}
	whole := map[string]float64{
		"up": 1, "partitions": 2, "partitions_unowned": 19, "consumers": 16,
		"messages_prefetched": 14, "messages_firing": 15,
		"messages_overdue": 20, "overdue_seconds": 1.5, "oldest_run_seconds": 2.5,
	}
	for _, partitions := range []bool{false, true} {
		c := NewCollector(Options{Partitions: partitions,
			ConstLabels: prometheus.Labels{"service": "shop"}})
		require.NoError(t, c.Add("orders", &st))
		for _, accept := range []string{acceptText, acceptProtobuf} {
			s := scrape(t, accept, c)
			assert.Len(t, s, len(perPartition)+len(whole)+1, "and the histogram")
			labels := prometheus.Labels{"queue": "orders", "service": "shop"}
			for name, v := range whole {
				assert.Equal(t, v, s.value(t, name, labels), name)
			}
			if partitions {
				labels["partition"] = "1"
			}
			for name, v := range perPartition {
				assert.Equal(t, v, s.value(t, name, labels), name)
			}
			if partitions {
				labels["partition"] = "0"
				for name := range perPartition {
					assert.Zero(t, s.value(t, name, labels), name)
				}
			}
		}
	}
}

// A scrape of a queue in use has its counts, and each delivery in the histogram. promlint accepts
// the names and units.
func TestScrapeOfQueueInUseHasItsCounts(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	q, err := durable.Open(t.Context(), store, durable.Options{Partitions: 2})
	require.NoError(t, err)
	defer q.Close()
	c := NewCollector(Options{})
	require.NoError(t, c.Add("orders", q))
	s := scrape(t, acceptText, c)
	require.EqualValues(t, 2, s.value(t, "partitions_unowned", nil))
	for i := range 10 {
		expire := time.Now().Add(time.Duration(2*i-7) * time.Hour)
		_, err := q.Enqueue(t.Context(), durable.Message{ID: fmt.Sprint(i), ExpireAt: expire})
		require.NoError(t, err)
	}
	_, err = q.Enqueue(t.Context(), durable.Message{ID: "later", Delay: time.Hour})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- q.Consume(ctx, func(_ context.Context, d *durable.Delivery) error {
			if d.ID == "9" {
				return durable.Reject(errors.New("bad"))
			}
			return nil
		}, durable.ConsumerOptions{})
	}()
	require.Eventually(t, func() bool {
		stats, err := q.Stats(t.Context())
		return err == nil && stats.Scheduled == 1 && stats.InFlight == 0 && stats.Consumers == 1 && stats.Unowned == 0
	}, time.Minute, time.Millisecond)
	s = scrape(t, acceptProtobuf, c)
	for name, want := range map[string]float64{
		"up": 1, "messages_pending": 1, "messages_enqueued_total": 11, "messages_acked_total": 5,
		"messages_expired_total": 4,
		"messages_buried_total":  1, "messages_dead": 1, "overdue_seconds": 0, "consumers": 1,
		"partitions_unowned": 0,
	} {
		assert.Equal(t, want, s.value(t, name, prometheus.Labels{"queue": "orders"}), name)
	}
	h := s.series("lateness_seconds", prometheus.Labels{"queue": "orders"})[0].Histogram
	assert.EqualValues(t, 6, h.GetSampleCount())
	assert.EqualValues(t, 2, h.GetSchema())
	assert.NotEmpty(t, h.PositiveSpan)
	assert.Len(t, h.Bucket, 23, "powers of two of nanoseconds from 16 µs to 69 s")
	cancel()
	require.NoError(t, <-done)

	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(c))
	problems, err := testutil.GatherAndLint(reg)
	require.NoError(t, err)
	require.Empty(t, problems)
	q.Close()
	s = scrape(t, acceptText, c)
	require.Len(t, s, 1, "a closed queue has only the series up")
	require.Zero(t, s.value(t, "up", prometheus.Labels{"queue": "orders"}))
}

// A store that does not answer delays a scrape by the timeout at most, even if it ignores its
// context. Other queues are exported, and the queue is exported again when its store answers.
func TestStoreThatDoesNotAnswerDoesNotBlockScrapes(t *testing.T) {
	t.Parallel()
	back := make(chan struct{})
	calls := 0
	c := NewCollector(Options{Timeout: 50 * time.Millisecond})
	require.NoError(t, c.Add("deaf", source(func(context.Context) (durable.Stats, error) {
		calls++
		<-back
		return durable.Stats{}, nil
	})))
	require.NoError(t, c.Add("slow", source(func(ctx context.Context) (durable.Stats, error) {
		<-ctx.Done()
		return durable.Stats{}, ctx.Err()
	})))
	require.NoError(t,
		c.Add("broken", source(func(context.Context) (durable.Stats, error) { return durable.Stats{}, durable.ErrUnavailable })))
	require.NoError(t, c.Add("well", &fixed{Consumers: 3}))
	for range 3 {
		s := scrape(t, acceptText, c)
		for queue, up := range map[string]float64{"deaf": 0, "slow": 0, "broken": 0, "well": 1} {
			require.Equal(t, up, s.value(t, "up", prometheus.Labels{"queue": queue}), queue)
			require.Len(t, s.series("consumers", prometheus.Labels{"queue": queue}), int(up), queue)
			require.Len(t, s.series("lateness_seconds", prometheus.Labels{"queue": queue}), int(up),
				queue)
		}
	}
	close(back)
	require.Eventually(t, func() bool {
		return scrape(t, acceptText, c).value(t, "up", prometheus.Labels{"queue": "deaf"}) == 1
	}, time.Minute, time.Millisecond)
	require.Equal(t, 2, calls, "Stats is not called while a call is under way")
}

func TestQueuesAreAddedAndRemoved(t *testing.T) {
	t.Parallel()
	c := NewCollector(Options{})
	require.Empty(t, scrape(t, acceptText, c))
	require.NoError(t, c.Add("a", &fixed{}))
	require.ErrorIs(t, c.Add("a", &fixed{}), ErrName)
	require.ErrorIs(t, c.Add("\xff", &fixed{}), ErrName)
	require.Panics(t, func() { _ = c.Add("nil", nil) })
	require.Panics(t, func() { _ = c.Add("nil", (*durable.Queue)(nil)) })
	require.Len(t, scrape(t, acceptText, c).series("up", nil), 1)
	require.True(t, c.Remove("a"))
	require.False(t, c.Remove("a"))
	require.Empty(t, scrape(t, acceptText, c))
	for _, labels := range []string{"queue", "partition", "", "__name__"} {
		require.Panics(t,
			func() { NewCollector(Options{ConstLabels: prometheus.Labels{labels: "x"}}) }, labels)
	}
	require.Panics(t, func() { NewCollector(Options{Timeout: -1}) })
}

// Each lateness is counted in its native bucket and in the classic buckets with a higher bound.
func TestLatenessIsCountedInItsBuckets(t *testing.T) {
	t.Parallel()
	var l durable.Lateness
	for d, n := range map[time.Duration]int{0: 1, 999 * time.Microsecond: 2, time.Second: 1, 20 * time.Minute: 3} {
		for range n {
			l.Histogram.Record(d)
		}
	}
	c := NewCollector(Options{})
	require.NoError(t, c.Add("q", &fixed{Lateness: l}))
	h := scrape(t, acceptProtobuf, c).series("lateness_seconds", nil)[0].Histogram
	require.EqualValues(t, 7, h.GetSampleCount())
	require.InDelta(t, 3601, h.GetSampleSum(), 1)
	require.EqualValues(t, 1, h.GetZeroCount())
	native := map[float64]int64{} // by upper bound
	index, n := int32(0), int64(0)
	for i, next := 0, 0; i < len(h.PositiveSpan); i++ {
		index += h.PositiveSpan[i].GetOffset()
		for range h.PositiveSpan[i].GetLength() {
			if n += h.PositiveDelta[next]; n > 0 {
				native[math.Exp2(float64(index)/4)] = n
			}
			index, next = index+1, next+1
		}
	}
	require.Len(t, native, 3)
	for late, want := range map[float64]int64{0.000999: 2, 1: 1, 1200: 3} {
		found := int64(0)
		for bound, n := range native {
			if bound >= late && bound < 1.6*late {
				found = n
			}
		}
		require.Equal(t, want, found, "%v s: %v", late, native)
	}
	classic := map[float64]uint64{}
	for _, b := range h.Bucket {
		classic[b.GetUpperBound()] = b.GetCumulativeCount()
	}
	bound := func(e int) float64 { return (time.Duration(1) << e).Seconds() }
	require.EqualValues(t, 1, classic[bound(19)])
	require.EqualValues(t, 3, classic[bound(20)])
	require.EqualValues(t, 4, classic[bound(30)])
	require.EqualValues(t, 4, classic[bound(36)])

	c = NewCollector(Options{ClassicOnly: true})
	require.NoError(t, c.Add("q", &fixed{Lateness: l}))
	h = scrape(t, acceptProtobuf, c).series("lateness_seconds", nil)[0].Histogram
	require.Empty(t, h.PositiveSpan)
	require.NotEmpty(t, h.Bucket)
}
