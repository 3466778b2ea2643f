package durable_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/durabletest"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

func quiet() durable.Options {
	return durable.Options{OnError: func(error) {}, Logger: slog.New(slog.DiscardHandler)}
}

func succeed(context.Context, *durable.Delivery) error { return nil }

// pending returns the only message of a queue.
func pending(t *testing.T, test *durabletest.Tester) durable.Record {
	t.Helper()
	all := test.Pending()
	require.Len(t, all, 1)
	return all[0]
}

// The rows with changes of the clocks are the same as in package schedule.
func TestRunsOfARecurringMessage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ start, repeat, runs string }{
		{"2030-01-01 12:00:00 UTC", "@every 10m", "12:10:00 12:20:00 12:30:00"},
		{"2030-01-01 12:00:00 UTC", "@every 1h0m1s", "13:00:01 14:00:02"},
		{"2030-01-01 12:00:00 UTC", "@every 1m0.0015s", "12:01:00.002 12:02:00.004 12:03:00.006"}, // rounded up to milliseconds,
		{"2030-01-01 12:00:00 UTC", "30 13 * * *", "13:30:00 13:30:00"},
		{"2030-01-01 12:00:00 UTC", "@hourly", "13:00:00 14:00:00"},
		{"2030-01-01 12:00:00 Asia/Tokyo", "0 8 * * *", "17:00:00 17:00:00"}, // UTC
		{"2030-01-01 12:00:00 Asia/Tokyo", "CRON_TZ=Asia/Tokyo 0 8 * * *", "08:00:00 08:00:00"},
		{"2030-03-31 00:50:00 Europe/Berlin", "TZ=Europe/Berlin */15 * * * *", "01:00:00 01:15:00 01:30:00 01:45:00 03:00:00 03:15:00"},
		{"2030-03-30 03:00:00 Europe/Berlin", "CRON_TZ=Europe/Berlin 30 2 * * *", "03:00:00 02:30:00"},
		{"2030-03-30 03:00:00 Europe/Berlin", "CRON_TZ=Europe/Berlin 10,20 2 * * *", "03:00:00 02:10:00"},
		{"2030-10-27 01:50:00 Europe/Berlin", "CRON_TZ=Europe/Berlin */30 * * * *", "02:00:00 02:30:00 02:00:00 02:30:00 03:00:00"},
		{"2030-10-26 22:30:00 Europe/Berlin", "CRON_TZ=Europe/Berlin 0 */2 * * *", "00:00:00 02:00:00 04:00:00"},
		{"2030-10-27 01:50:00 Europe/Berlin", "CRON_TZ=Europe/Berlin 30 2 * * *", "02:30:00 02:30:00"},
		{"2030-10-27 01:50:00 Europe/Berlin", "CRON_TZ=Europe/Berlin 10,20 2 * * *", "02:10:00 02:20:00 02:10:00"},
		{"2030-11-03 01:10:00 America/New_York", "CRON_TZ=America/New_York */30 * * * *", "01:30:00 01:00:00 01:30:00 02:00:00"},
		{"2030-10-06 00:10:00 Australia/Lord_Howe", "CRON_TZ=Australia/Lord_Howe 0 * * * *", "01:00:00 02:30:00 03:00:00"},
		{"2030-10-05 04:00:00 Australia/Lord_Howe", "CRON_TZ=Australia/Lord_Howe 0 3 * * *", "03:00:00 03:00:00"},
		{"2030-04-07 01:20:00 Australia/Lord_Howe", "CRON_TZ=Australia/Lord_Howe */15 * * * *", "01:30:00 01:45:00 01:30:00 01:45:00 02:00:00"},
		{"2030-03-09 01:00:00 America/Havana", "CRON_TZ=America/Havana 0 0 * * *", "01:00:00 00:00:00"},
		{"2030-11-02 01:00:00 America/Havana", "CRON_TZ=America/Havana 0 0 * * *", "00:00:00 00:00:00"},
	} {
		text, zone := c.start[:19], c.start[20:]
		loc, err := time.LoadLocation(zone)
		require.NoError(t, err)
		start, err := time.ParseInLocation(time.DateTime, text, loc)
		require.NoError(t, err)
		q, test := durabletest.New(t, durable.Options{})
		test.Advance(start.Sub(storeTime(t, q)))
		_, err = q.Enqueue(t.Context(), durable.Message{ID: "m", Repeat: c.repeat})
		require.NoError(t, err)
		var runs []string
		last := start
		for range strings.Fields(c.runs) {
			due := pending(t, test).Due
			require.True(t, due.After(last), c.repeat)
			runs = append(runs, due.In(loc).Format("15:04:05.999"))
			test.Advance(due.Sub(last))
			require.Len(t, test.RunDue(t.Context(), succeed, durable.ConsumerOptions{}), 1)
			last = due
		}
		assert.Equal(t, strings.Fields(c.runs), runs, "%s %s", c.start, c.repeat)
	}
}

