package debug

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// maxAge is how long an answer is good. It is shorter than the second after which a page asks again, so that one viewer always gets a new
// one, and bounds what any number of them costs.
const maxAge = 500 * time.Millisecond

// patience is for how many times as long as it took an answer is good at least: to look at a wheel of very many slots may take tens of
// milliseconds, and must not keep a processor busy.
const patience = 20

// cache holds JSON for a while. Whoever finds it too old makes it anew, and the others wait for that: there is one look at a time.
type cache struct {
	mu    sync.Mutex
	until time.Time
	data  json.RawMessage
}

// fresh returns what is cached or, where that is too old, what look returns.
func (c *cache) fresh(look func() any) (json.RawMessage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.data != nil && time.Now().Before(c.until) {
		return c.data, nil
	}
	began := time.Now()
	data, err := json.Marshal(look())
	if err != nil {
		return nil, err
	}
	now := time.Now()
	c.data, c.until = data, now.Add(max(maxAge, patience*now.Sub(began)))
	return data, nil
}

// forget lets the next one look anew.
func (c *cache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.data = nil
}

// watched is a wheel that was added.
type watched struct {
	name   string
	source Source
	json   cache
}

// serveJSON answers with the list and the wheel of that name, or without a name the first one.
func (h *Handler) serveJSON(w http.ResponseWriter, r *http.Request, name string) {
	data, status, err := h.document(name)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(data) // nobody is left to tell
	}
}

func (h *Handler) document(name string) (data []byte, status int, err error) {
	// What there is, is asked within fresh: what was asked before would outlive a Remove or an Add meanwhile.
	wheels, err := h.list.fresh(func() any { return list(h.all()) })
	if err != nil {
		return nil, 0, err
	}
	w := choose(h.all(), name)
	if w == nil {
		missing := ""
		status = http.StatusOK
		if name != "" {
			missing, status = fmt.Sprintf("no wheel %q", name), http.StatusNotFound
		}
		data, err = assemble(missing, wheels, json.RawMessage("null"))
		return data, status, err
	}
	wheel, err := w.json.fresh(func() any { return look(w.name, w.source) })
	if err != nil {
		return nil, 0, err
	}
	data, err = assemble("", wheels, wheel)
	return data, http.StatusOK, err
}

// assemble makes a [Document] of parts that are JSON already. To have them encoded once more, and so looked through, would be most of the
// cost of a request.
func assemble(missing string, wheels, wheel json.RawMessage) ([]byte, error) {
	data := make([]byte, 0, len(wheels)+len(wheel)+64)
	data = fmt.Appendf(data, `{"schema":%d,`, Schema)
	if missing != "" {
		quoted, err := json.Marshal(missing)
		if err != nil {
			return nil, err
		}
		data = fmt.Appendf(data, `"error":%s,`, quoted)
	}
	return fmt.Appendf(data, `"wheels":%s,"wheel":%s}`, wheels, wheel), nil
}

func list(all []*watched) []Entry {
	entries := make([]Entry, len(all))
	for i, w := range all {
		entries[i] = Entry{w.name, w.source.Len()}
	}
	return entries
}

// choose is the wheel of that name, or the first one where there is no name; nil if there is none.
func choose(all []*watched, name string) *watched {
	for _, w := range all {
		if name == "" || w.name == name {
			return w
		}
	}
	return nil
}
