package durabledebug

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/internal/webpage"
)

// Outcome is the answer to an action.
type Outcome struct {
	Done  int    `json:"done"`            // dead letters replayed or purged, or queues paused or resumed
	Error string `json:"error,omitempty"` // why some were not
}

// maxForm is the maximum size of the form of an action in bytes. A name, an id and a reason fit,
// with each byte encoded as %XX.
const maxForm = 4 << 10

// crossOrigin rejects cross-site requests of browsers. Requests of other programs pass.
var crossOrigin = http.NewCrossOriginProtection()

// serveAction answers a POST.
func (h *Handler) serveAction(w http.ResponseWriter, r *http.Request) {
	if !h.Actions {
		sendError(w, r, http.StatusForbidden, "actions are disabled; set Handler.Actions to enable them")
		return
	}
	if err := crossOrigin.Check(r); err != nil {
		sendError(w, r, http.StatusForbidden, "cross-site request: "+err.Error())
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		sendError(w, r, http.StatusBadRequest, err.Error())
		return
	}
	name := r.PostForm.Get("queue")
	queue, ok := h.queues.Choose(name)
	if !ok || name == "" {
		sendError(w, r, http.StatusNotFound, fmt.Sprintf("no queue %q", name))
		return
	}
	do := actions[r.PostForm.Get("action")]
	if do == nil {
		sendError(w, r, http.StatusBadRequest, fmt.Sprintf("action is %q; it must be replay, purge, pause or resume", r.PostForm.Get("action")))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.timeout())
	defer cancel()
	n, err := do(ctx, queue.Value.q, r.PostForm)
	queue.Value.forget()
	outcome := Outcome{Done: n}
	if err != nil {
		outcome.Error = err.Error()
	}
	sendJSON(w, r, statusOf(err), &outcome)
}

// actions maps the name of an action to its function, which takes the form of the request.
var actions = map[string]func(ctx context.Context, q *durable.Queue, form url.Values) (int, error){
	"replay": func(ctx context.Context, q *durable.Queue, form url.Values) (int, error) {
		if form.Has("id") {
			return countOne(q.Replay(ctx, form.Get("id"), 0))
		}
		return q.ReplayAll(ctx, durable.DeadFilter{Reason: form.Get("reason")}, durable.ReplayOptions{})
	},
	"purge": func(ctx context.Context, q *durable.Queue, form url.Values) (int, error) {
		if form.Has("id") {
			return countOne(q.Purge(ctx, form.Get("id")))
		}
		return q.PurgeAll(ctx, durable.DeadFilter{Reason: form.Get("reason")})
	},
	"pause":  func(ctx context.Context, q *durable.Queue, _ url.Values) (int, error) { return countOne(q.Pause(ctx)) },
	"resume": func(ctx context.Context, q *durable.Queue, _ url.Values) (int, error) { return countOne(q.Resume(ctx)) },
}

// countOne counts one dead letter or queue.
func countOne(err error) (int, error) {
	if err != nil {
		return 0, err
	}
	return 1, nil
}

func statusOf(err error) int {
	switch {
	case err == nil:
		return http.StatusOK
	case errors.Is(err, durable.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, durable.ErrInvalid):
		return http.StatusBadRequest
	}
	return http.StatusServiceUnavailable
}

func sendError(w http.ResponseWriter, r *http.Request, status int, why string) {
	sendJSON(w, r, status, &Outcome{Error: why})
}

func sendJSON(w http.ResponseWriter, r *http.Request, status int, answer any) {
	data, err := json.Marshal(answer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	webpage.Send(w, r, status, "application/json", data)
}
