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
	Done  int    `json:"done"`            // dead letters that were replayed or purged, or queues that were paused or resumed
	Error string `json:"error,omitempty"` // why not all were
}

// maxForm is the length of the form of an action in bytes. A name, an id and a reason fit, each
// byte as %XX.
const maxForm = 4 << 10

// sites refuses requests that a browser sends for another site. Programs that are no browsers pass.
var sites = http.NewCrossOriginProtection()

// act answers a POST.
func (h *Handler) act(w http.ResponseWriter, r *http.Request) {
	if !h.Actions {
		refuse(w, r, http.StatusForbidden, "actions are off; the option Actions of the handler turns them on")
		return
	}
	if err := sites.Check(r); err != nil {
		refuse(w, r, http.StatusForbidden, "the request comes from another site: "+err.Error())
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		refuse(w, r, http.StatusBadRequest, err.Error())
		return
	}
	name := r.PostForm.Get("queue")
	queue, ok := h.queues.Choose(name)
	if !ok || name == "" {
		refuse(w, r, http.StatusNotFound, fmt.Sprintf("no queue %q", name))
		return
	}
	do := actions[r.PostForm.Get("action")]
	if do == nil {
		refuse(w, r, http.StatusBadRequest, fmt.Sprintf("action %q: accepted are replay, purge, pause and resume", r.PostForm.Get("action")))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.timeout())
	defer cancel()
	n, err := do(ctx, queue.Thing.q, r.PostForm)
	queue.Thing.forget()
	outcome := Outcome{Done: n}
	if err != nil {
		outcome.Error = err.Error()
	}
	sendJSON(w, r, statusOf(err), &outcome)
}

// actions take the form of a request.
var actions = map[string]func(ctx context.Context, q *durable.Queue, form url.Values) (int, error){
	"replay": func(ctx context.Context, q *durable.Queue, form url.Values) (int, error) {
		if form.Has("id") {
			return single(q.Replay(ctx, form.Get("id"), 0))
		}
		return q.ReplayAll(ctx, durable.DeadFilter{Reason: form.Get("reason")}, durable.ReplayOptions{})
	},
	"purge": func(ctx context.Context, q *durable.Queue, form url.Values) (int, error) {
		if form.Has("id") {
			return single(q.Purge(ctx, form.Get("id")))
		}
		return q.PurgeAll(ctx, durable.DeadFilter{Reason: form.Get("reason")})
	},
	"pause":  func(ctx context.Context, q *durable.Queue, _ url.Values) (int, error) { return single(q.Pause(ctx)) },
	"resume": func(ctx context.Context, q *durable.Queue, _ url.Values) (int, error) { return single(q.Resume(ctx)) },
}

// single counts one dead letter or queue.
func single(err error) (int, error) {
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

func refuse(w http.ResponseWriter, r *http.Request, status int, why string) {
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
