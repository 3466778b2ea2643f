package wheeldebug

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/webpage"
)

// maxAge is the lifetime of a cached result. It bounds the cost of any number of viewers. It is
// shorter than the second after which a page sends its next request, so a single viewer always gets
// a new result.
const maxAge = 500 * time.Millisecond

// lifetimeFactor bounds the load: a result is cached for at least lifetimeFactor times as long as
// it took to compute. Reading a wheel with very many slots may take tens of milliseconds, and
// repeated reads must not keep a processor busy.
const lifetimeFactor = 20

// cache holds the result of a computation. One caller at a time computes a new result, and the
// other callers wait for it.
type cache struct {
	mu    sync.Mutex
	until time.Time
	data  []byte
}

// get returns the cached result or, if it is too old, the result of compute. Errors are not cached.
func (c *cache) get(compute func() ([]byte, error)) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.data != nil && time.Now().Before(c.until) {
		return c.data, nil
	}
	began := time.Now()
	data, err := compute()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	c.data, c.until = data, now.Add(max(maxAge, lifetimeFactor*now.Sub(began)))
	return data, nil
}

// invalidate makes the next caller compute a new result.
func (c *cache) invalidate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.data = nil
}

// wheelEntry is a wheel that was added.
type wheelEntry struct {
	name   string
	source Source
	json   cache
	timers cache // the profile
}

// profiler is a Source with a profile of its timers, see [timingwheel.TimingWheel.WriteProfile].
type profiler interface{ WriteProfile(w io.Writer) error }

// serveProfile serves the profile of the wheel with the given name, or of the first wheel if name
// is empty.
func (h *Handler) serveProfile(w http.ResponseWriter, r *http.Request, name string) {
	entry, ok := h.wheels.Choose(name)
	if !ok {
		http.Error(w, fmt.Sprintf("no wheel %q", name), http.StatusNotFound)
		return
	}
	chosen := entry.Value
	p, ok := chosen.source.(profiler)
	if !ok {
		http.Error(w, fmt.Sprintf("wheel %q has no profile: %T has no method WriteProfile", chosen.name, chosen.source), http.StatusNotFound)
		return
	}
	data, err := chosen.timers.get(func() ([]byte, error) {
		var out bytes.Buffer
		err := p.WriteProfile(&out)
		return out.Bytes(), err
	})
	if errors.Is(err, timingwheel.ErrOption) {
		http.Error(w, fmt.Sprintf("wheel %q: %v", chosen.name, err), http.StatusNotFound)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Disposition", `attachment; filename="timers.pb.gz"`)
	webpage.Send(w, r, http.StatusOK, "application/octet-stream", data)
}

// serveJSON serves the list and the wheel with the given name, or the first wheel if name is empty.
func (h *Handler) serveJSON(w http.ResponseWriter, r *http.Request, name string) {
	data, status, err := h.document(name)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	webpage.Send(w, r, status, "application/json", data)
}

func (h *Handler) document(name string) (data []byte, status int, err error) {
	// The list of wheels is read inside get. A list that was read before get could be older than a
	// concurrent Remove or Add.
	wheels, err := h.list.get(func() ([]byte, error) { return json.Marshal(listEntries(h.wheels.All())) })
	if err != nil {
		return nil, 0, err
	}
	entry, ok := h.wheels.Choose(name)
	if !ok {
		missing := ""
		status = http.StatusOK
		if name != "" {
			missing, status = fmt.Sprintf("no wheel %q", name), http.StatusNotFound
		}
		data, err = assemble(missing, wheels, json.RawMessage("null"))
		return data, status, err
	}
	w := entry.Value
	wheel, err := w.json.get(func() ([]byte, error) { return json.Marshal(snapshot(w.name, w.source)) })
	if err != nil {
		return nil, 0, err
	}
	data, err = assemble("", wheels, wheel)
	return data, http.StatusOK, err
}

// assemble returns the JSON of a [Document] whose parts are JSON already. Encoding the parts again
// would be most of the cost of a request.
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

func listEntries(all []webpage.Entry[*wheelEntry]) []Entry {
	entries := make([]Entry, len(all))
	for i, e := range all {
		entries[i] = Entry{e.Name, e.Value.source.Len()}
	}
	return entries
}
