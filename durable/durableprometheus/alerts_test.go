package durableprometheus

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

// alerts are the alerts of the manual whose expressions compare a gauge with a number.
type alerts map[string]struct {
	metric string
	above  float64
}

func readAlerts(t *testing.T) alerts {
	t.Helper()
	manual, err := os.ReadFile("../../docs/durable-operations.md")
	require.NoError(t, err)
	all := alerts{}
	for _, row := range regexp.MustCompile("(?m)^\\| ([^|]*) \\| `(\\w+) > (\\d+)` \\|").FindAllSubmatch(manual, -1) {
		a := all[string(row[1])]
		a.metric = string(row[2])
		a.above, err = strconv.ParseFloat(string(row[3]), 64)
		require.NoError(t, err)
		all[string(row[1])] = a
	}
	return all
}

// firing returns the names of the alerts whose expressions hold.
func (all alerts) firing(t *testing.T, c prometheus.Collector) (names []string) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(c))
	families, err := reg.Gather()
	require.NoError(t, err)
	for name, a := range all {
		found := false
		for _, f := range families {
			if f.GetName() == a.metric {
				found = true
				if f.GetMetric()[0].GetGauge().GetValue() > a.above {
					names = append(names, name)
				}
			}
		}
		require.True(t, found, "the manual's alert %q is about %s, which is not exported", name, a.metric)
	}
	return names
}

// Consumers whose handlers never return raise the alerts of the manual. The alert of late messages
// ends when another consumer delivers what waits.
func TestAlertsFireIfHandlersHang(t *testing.T) {
	t.Parallel()
	all := readAlerts(t)
	require.Contains(t, all, "messages are late")
	for _, tt := range []struct {
		name  string
		quick int // messages that are handled before the handlers hang
	}{{"all handlers hang", 0}, {"after 50,000 quick messages", 50_000}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q, err := durable.Open(t.Context(), memstore.New(memstore.Options{}), durable.Options{OnError: func(error) {}})
				require.NoError(t, err)
				defer q.Close()
				c := NewCollector(Options{})
				require.NoError(t, c.Add("orders", q))
				messages := make([]durable.Message, tt.quick+1000)
				for i := range messages {
					messages[i] = durable.Message{ID: fmt.Sprint(i), Delay: time.Duration(i) * time.Millisecond / 5}
				}
				_, err = q.EnqueueBatch(t.Context(), messages)
				require.NoError(t, err)
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				handled := make(chan struct{}, tt.quick+1000)
				go q.Consume(ctx, func(ctx context.Context, d *durable.Delivery) error { //nolint:errcheck // the bubble ends
					if n, err := strconv.Atoi(d.ID); err == nil && n < tt.quick {
						return nil
					}
					<-ctx.Done()
					return ctx.Err()
				}, durable.ConsumerOptions{Visibility: 5 * time.Minute}) // few renewals
				time.Sleep(time.Minute)
				assert.ElementsMatch(t, []string{"messages are late"}, all.firing(t, c))
				time.Sleep(30 * time.Minute)
				assert.ElementsMatch(t, []string{"messages are late", "a handler hangs"}, all.firing(t, c))

				go q.Consume(ctx, func(context.Context, *durable.Delivery) error { //nolint:errcheck // the bubble ends
					handled <- struct{}{}
					return nil
				}, durable.ConsumerOptions{})
				time.Sleep(time.Minute)
				assert.ElementsMatch(t, []string{"a handler hangs"}, all.firing(t, c))
				assert.Len(t, handled, 1000-64, "all but those in the handlers that hang")
				cancel(errors.New("the test ends"))
				synctest.Wait()
			})
		})
	}
}