// storeTime returns the time on the clock of a queue.
func storeTime(t *testing.T, q *durable.Queue) time.Time {
	t.Helper()
	return counters(t, q).Now
}

func TestInvalidSeries(t *testing.T) {
	t.Parallel()
	q, test := durabletest.New(t, durable.Options{})
	for _, repeat := range []string{
		" ", "1 2 3 4", "61 * * * *", "0 0 30 2 *", "@every", "@every 0s", "@every -1s", "@every 1us", "@reboot", "@weekly extra",
		"CRON_TZ=Mars/Olympus 0 8 * * *", "CRON_TZ=UTC", "0 8 * * * *", "H * * * *", "0 8 L * *",
		"@every 1h" + strings.Repeat(" ", 255), "\x00", "0 8 * * *" + strings.Repeat(",1", 130),
	} {
		_, err := q.Enqueue(t.Context(), durable.Message{ID: "m", Repeat: repeat})
		require.ErrorIs(t, err, durable.ErrInvalid, repeat)
		require.ErrorContains(t, err, `@every`, repeat)
		_, err = q.SetRepeat(t.Context(), "m", repeat)
		require.ErrorIs(t, err, durable.ErrInvalid, repeat)
	}
	assert.Empty(t, test.Pending())
	_, err := q.SetRepeat(t.Context(), "", "@hourly")
	require.ErrorIs(t, err, durable.ErrInvalid)
	r, err := q.SetRepeat(t.Context(), "none", "@hourly")
	require.NoError(t, err)
	assert.Equal(t, durable.ResultNotFound, r)
	_, err = q.Enqueue(t.Context(), durable.Message{Repeat: "@hourly", ExpireAt: time.Unix(1, 0)})
	require.ErrorIs(t, err, durable.ErrInvalid)
}

// A series begins when At or Delay say, and ends at ExpireAt.
func TestSeriesBeginsAndEnds(t *testing.T) {
	t.Parallel()
	q, test := durabletest.New(t, durable.Options{})
	now := storeTime(t, q)
	_, err := q.Enqueue(t.Context(), durable.Message{
		ID: "m", At: now.Add(time.Hour), Repeat: "@every 20m", ExpireAt: now.Add(130 * time.Minute),
	})
	require.NoError(t, err)
	var runs []time.Duration
	for i := range 12 {
		if i == 7 {
			assert.Equal(t, now.Add(130*time.Minute+time.Millisecond), pending(t, test).Due, "a consumer removes it then")
		}
		test.RunDue(t.Context(), func(_ context.Context, d *durable.Delivery) error {
			assert.Equal(t, "m", d.ID)
			runs = append(runs, storeTime(t, q).Sub(now))
			return nil
		}, durable.ConsumerOptions{})
		test.Advance(20 * time.Minute)
	}
	assert.Equal(t, []time.Duration{60 * time.Minute, 80 * time.Minute, 100 * time.Minute, 120 * time.Minute}, runs)
	assert.Empty(t, test.Pending())
	assert.EqualValues(t, 1, counters(t, q).Expired)
	_, err = q.Enqueue(t.Context(), durable.Message{ID: "now", Delay: 1, Repeat: "@daily"})
	require.NoError(t, err)
	assert.Equal(t, time.Millisecond, pending(t, test).Due.Sub(storeTime(t, q)))
}

func counters(t *testing.T, q *durable.Queue) durable.Counts {
	t.Helper()
	stats, err := q.Stats(t.Context())
	require.NoError(t, err)
	return stats.Counts
}

