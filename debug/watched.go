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
	data, err := json.Marshal(look())
	if err != nil {
		return nil, err
	}
	c.data, c.until = data, time.Now().Add(maxAge)
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

// encoded is a Document whose parts are JSON already.
type encoded struct {
	Schema int             `json:"schema"`
	Error  string          `json:"error,omitempty"`
	Wheels json.RawMessage `json:"wheels"`
	Wheel  json.RawMessage `json:"wheel"`
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
	all := h.all()
	doc := encoded{Schema: Schema}
	if doc.Wheels, err = h.list.fresh(func() any { return list(all) }); err != nil {
		return nil, 0, err
	}
	chosen := choose(all, name)
	status = http.StatusOK
	switch {
	case chosen != nil:
		doc.Wheel, err = chosen.json.fresh(func() any { return look(chosen.name, chosen.source) })
	case name != "":
		doc.Error = fmt.Sprintf("no wheel %q", name)
		status = http.StatusNotFound
	}
	if err != nil {
		return nil, 0, err
	}
	data, err = json.Marshal(doc)
	return data, status, err
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
