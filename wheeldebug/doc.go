// Package wheeldebug serves a live page that shows the timing wheels of a process, and the same
// data as JSON for programs:
//
//	wheels := &wheeldebug.Handler{}
//	err := wheels.Add("requests", tw)
//	http.Handle("/debug/timingwheel/", wheels)
//
// All parts of the page are embedded in the binary, so the page needs no build step and fetches
// nothing from other hosts. The page shows the levels and the number of timers in their slots, the
// next expirations, pending timers and rates over time, the distribution of lateness, and wake-ups.
//
// # Exposure
//
// The page shows counts, times, the options of the wheels and the names passed to [Handler.Add]. It
// shows no data from callbacks or payloads, and it cannot change a wheel. The profile of a wheel
// with [github.com/timingwheel-go/timingwheel.Options].ProfileRate contains names of the program's
// functions and files. Like net/http/pprof, the page is for the operators of a program and not for
// its users, because it reveals the load of a service. The handler has no authentication: mount it
// on an address that is not public, or behind the authentication of your other debug pages. Pages
// from other sites cannot read or frame the page. The handler does not check the Host header: if
// DNS rebinding is a concern, check it before calling the handler.
//
// # Cost
//
// Without requests the handler has no goroutine and no timer. Requests read a wheel at most twice a
// second and share the result. Reading takes at most a twentieth of a processor per wheel. It holds
// each of the wheel's locks for 256 buckets at a time. A hidden page sends no requests.
//
// [Document] describes the JSON, and docs/operating.md describes the page.
package wheeldebug
