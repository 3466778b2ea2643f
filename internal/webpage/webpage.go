// Package webpage is the common part of the debug pages of wheels and of queues: styles, scripts,
// and functions for a handler that serves a page and JSON at one address.
package webpage

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"fmt"
	"io/fs"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

//go:embed assets
var shared embed.FS

// Name is the name of the asset that is the page itself.
const Name = "page.html"

// contentTypes maps extensions to content types. The types of package mime depend on the machine.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// LatenessOf returns a histogram of lateness as a wheeldebug.Lateness, for the documents of other
// pages. The init function of package wheeldebug sets LatenessOf.
var LatenessOf func(h *timingwheel.Histogram) any

// Assets has the parts of a page by name.
type Assets map[string]asset

type asset struct {
	data []byte
	etag string
}

// NewAssets returns the shared assets and the files in the directory assets of own. NewAssets
// panics if own has no such directory.
func NewAssets(own fs.FS) Assets {
	all := Assets{}
	for _, from := range []fs.FS{shared, own} {
		names, err := fs.Glob(from, "assets/*")
		if err != nil || len(names) == 0 {
			panic(fmt.Sprintf("webpage: assets: %v, %v", names, err))
		}
		for _, name := range names {
			data, err := fs.ReadFile(from, name)
			if err != nil {
				panic(err) // cannot happen, because the files are embedded
			}
			sum := sha256.Sum256(data)
			all[path.Base(name)] = asset{data, fmt.Sprintf(`"%x"`, sum[:12])}
		}
	}
	return all
}

// Serve serves the asset with the given name, or status 404 if there is none. Browsers revalidate
// their cached copy with each request, so a page never loads the script of another release.
func (a Assets) Serve(w http.ResponseWriter, r *http.Request, name string) {
	part, ok := a[name]
	if !ok {
		http.Error(w, fmt.Sprintf("no asset %q", name), http.StatusNotFound)
		return
	}
	h := w.Header()
	h.Set("Content-Type", contentTypes[path.Ext(name)])
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", part.etag)
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(part.data))
}

// Send sends an answer that caches must not store. It sends no body for HEAD.
func Send(w http.ResponseWriter, r *http.Request, status int, contentType string, data []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(data) // an error means that the client has disconnected
	}
}

// SetSecurityHeaders sets headers that prevent other sites from framing the page, reading its data
// and injecting scripts.
func SetSecurityHeaders(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "+
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if potentiallyTrustworthy(r) { // otherwise browsers ignore the header and log an error
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
	}
}

// potentiallyTrustworthy reports whether browsers trust the origin of the request: the connection
// is encrypted, here or at a proxy, or the server runs on the browser's own machine.
func potentiallyTrustworthy(r *http.Request) bool {
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		return true
	}
	host := strings.ToLower((&url.URL{Host: r.Host}).Hostname())
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}
