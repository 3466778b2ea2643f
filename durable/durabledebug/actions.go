package durabledebug

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/internal/webpage"
)

// outcome is the answer to an action.
type outcome struct {
	Done  int    `json:"done"`            // dead letters replayed or deleted, or queues paused or resumed
	Error string `json:"error,omitempty"` // why some were not
}

// maxForm is the maximum size of a form in bytes. A name, an id and a reason fit, encoded as %XX.
const maxForm = 4 << 10

// crossOrigin rejects cross-site requests of browsers. Requests of other programs pass.
var crossOrigin = http.NewCrossOriginProtection()

// serveAction answers a POST.
func (h *Handler) serveAction(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	foreign, malformed := crossOrigin.Check(r), r.ParseForm()
	malformed = cmp.Or(malformed, checkForm(r.PostForm))
	for name := range r.URL.Query() {
		if name != "format" {
			malformed = fmt.Errorf("%s is in the URL; it must be in the form", name)
		}
	}
	queue, ok := h.queues.Choose(r.PostForm.Get("queue"))
	switch {
	case !h.Actions:
		sendJSON(w, r, http.StatusForbidden, &outcome{Error: "actions are disabled; set Handler.Actions to enable them"})
	case foreign != nil:
		sendJSON(w, r, http.StatusForbidden, &outcome{Error: "cross-site request: " + foreign.Error()})
	case malformed != nil:
		sendJSON(w, r, http.StatusBadRequest, &outcome{Error: malformed.Error()})
	case !ok:
		sendJSON(w, r, http.StatusNotFound, &outcome{Error: fmt.Sprintf("no queue %q", r.PostForm.Get("queue"))})
	default:
		ctx, cancel := context.WithTimeout(r.Context(), h.timeout())
		defer cancel()
		n, err := act(ctx, queue.Value.q, r.PostForm)
		queue.Value.forget()
		answer := outcome{Done: n}
		if err != nil {
			answer.Error = err.Error()
		}
		sendJSON(w, r, statusOf(err), &answer)
	}
}

// checkForm accepts action and queue and, to replay or delete, one of id, reason and all=true. A
// mistyped field must not select all dead letters.
func checkForm(form url.Values) error {
	selecting := 0
	for name, values := range form {
		switch {
		case len(values) != 1 || values[0] == "":
			return fmt.Errorf("%s is %q; it must have one value", name, values)
		case name == "id", name == "reason", name == "all" && values[0] == "true":
			selecting++
		case name != "action" && name != "queue":
			return fmt.Errorf("%s is %q; the fields are action, queue, id, reason and all=true", name, values[0])
		}
	}
	action, queue := form.Get("action"), form.Get("queue")
	switch needed, known := map[string]int{"replay": 1, "delete": 1, "pause": 0, "resume": 0}[action]; {
	case !known:
		return fmt.Errorf("action is %q; it must be replay, delete, pause or resume", action)
	case queue == "":
		return errors.New("queue is missing; it must be the name of a queue")
	case selecting != needed:
		return fmt.Errorf("%s has %d of the fields id, reason and all=true; it must have %d", action, selecting, needed)
	}
	return nil
}

// act performs the action of a form that checkForm accepts, and counts dead letters or queues.
func act(ctx context.Context, q *durable.Queue, form url.Values) (n int, err error) {
	id, filter := form.Get("id"), durable.DeadFilter{All: form.Has("all"), Reason: form.Get("reason")}
	switch action := form.Get("action"); {
	case action == "replay" && id == "":
		return q.ReplayAll(ctx, filter, durable.ReplayOptions{})
	case action == "delete" && id == "":
		return q.DeleteAllDead(ctx, filter)
	case action == "replay":
		err = q.Replay(ctx, id, 0)
	case action == "delete":
		err = q.DeleteDead(ctx, id)
	case action == "pause":
		err = q.Pause(ctx)
	case action == "resume":
		err = q.Resume(ctx)
	}
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

func sendJSON(w http.ResponseWriter, r *http.Request, status int, answer any) {
	data, err := json.Marshal(answer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	webpage.Send(w, r, status, "application/json", data)
}