// A run is retried like any message. After its last attempt it ends with an event and is due at the
// next time, with fresh attempts. Missed times are skipped, and retries do not move the series.
func TestFailedRunsAreNoDeadLetters(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*durable.Delivery) error{
		"attempts": func(*durable.Delivery) error { return durable.Fail(assert.AnError, 15*time.Minute) },
		"Reject":   func(*durable.Delivery) error { return durable.Reject(assert.AnError) },
		"Bury":     func(d *durable.Delivery) error { return d.Bury(context.Background(), "") },
		"panic":    func(*durable.Delivery) error { panic(assert.AnError) },
	} {
		q, test := durabletest.New(t, quiet())
		_, err := q.Enqueue(t.Context(), durable.Message{ID: "m", Repeat: "@every 10m", MaxAttempts: 2})
		require.NoError(t, err)
		first := pending(t, test).Due
		kinds := []durable.EventKind{}
		for range 40 {
			test.Advance(time.Minute)
			for _, e := range test.RunDue(t.Context(), func(_ context.Context, d *durable.Delivery) error { return fail(d) }, durable.ConsumerOptions{}) {
				kinds = append(kinds, e.Kind)
				assert.Equal(t, e.Kind == durable.EventRunFailed || e.Kind == durable.EventRetried, e.Err != nil)
			}
			if slices.Contains(kinds, durable.EventRunFailed) {
				break
			}
		}
		assert.Equal(t, durable.EventRunFailed, kinds[len(kinds)-1], name)
		m := pending(t, test)
		assert.Zero(t, m.Attempts, name)
		assert.NotEmpty(t, m.Reason, name)
		assert.Zero(t, m.Due.Sub(first)%(10*time.Minute), name)
		wait := m.Due.Sub(storeTime(t, q))
		assert.True(t, wait > 0 && wait <= 10*time.Minute, "%s: %v", name, wait)
		c := counters(t, q)
		assert.Zero(t, c.Dead, name)
		assert.Zero(t, c.Acked, name)
		assert.EqualValues(t, len(kinds), c.Retried, name)
		test.Advance(wait)
		assert.Equal(t, durable.EventAgain, test.RunDue(t.Context(), succeed, durable.ConsumerOptions{})[0].Kind)
		assert.Empty(t, pending(t, test).Reason)
	}
}

// Changes during a run take effect when it ends, however it ends.
func TestChangesOfARunningRecurringMessage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(t *testing.T, q *durable.Queue)
		due    time.Duration // after the run; 0: the message is gone
		body   string
	}{
		"none": {func(*testing.T, *durable.Queue) {}, time.Hour, "old"},
		"SetRepeat": {func(t *testing.T, q *durable.Queue) {
			r, err := q.SetRepeat(t.Context(), "m", "@every 5m")
			require.NoError(t, err)
			assert.Equal(t, durable.ResultRescheduled, r)
		}, 5 * time.Minute, "old"},
		"once more": {func(t *testing.T, q *durable.Queue) {
			r, err := q.SetRepeat(t.Context(), "m", "")
			require.NoError(t, err)
			assert.Equal(t, durable.ResultRescheduled, r)
		}, 0, ""},
		"Replace": {func(t *testing.T, q *durable.Queue) {
			_, err := q.Enqueue(t.Context(), durable.Message{ID: "m", Body: []byte("new"), Repeat: "@every 7m", Replace: true})
			require.NoError(t, err)
			_, err = q.Enqueue(t.Context(), durable.Message{ID: "m", Replace: true})
			require.ErrorIs(t, err, durable.ErrFiring)
		}, 7 * time.Minute, "new"},
		"Cancel": {func(t *testing.T, q *durable.Queue) {
			for range 2 {
				r, err := q.Cancel(t.Context(), "m")
				require.NoError(t, err)
				assert.Equal(t, durable.ResultFiring, r)
			}
		}, 0, ""},
		"Reschedule": {func(t *testing.T, q *durable.Queue) {
			r, err := q.Reschedule(t.Context(), "m", 0)
			require.NoError(t, err)
			assert.Equal(t, durable.ResultFiring, r)
		}, time.Hour, "old"},
	} {
		for end, err := range map[string]error{"success": nil, "failure": durable.Reject(assert.AnError)} {
			q, test := durabletest.New(t, quiet())
			_, errEnqueue := q.Enqueue(t.Context(), durable.Message{ID: "m", Body: []byte("old"), Repeat: "@every 1h"})
			require.NoError(t, errEnqueue)
			test.Advance(time.Hour)
			test.RunDue(t.Context(), func(context.Context, *durable.Delivery) error {
				c.change(t, q)
				return err
			}, durable.ConsumerOptions{})
			if c.due == 0 {
				assert.Empty(t, test.Pending(), "%s, %s", name, end)
				continue
			}
			m := pending(t, test)
			assert.Equal(t, c.due, m.Due.Sub(storeTime(t, q)), "%s, %s", name, end)
			assert.Equal(t, c.body, string(m.Body), "%s, %s", name, end)
		}
	}
}

