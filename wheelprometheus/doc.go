// Package wheelprometheus exports the statistics of timing wheels to Prometheus.
//
//	tw, err := timingwheel.New(timingwheel.Options{Name: "sessions"})
//	…
//	wheels := wheelprometheus.NewCollector(wheelprometheus.Options{})
//	prometheus.MustRegister(wheels)
//	err = wheels.Add("sessions", tw)
//
// Every series has the label wheel, which is the name passed to Add. Wheels may be added and
// removed while the collector is registered.
//
// # Lateness
//
// timingwheel_lateness_seconds is a classic histogram, and by default also a native histogram for
// scrapers that accept protobuf. A wheel counts lateness in four buckets per power of two of
// nanoseconds. A native histogram of schema 2 has four buckets per power of two of seconds. The
// collector maps each bucket of the wheel to the native bucket that contains its upper bound. No
// two buckets of the wheel map to the same native bucket, and the native bucket's bounds are 4% to
// 11% higher than the wheel's. Quantiles that Prometheus computes are therefore too high by at most
// this shift and the width of a bucket. The bounds of the classic histogram are every fourth of the
// wheel's bounds, without a shift.
//
// # Cost
//
// A scrape calls Stats on each wheel, which locks one shard after the other. Between scrapes the
// collector does no work.
//
// docs/operating.md in the repository lists all metrics and suggests alerts.
package wheelprometheus
