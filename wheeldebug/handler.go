package wheeldebug

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

// Source is a wheel that a [Handler] reads. A *[timingwheel.TimingWheel], a *[timingwheel.Timeouts]
// and the sets from package keyed are sources. For a source of another type the page shows no
// levels, unless that type is a struct that embeds one of these. The handler calls the methods on
// request goroutines, possibly concurrently. A Source may also have a method WriteProfile, like
// [timingwheel.TimingWheel.WriteProfile].
type Source interface {
	Len() int
	Stats() timingwheel.Stats
}

//go:embed assets
var ownAssets embed.FS

// assets returns the parts of the page.
var assets = sync.OnceValue(func() webpage.Assets { return webpage.NewAssets(ownAssets) })

// Handler serves the page and the JSON for the wheels that were added. The zero value has no wheels
// and is ready to use. A Handler may be mounted at any path and needs no [http.StripPrefix],
// because it reads only the query:
//
//	?                      the page
//	?wheel=NAME            the page for that wheel; without a name, for the first wheel
//	?format=json           the wheel as JSON: see [Document]; takes &wheel=NAME
//	?format=html           the page, regardless of the Accept header
//	?format=pprof          the profile of pending timers, for go tool pprof; takes &wheel=NAME;
//	                       see [timingwheel.Options.ProfileRate]
//
// Without a format, the Accept header chooses between the page and the JSON. All methods may be
// called at any time from any goroutine. A Handler must not be copied.
type Handler struct {
	wheels webpage.Registry[*wheelEntry]
	list   cache // the JSON of the list of wheels
}

// ErrName is wrapped by errors from [Handler.Add] for a name that is not valid or is in use.
var ErrName = errors.New("wheeldebug: bad wheel name")

// Add adds a wheel to the end of the list. If the name is empty, longer than 128 bytes, not UTF-8
// or in use, Add returns an error that wraps [ErrName] and adds nothing. Add accepts a stopped
// wheel. A wheel that is stopped later stays on the page, which then shows its final counters. The
// handler keeps the wheel in memory until [Handler.Remove]. Add panics if w is nil or a nil
// pointer.
func (h *Handler) Add(name string, w Source) error {
	if nilcheck.IsNil(w) {
		panic(fmt.Sprintf("wheeldebug: Add with a nil %T as wheel %q", w, name))
	}
	if err := h.wheels.Add(name, &wheelEntry{name: name, source: w}); err != nil {
		return fmt.Errorf("%w: %w", ErrName, err)
	}
	h.list.invalidate()
	return nil
}

// Remove removes the wheel with the given name and reports whether there was one. Requests that are
// in progress may still read the wheel. The name may be used again immediately.
func (h *Handler) Remove(name string) bool {
	removed := h.wheels.Remove(name)
	h.list.invalidate()
	return removed
}

// ServeHTTP serves GET and HEAD requests. It answers other methods with status 405, an unknown
// format with 400, and an unknown wheel with 404.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	webpage.SetSecurityHeaders(w, r)
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method is "+r.Method+"; it must be GET or HEAD", http.StatusMethodNotAllowed)
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
		http.Error(w, fmt.Sprintf("format is %q; it must be html, json or pprof", format), http.StatusBadRequest)
	}
}