// Without Interrupt, Cancel ends the series and lets the run go on, with its retries.
func TestCancelOfARunningRecurringMessageLetsItRun(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
		_, err := q.Enqueue(t.Context(), durable.Message{ID: "m", Delay: 1, Repeat: "@every 10m", MaxAttempts: 2})
		require.NoError(t, err)
		runs := 0
		stop := consume(t, q, func(ctx context.Context, d *durable.Delivery) error {
			if runs++; runs > 1 {
				return assert.AnError // it is no dead letter
			}
			r, err := q.Cancel(ctx, "m")
			assert.NoError(t, err)
			assert.Equal(t, durable.ResultFiring, r)
			select {
			case <-ctx.Done():
				t.Error("interrupted")
			case <-time.After(5 * time.Minute):
			}
			return assert.AnError
		}, durable.ConsumerOptions{})
		time.Sleep(30 * time.Minute)
		stop()
		assert.Equal(t, 2, runs)
		_, err = q.Get(t.Context(), "m")
		require.ErrorIs(t, err, durable.ErrNotFound)
	})
}

// A consumer removes a series after its ExpireAt, unless it was replaced during its last run.
func TestLastRunOfASeries(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(ctx context.Context, q *durable.Queue) error{
		"none": func(context.Context, *durable.Queue) error { return nil },
		"SetRepeat": func(ctx context.Context, q *durable.Queue) error {
			_, err := q.SetRepeat(ctx, "m", "@every 10s")
			return err
		},
		"Replace": func(ctx context.Context, q *durable.Queue) error {
			_, err := q.Enqueue(ctx, durable.Message{ID: "m", Repeat: "@every 1m", Replace: true})
			return err
		},
	} {
		bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
			start := time.Now()
			_, err := q.Enqueue(t.Context(), durable.Message{ID: "m", Repeat: "@every 1m", ExpireAt: start.Add(90 * time.Second)})
			require.NoError(t, err)
			var runs []time.Duration
			stop := consume(t, q, func(ctx context.Context, _ *durable.Delivery) error {
				if runs = append(runs, time.Since(start).Round(time.Second)); len(runs) == 1 {
					return change(ctx, q)
				}
				return nil
			}, durable.ConsumerOptions{})
			time.Sleep(151 * time.Second)
			stop()
			assert.Equal(t, map[string][]time.Duration{
				"none":      {60 * time.Second},
				"SetRepeat": {60 * time.Second, 70 * time.Second, 80 * time.Second, 90 * time.Second},
				"Replace":   {60 * time.Second, 120 * time.Second},
			}[name], runs, name)
			assert.EqualValues(t, map[string]int{"none": 1, "SetRepeat": 1}[name], counters(t, q).Expired, name)
		})
	}
}

// A message that has replaced a running one is not delivered before its time, however the run ends.
func TestReplacedRunIsNotEarly(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(ctx context.Context, d *durable.Delivery) error{
		"success":  func(context.Context, *durable.Delivery) error { return nil },
		"Fail":     func(context.Context, *durable.Delivery) error { return durable.Fail(assert.AnError, time.Minute) },
		"Postpone": func(context.Context, *durable.Delivery) error { return durable.Postpone(0) },
		"Again":    func(context.Context, *durable.Delivery) error { return durable.Again(0) },
		"Release":  func(ctx context.Context, d *durable.Delivery) error { return d.Release(ctx) },
	} {
		q, test := durabletest.New(t, quiet())
		_, err := q.Enqueue(t.Context(), durable.Message{ID: "m", Body: []byte("old"), Repeat: "@every 1h"})
		require.NoError(t, err)
		test.Advance(time.Hour)
		at := storeTime(t, q).Add(48 * time.Hour)
		test.RunDue(t.Context(), func(ctx context.Context, d *durable.Delivery) error {
			_, err := q.Enqueue(ctx, durable.Message{ID: "m", Body: []byte("new"), At: at, Repeat: "@every 1h", Replace: true})
			assert.NoError(t, err)
			return end(ctx, d)
		}, durable.ConsumerOptions{})
		assert.Equal(t, at, pending(t, test).Due, name)
		test.Advance(48 * time.Hour)
		require.Len(t, test.RunDue(t.Context(), func(_ context.Context, d *durable.Delivery) error {
			assert.Equal(t, "new", string(d.Body))
			assert.Equal(t, at, d.Planned)
			return nil
		}, durable.ConsumerOptions{}), 1, name)
		assert.Equal(t, at.Add(time.Hour), pending(t, test).Due, name)
	}
}

