package timingwheel

import "log/slog"

// LogValue makes a group of a log/slog record of it: what tells how a wheel fares, with quantiles in place of the histogram's
// counts. Counters and gauges of zero are left out, those apart that every record should have.
func (st Stats) LogValue() slog.Value {
	attrs := make([]slog.Attr, 0, 24)
	if st.Name != "" {
		attrs = append(attrs, slog.String("name", st.Name))
	}
	attrs = append(attrs,
		slog.Int("pending", st.Pending),
		slog.Uint64("armed", st.Armed),
		slog.Uint64("fired", st.Fired),
		slog.Uint64("stopped", st.Stopped),
		slog.Int("running", st.Running),
	)
	attrs = appendCounts(attrs, []count{
		{"postponed", st.Postponed},
		{"discarded", st.Discarded},
		{"rejected", st.Rejected},
		{"flushed", st.Flushed},
		{"moved", st.Moved},
		{"wakeups", st.Wakeups},
		{"workers", uint64(st.Workers)},
		{"buckets", uint64(st.Buckets)},
		{"bytes", st.Bytes},
		{"due", uint64(st.Due)},
		{"panics", st.Panics},
		{"slow", st.Slow},
		{"slow_running", uint64(st.SlowRunning)},
	})
	if st.Overdue > 0 {
		attrs = append(attrs, slog.Duration("overdue", st.Overdue))
	}
	if h := &st.Lateness; h.Count() > 0 {
		attrs = append(attrs, slog.Group("lateness",
			slog.Duration("p50", h.Quantile(0.5)),
			slog.Duration("p99", h.Quantile(0.99)),
			slog.Duration("max", h.Max),
		))
	}
	return slog.GroupValue(attrs...)
}

// count is an attribute that is left out where it is 0.
type count struct {
	key   string
	value uint64
}

func appendCounts(attrs []slog.Attr, counts []count) []slog.Attr {
	for _, c := range counts {
		if c.value > 0 {
			attrs = append(attrs, slog.Uint64(c.key, c.value))
		}
	}
	return attrs
}
