package durabledebug

import (
	"cmp"
	"embed"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/internal/webpage"
)

//go:embed assets
var own embed.FS

// assets returns the parts of the page.
var assets = sync.OnceValue(func() webpage.Assets { return webpage.NewAssets(own) })

// Handler serves the page and the JSON document for the queues that were added. The zero value has
// no queues and is ready to use. It may be served at any path and needs no [http.StripPrefix],
// because it ignores the path.
//
//	GET ?                  the page
//	GET ?queue=NAME        the page with this queue selected; without a name, the first queue
//	GET ?format=json       the JSON document, see the package; also selected by the Accept header
//	GET ?format=html       the page, regardless of the Accept header
//	POST                   an action, see [Handler.Actions]
//
// The fields must not change after the first request. All methods are safe for concurrent use. A
// Handler must not be copied.
type Handler struct {
	// Actions lets visitors replay and delete dead letters, and pause and resume queues. Defaults
	// to false: requests for these actions return status 403, and the page has no buttons. An
	// action is a POST with a form: action is replay, delete, pause or resume, and queue is the
	// name. To replay or delete, one more field selects dead letters: id, reason (a part of it), or
	// all=true. The id may also name a recurring message to replay: see [durable.Queue.Replay]. Any
	// other form returns 400 and changes nothing. The answer has the fields done and error.
	// Cross-site requests return 403.
	Actions bool

	// Headers shows the headers of dead letters and recurring messages. Defaults to false.
	Headers bool

	// Timeout is how long a request waits for a queue's store. After that a GET returns status 503,
	// and an action ends. If Timeout <= 0, it is 5 seconds. The page waits 10 seconds for an
	// answer.
	Timeout time.Duration

	queues webpage.Registry[*watchedQueue]
}

// Add adds a queue to the page under a name, after the queues already added. If the name is empty,
// longer than 128 bytes, not UTF-8 or in use, Add changes nothing and returns an error that wraps
// [durable.ErrInvalid]. It panics if q is nil. A closed queue stays on the page with an error. The
// handler keeps the queue alive until Remove is called.
func (h *Handler) Add(name string, q *durable.Queue) error {
	if q == nil {
		panic(fmt.Sprintf("durabledebug: Add with a nil queue as %q", name))
	}
	if err := h.queues.Add(name, &watchedQueue{name: name, q: q, lists: new(lists)}); err != nil {
		return fmt.Errorf("durabledebug: %w queue name: %w", durable.ErrInvalid, err)
	}
	return nil
}

// Remove removes the queue with the name from the page and reports whether there was one. Requests
// in progress may still read it.
func (h *Handler) Remove(name string) bool { return h.queues.Remove(name) }

func (h *Handler) timeout() time.Duration { return cmp.Or(max(h.Timeout, 0), 5*time.Second) }

// ServeHTTP answers GET, HEAD and POST, and rejects other methods with status 405.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	webpage.SetSecurityHeaders(w, r)
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		h.show(w, r)
	case http.MethodPost:
		h.serveAction(w, r)
	default:
		w.Header().Set("Allow", "GET, HEAD, POST")
		http.Error(w, "method is "+r.Method+"; it must be GET, HEAD or POST", http.StatusMethodNotAllowed)
	}
}

func (h *Handler) show(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if query.Has("asset") {
		assets().Serve(w, r, query.Get("asset"))
		return
	}
	w.Header().Set("Vary", "Accept")
	switch format := query.Get("format"); {
	case format == "json", format == "" && webpage.PrefersJSON(r.Header.Values("Accept")):
		status, document := h.document(r.Context(), query.Get("queue"))
		sendJSON(w, r, status, document)
	case format == "", format == "html":
		assets().Serve(w, r, webpage.Name)
	default:
		http.Error(w, fmt.Sprintf("format is %q; it must be html or json", format), http.StatusBadRequest)
	}
}