// Reschedule moves the next run. An interval counts from it, and a daily run follows as planned.
func TestRunOfARecurringMessageNow(t *testing.T) {
	t.Parallel()
	q, test := durabletest.New(t, quiet())
	_, err := q.Enqueue(t.Context(), durable.Message{ID: "m", Repeat: "@every 1h"})
	require.NoError(t, err)
	moved := storeTime(t, q).Add(time.Minute)
	_, err = q.RescheduleAt(t.Context(), "m", moved)
	require.NoError(t, err)
	test.Advance(10 * time.Minute)
	require.Len(t, test.RunDue(t.Context(), succeed, durable.ConsumerOptions{}), 1)
	assert.Equal(t, moved.Add(time.Hour), pending(t, test).Due)
	_, err = q.Enqueue(t.Context(), durable.Message{ID: "m", Repeat: "@daily", Replace: true})
	require.NoError(t, err)
	day := pending(t, test).Due
	_, err = q.Reschedule(t.Context(), "m", 0)
	require.NoError(t, err)
	runs := map[time.Time]int{}
	test.RunDue(t.Context(), func(_ context.Context, d *durable.Delivery) error {
		if runs[d.Planned]++; d.Attempts == 0 {
			return durable.Fail(assert.AnError, 0)
		}
		return nil
	}, durable.ConsumerOptions{})
	assert.Equal(t, []int{2}, slices.Collect(maps.Values(runs)), "the added run has a Planned of its own, and is retried")
	assert.Equal(t, day, pending(t, test).Due)
	r, err := q.SetRepeat(t.Context(), "m", "@every 3h")
	require.NoError(t, err)
	assert.Equal(t, durable.ResultRescheduled, r)
	assert.Equal(t, 3*time.Hour, pending(t, test).Due.Sub(storeTime(t, q)))
	_, err = q.SetRepeat(t.Context(), "m", "")
	require.NoError(t, err)
	assert.Equal(t, 3*time.Hour, pending(t, test).Due.Sub(storeTime(t, q)))
	test.Advance(3 * time.Hour)
	require.Len(t, test.RunDue(t.Context(), succeed, durable.ConsumerOptions{}), 1)
	assert.Empty(t, test.Pending(), "it was due once more")
}

// A queue in a bubble whose clock can be set.
func withClock(t *testing.T, body func(t *testing.T, q *durable.Queue, now func() time.Time, step func(time.Duration), reported func() error)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var off atomic.Int64
		off.Store(int64(10 * year))
		now := func() time.Time { return time.Now().Add(time.Duration(off.Load())) }
		var mu sync.Mutex
		var reports []error
		q := open(t, memstore.New(memstore.Options{Now: now}), durable.Options{OnError: func(err error) {
			mu.Lock()
			defer mu.Unlock()
			reports = append(reports, err)
		}})
		reported := func() error {
			mu.Lock()
			defer mu.Unlock()
			return errors.Join(reports...)
		}
		body(t, q, now, func(d time.Duration) { off.Add(int64(d)) }, reported)
		q.Close()
	})
}

const year = 365 * 24 * time.Hour

// Small steps of the clock repeat no run. After a step by years, consumers plan the runs again.
func TestClockSetBackDoesNotSilenceASeries(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, q *durable.Queue, now func() time.Time, step func(time.Duration), reported func() error) {
		for _, m := range []durable.Message{
			{ID: "minutes", Repeat: "* * * * *"},
			{ID: "daily", Repeat: "0 8 * * *"},
			{ID: "yearly", Repeat: "@yearly", At: now().Add(30 * year)}, // on purpose
			{ID: "once", Delay: time.Hour},
		} {
			_, err := q.Enqueue(t.Context(), m)
			require.NoError(t, err)
		}
		var runs atomic.Int64
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error {
			if d.ID == "minutes" {
				runs.Add(1)
			}
			return nil
		}, durable.ConsumerOptions{})
		time.Sleep(10*time.Minute + time.Second)
		assert.EqualValues(t, 10, runs.Load())
		step(-30 * time.Second)
		time.Sleep(10*time.Minute + 30*time.Second)
		assert.EqualValues(t, 20, runs.Load(), "none is repeated")
		step(-10 * year)
		time.Sleep(10*time.Minute + time.Second)
		assert.InDelta(t, 30, runs.Load(), 1)
		due := func(id string) time.Duration {
			r, err := q.Get(t.Context(), id)
			require.NoError(t, err)
			return r.Due.Sub(now())
		}
		assert.Less(t, due("daily"), 24*time.Hour)
		assert.Greater(t, due("yearly"), 30*year)
		assert.Greater(t, due("once"), 9*year, "messages keep their times")
		stop()
		assert.ErrorContains(t, reported(), "recurring messages were planned again")
	})
}

