package debug

import (
	"embed"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/nilcheck"
	"github.com/timingwheel-go/timingwheel/internal/webpage"
)

// Source is a wheel as a Handler reads it. [timingwheel.TimingWheel] and [timingwheel.Timeouts] are
// sources. The handler calls the methods on the goroutine of a request, for one wheel on one
// goroutine at a time. A Source may also have the method WriteProfile, as these two have. The
// handler may call WriteProfile at the same time as the other methods.
type Source interface {
	Len() int
	Stats() timingwheel.Stats
	Occupancy() timingwheel.Occupancy
}

//go:embed assets
var ownAssets embed.FS

// assets are the parts of the page.
var assets = sync.OnceValue(func() webpage.Assets { return webpage.NewAssets(ownAssets) })

// Handler serves the page and the JSON of the wheels that were added. Its zero value has no wheels
// and is ready to use. A Handler may be mounted at any path and needs no [http.StripPrefix],
// because it reads the query only.
//
//	?                      the page
//	?wheel=NAME            the page, with that wheel chosen; without a name it is the first one that was added
//	?format=json           the wheel as JSON, see [Document]; also if the Accept header prefers application/json
//	?format=html           the page, whatever the Accept header says
//	?format=pprof          the profile of pending timers, for go tool pprof; takes &wheel=NAME, see
//	                       [timingwheel.Options.ProfileRate]
//
// All methods may be called at any time from any goroutine. A Handler must not be copied.
type Handler struct {
	wheels webpage.Registry[*wheelEntry]
	list   cache // of all names
}

// ErrName is wrapped by the errors of [Handler.Add].
var ErrName = errors.New("timingwheel/debug: bad name of a wheel")

// Add adds the wheel to the end of the list under the name. A name that is empty, longer than 128
// bytes, not UTF-8 or in use gives an error that wraps [ErrName], and changes nothing. A nil source
// or nil pointer panics. A stopped wheel may be added, and a wheel that is stopped later stays: the
// page shows its counters. The handler keeps the wheel in memory until Remove.
func (h *Handler) Add(name string, w Source) error {
	if nilcheck.IsNil(w) {
		panic(fmt.Sprintf("timingwheel/debug: Add of a nil %T as wheel %q", w, name))
	}
	if err := h.wheels.Add(name, &wheelEntry{name: name, source: w}); err != nil {
		return fmt.Errorf("%w: %w", ErrName, err)
	}
	h.list.invalidate()
	return nil
}

// Remove takes the wheel of that name off the page and reports whether there was one. Requests
// under way may still look at the wheel.
func (h *Handler) Remove(name string) bool {
	removed := h.wheels.Remove(name)
	h.list.invalidate()
	return removed
}

// ServeHTTP answers GET and HEAD, and refuses other methods.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	webpage.SetSecurityHeaders(w, r)
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method "+r.Method+": accepted are GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	query := r.URL.Query()
	if query.Has("asset") {
		assets().Serve(w, r, query.Get("asset"))
		return
	}
	w.Header().Set("Vary", "Accept")
	switch format := query.Get("format"); {
	case format == "json", format == "" && webpage.PrefersJSON(r.Header.Values("Accept")):
		h.serveJSON(w, r, query.Get("wheel"))
	case format == "", format == "html":
		assets().Serve(w, r, webpage.Name)
	case format == "pprof":
		h.serveProfile(w, r, query.Get("wheel"))
	default:
		http.Error(w, fmt.Sprintf("format %q: accepted are html, json and pprof", format), http.StatusBadRequest)
	}
}
