// Package debug serves a page that shows the timing wheels of a process while they turn, and the
// same as JSON for machines:
//
//	wheels := &debug.Handler{}
//	err := wheels.Add("requests", tw)
//	http.Handle("/debug/timingwheel/", wheels)
//
// The page has everything embedded: no build step, and nothing is fetched from elsewhere. It shows
// the levels and how many timers their slots hold, the next expirations, pending timers and rates
// over time, the distribution of lateness, and wake-ups.
//
// # Exposure
//
// Nothing that a callback or a payload holds is shown: only counts, times, options of the wheels
// and the names given to [Handler.Add]. The profile of a wheel with
// [github.com/timingwheel-go/timingwheel.Options].ProfileRate has the names of functions and files
// of the program. Nothing on the page changes a wheel. Still, like net/http/pprof the page is for
// the operators of a program and not for its users, because it shows the load of a service. Mount
// it on an address that is not public, or behind the authentication of your other debug pages: the
// handler has none.
//
// # Cost
//
// Without requests nothing runs: no goroutine, no timer. A request looks at a wheel at most twice a
// second, and all requests share the answer. Looking never takes more than a twentieth of a
// processor for each wheel. One look takes some tens of microseconds for a usual wheel and is
// bounded for any, see [github.com/timingwheel-go/timingwheel.TimingWheel.Occupancy]. A page that
// is hidden sends no requests.
//
// docs/debug.md has the schema of the JSON, figures, and what a visitor of the page can do.
package debug