// The clock is set back by a year, or a little more than is small, at any time of a series: also
// while its message is claimed ahead, runs, or waits for a retry. Another message, which begins
// at that time, must not hide the step.
func TestClockSetBackAtAnyTime(t *testing.T) {
	t.Parallel()
	for _, back := range []time.Duration{10*time.Hour + 17*time.Second, year} {
		for _, at := range []time.Duration{time.Second, 30 * time.Second, 55 * time.Second, 59900 * time.Millisecond, 61 * time.Second, 75 * time.Second} {
			withClock(t, func(t *testing.T, q *durable.Queue, _ func() time.Time, step func(time.Duration), _ func() error) {
				_, err := q.Enqueue(t.Context(), durable.Message{ID: "m", Repeat: "@every 1m"})
				require.NoError(t, err)
				enqueue(t, q, "other", at+100*time.Millisecond)
				var runs []time.Time
				stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error {
					if d.ID == "m" {
						runs = append(runs, time.Now())
						time.Sleep(5 * time.Second)
						if len(runs) == 1 {
							return durable.Fail(assert.AnError, 20*time.Second)
						}
					}
					return nil
				}, durable.ConsumerOptions{Horizon: 10 * time.Second, Fallback: 500 * time.Millisecond})
				time.Sleep(at)
				step(-back)
				time.Sleep(10 * time.Minute)
				stop()
				assert.InDelta(t, 10, len(runs), 3, "back %v at %v", back, at)
			})
		}
	}
}

// The pauses of a series differ, and the store fails once while its runs are planned again.
func TestClockSetBackInAPauseOfASeries(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, q *durable.Queue, now func() time.Time, step func(time.Duration), _ func() error) {
		time.Sleep(now().Truncate(24 * time.Hour).Add(46 * time.Hour).Sub(now())) // 22:00
		_, err := q.Enqueue(t.Context(), durable.Message{ID: "m", Repeat: "0 9-17 * * *"})
		require.NoError(t, err)
		runs := 0
		stop := consume(t, q, func(context.Context, *durable.Delivery) error { runs++; return nil },
			durable.ConsumerOptions{Fallback: time.Minute, Membership: time.Hour, Visibility: 2 * time.Hour})
		time.Sleep(2 * time.Minute)
		step(-year)
		time.Sleep(24 * time.Hour)
		stop()
		assert.Equal(t, 9, runs)
	})
}

// An Enqueue that sees a step of the clock first does not hide it from the consumer.
func TestEnqueueSeesAStepFirst(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, q *durable.Queue, _ func() time.Time, step func(time.Duration), _ func() error) {
		runs := 0
		stop := consume(t, q, func(context.Context, *durable.Delivery) error { runs++; return nil },
			durable.ConsumerOptions{Fallback: time.Minute, Membership: time.Hour, Visibility: 2 * time.Hour})
		_, err := q.Enqueue(t.Context(), durable.Message{ID: "m", Repeat: "@every 10m"})
		require.NoError(t, err)
		time.Sleep(30 * time.Second)
		step(-year)
		_, err = q.Enqueue(t.Context(), durable.Message{ID: "m", Repeat: "0 8 * * *"})
		require.ErrorIs(t, err, durable.ErrDuplicate)
		time.Sleep(time.Hour)
		stop()
		assert.InDelta(t, 6, runs, 1)
	})
}

// A process that only enqueues reads the store's clock again.
func TestFirstRunFollowsTheStoresClock(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{26 * time.Hour, -5 * year} {
		withClock(t, func(t *testing.T, q *durable.Queue, now func() time.Time, step func(time.Duration), _ func() error) {
			for i := range 2 {
				_, err := q.Enqueue(t.Context(), durable.Message{ID: "m", Repeat: "0 8 * * *", Replace: true})
				require.NoError(t, err)
				r, err := q.Get(t.Context(), "m")
				require.NoError(t, err)
				wait := r.Due.Sub(now())
				assert.True(t, wait > 0 && wait <= 24*time.Hour, "%v after the step by %v: %v", i, by, wait)
				step(by)
				time.Sleep(time.Hour)
			}
		})
	}
}
