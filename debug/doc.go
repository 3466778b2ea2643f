// Package debug serves a page that shows the timing wheels of a process while they turn, and the
// same as JSON for machines:
//
//	wheels := &debug.Handler{}
//	err := wheels.Add("requests", tw)
//	http.Handle("/debug/timingwheel/", wheels)
//
// All parts of the page are embedded, so it needs no build step and fetches nothing from other
// hosts. The page shows the levels and how many timers their slots hold, the next expirations,
// pending timers and rates over time, the distribution of lateness, and wake-ups.
//
// # Exposure
//
// The page shows counts, times, options of the wheels and the names given to [Handler.Add], and no
// data of callbacks or payloads. The profile of a wheel with
// [github.com/timingwheel-go/timingwheel.Options].ProfileRate has the names of functions and files
// of the program. The page changes no wheel. Like net/http/pprof, it is for the operators of a
// program and not for its users, because it shows the load of a service. The handler has no
// authentication: mount it on an address that is not public, or behind the authentication of your
// other debug pages.
//
// # Cost
//
// Without requests the handler has no goroutine and no timer. Requests look at a wheel at most
// twice a second and share the answer. Looking takes at most a twentieth of a processor for each
// wheel. One look takes some tens of microseconds for a usual wheel and is bounded for all wheels,
// see [github.com/timingwheel-go/timingwheel.TimingWheel.Occupancy]. A hidden page sends no
// requests.
//
// docs/debug.md has the schema of the JSON, figures, and the rights of a visitor of the page.
package debug
