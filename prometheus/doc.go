// Package timingwheelprom shows timing wheels to Prometheus.
//
//	tw, err := timingwheel.New(timingwheel.Options{Name: "sessions", SlowAfter: 50 * time.Millisecond})
//	…
//	wheels := timingwheelprom.NewCollector(timingwheelprom.Options{})
//	prometheus.MustRegister(wheels)
//	err = wheels.Add("sessions", tw)
//
// Every series has the label wheel, the name given to Add. Wheels may come and go while the
// collector is registered.
//
// # Lateness
//
// timingwheel_lateness_seconds is both a native histogram, for scrapers that ask for protobuf, and
// a classic one for all others. A wheel counts lateness in four buckets for each power of two of
// nanoseconds; a native histogram of schema 2 has four for each power of two of seconds. Each
// bucket of the wheel becomes the one native bucket that its upper bound falls in: no two meet
// there, and its bounds lie from 4% to 11% above the wheel's. So what Prometheus computes errs on
// the late side, by as much and the width of a bucket. The classic histogram has every fourth bound
// of the wheel's, without any shift.
//
// Lateness is sampled where [timingwheel.Stats] says so: the histogram's count is that of samples.
// For rates use timingwheel_timers_fired_total.
//
// # Cost
//
// A scrape calls Stats of each wheel, which takes the lock of one shard after the other for a step
// for each bucket and page. Between scrapes nothing is done.
//
// docs/metrics.md of the repository lists every metric, and alerts.
package timingwheelprom
