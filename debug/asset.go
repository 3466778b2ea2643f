package debug

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"fmt"
	"net/http"
	"path"
	"sync"
	"time"
)

//go:embed assets
var assets embed.FS

const pageName = "page.html"

// contentTypes are named here, as what package mime says of an ending depends on the machine.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// etags are hashes of the assets, by name.
var etags = sync.OnceValue(func() map[string]string {
	tags := make(map[string]string)
	entries, err := assets.ReadDir("assets")
	if err != nil {
		panic(err) // they are in the binary
	}
	for _, e := range entries {
		data, err := assets.ReadFile(path.Join("assets", e.Name()))
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(data)
		tags[e.Name()] = fmt.Sprintf(`"%x"`, sum[:12])
	}
	return tags
})

// serveAsset serves a part of the page. Browsers ask each time whether theirs is still good, so
// that a page never meets the script of another release.
func serveAsset(w http.ResponseWriter, r *http.Request, name string) {
	etag, ok := etags()[name]
	if !ok {
		http.Error(w, fmt.Sprintf("no asset %q", name), http.StatusNotFound)
		return
	}
	data, err := assets.ReadFile(path.Join("assets", name))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", contentTypes[path.Ext(name)])
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", etag)
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(data))
}
