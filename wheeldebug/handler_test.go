package wheeldebug

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/atomic"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/webpage"
)

var start = time.Date(2030, time.January, 1, 12, 0, 0, 0, time.UTC)

// newManualWheel returns a wheel in Manual mode.
func newManualWheel(t testing.TB, opts timingwheel.Options) *timingwheel.TimingWheel {
	t.Helper()
	opts.Manual, opts.Start = true, start
	tw, err := timingwheel.New(opts)
	require.NoError(t, err)
	t.Cleanup(tw.Stop)
	return tw
}

func noop() {}

func request(h http.Handler, method, target string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// document requests the JSON and decodes it.
func document(t testing.TB, h http.Handler, target string, status int) Document {
	t.Helper()
	w := request(h, http.MethodGet, target)
	require.Equal(t, status, w.Code, w.Body)
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	var doc Document
	decoder := json.NewDecoder(w.Body)
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&doc))
	return doc
}

func TestPageAndAssetsAreServedAtAnyPath(t *testing.T) {
	t.Parallel()
	h := &Handler{}
	for target, contentType := range map[string]string{
		"/":                           "text/html; charset=utf-8",
		"/debug/timingwheel/":         "text/html; charset=utf-8",
		"/elsewhere?wheel=x":          "text/html; charset=utf-8",
		"/?format=html":               "text/html; charset=utf-8",
		"/?asset=page.css":            "text/css; charset=utf-8",
		"/?asset=page.js":             "text/javascript; charset=utf-8",
		"/?asset=icon.svg":            "image/svg+xml",
		"/some/where/?asset=rings.js": "text/javascript; charset=utf-8",
	} {
		w := request(h, http.MethodGet, target)
		assert.Equal(t, http.StatusOK, w.Code, target)
		assert.Equal(t, contentType, w.Header().Get("Content-Type"), target)
		assert.Equal(t, "no-cache", w.Header().Get("Cache-Control"), target)
		require.NotEmpty(t, w.Header().Get("ETag"), target)
		assert.NotEmpty(t, w.Body.Bytes(), target)

		again := request(h, http.MethodGet, target, "If-None-Match", w.Header().Get("ETag"))
		assert.Equal(t, http.StatusNotModified, again.Code, target)
		assert.Empty(t, again.Body.Bytes(), target)
	}
}

// Each asset that the page references exists, and no asset references another host.
func TestPageIsSelfContained(t *testing.T) {
	t.Parallel()
	h := &Handler{}
	body := request(h, http.MethodGet, "/").Body.String()
	for _, part := range strings.Split(body, "?asset=")[1:] {
		name, _, _ := strings.Cut(part, `"`)
		assert.Equal(t, http.StatusOK, request(h, http.MethodGet, "/?asset="+name).Code, name)
	}
	assert.Equal(t, len(assets())-1, strings.Count(body, "?asset="), "the page must use every asset")
	for name := range assets() {
		asset := request(h, http.MethodGet, "/?asset="+name).Body.String()
		for _, banned := range []string{"https://", "<script>", " style=", " onclick", "innerHTML", "eval("} {
			assert.NotContains(t, asset, banned, name)
		}
	}
}

func TestUnknownAssetIsNotFound(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "nothing.js", "../handler.go", "assets", ".", "page.html/", "%2e%2e/asset.go"} {
		assert.Equal(t, http.StatusNotFound, request(&Handler{}, http.MethodGet, "/?asset="+name).Code, name)
	}
}

func TestSecurityHeadersAreOnEveryAnswer(t *testing.T) {
	t.Parallel()
	h := &Handler{}
	for _, target := range []string{"/", "/?format=json", "/?asset=page.js", "/?asset=none", "/?format=xml", "/?format=json&wheel=none", "/?format=pprof", "/?format=pprof&wheel=none"} {
		header := request(h, http.MethodGet, target).Header()
		policy := header.Get("Content-Security-Policy")
		assert.Contains(t, policy, "default-src 'none'", target)
		assert.Contains(t, policy, "frame-ancestors 'none'", target)
		assert.NotContains(t, policy, "unsafe", target)
		assert.Equal(t, "nosniff", header.Get("X-Content-Type-Options"), target)
		assert.Equal(t, "DENY", header.Get("X-Frame-Options"), target)
		assert.Equal(t, "same-origin", header.Get("Cross-Origin-Resource-Policy"), target)
		assert.Equal(t, "no-referrer", header.Get("Referrer-Policy"), target)
		assert.Empty(t, header.Get("Access-Control-Allow-Origin"), target)
	}
	assert.Equal(t, "no-store", request(h, http.MethodGet, "/?format=json").Header().Get("Cache-Control"))
	assert.Equal(t, "Accept", request(h, http.MethodGet, "/").Header().Get("Vary"))
}

func TestOtherMethodsAreRefused(t *testing.T) {
	t.Parallel()
	h := &Handler{}
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"} {
		w := request(h, method, "/?format=json")
		assert.Equal(t, http.StatusMethodNotAllowed, w.Code, method)
		assert.Equal(t, "GET, HEAD", w.Header().Get("Allow"), method)
	}
	for _, target := range []string{"/", "/?format=json", "/?asset=page.css"} {
		head, get := request(h, http.MethodHead, target), request(h, http.MethodGet, target)
		assert.Equal(t, http.StatusOK, head.Code, target)
		assert.Empty(t, head.Body.Bytes(), target)
		assert.Equal(t, get.Header(), head.Header(), target)
	}
}

func TestUnknownFormatIsABadRequest(t *testing.T) {
	t.Parallel()
	w := request(&Handler{}, http.MethodGet, "/?format=xml")
	assert.Equal(t, http.StatusBadRequest, w.Code)
	assert.Contains(t, w.Body.String(), `format is "xml"; it must be html, json or pprof`)
}

func TestDocumentWithoutWheels(t *testing.T) {
	t.Parallel()
	w := request(&Handler{}, http.MethodGet, "/?format=json")
	assert.Equal(t, http.StatusOK, w.Code)
	assert.JSONEq(t, `{"schema": 1, "wheels": [], "wheel": null}`, w.Body.String())
}

// Browsers log an error for this header on pages that came neither over an encrypted connection nor
// from the browser's own machine, so such pages do not have it. A proxy may do the encryption.
func TestOpenerPolicyOnlyOnTrustworthyOrigins(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]string{
		"http://example.com/": "", "http://192.168.0.7:8080/": "", "http://[fe80::1]:8080/": "", "http://notlocalhost/": "",
		"https://example.com/": "same-origin", "http://localhost:8080/": "same-origin", "http://LOCALHOST/": "same-origin",
		"http://wheels.localhost/": "same-origin", "http://127.0.0.1:8080/": "same-origin", "http://[::1]:8080/": "same-origin",
	} {
		answer := httptest.NewRecorder()
		(&Handler{}).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, target, nil))
		assert.Equal(t, want, answer.Header().Get("Cross-Origin-Opener-Policy"), target)
	}
	proxied := httptest.NewRequest(http.MethodGet, "http://example.com/", nil)
	proxied.Header.Set("X-Forwarded-Proto", "https")
	answer := httptest.NewRecorder()
	(&Handler{}).ServeHTTP(answer, proxied)
	assert.Equal(t, "same-origin", answer.Header().Get("Cross-Origin-Opener-Policy"))
}

func TestDocumentHasTheRequestedWheel(t *testing.T) {
	t.Parallel()
	h := &Handler{}
	tw := newManualWheel(t, timingwheel.Options{})
	tw.AfterFunc(time.Hour, noop)
	require.NoError(t, h.Add("one", tw))
	payloads, err := timingwheel.NewTimeouts(timingwheel.Options{Manual: true}, func([]int) {})
	require.NoError(t, err)
	defer payloads.Stop()
	payloads.Add(time.Second, 1)
	payloads.Add(time.Second, 1)
	require.NoError(t, h.Add("two", payloads))

	first := document(t, h, "/?format=json", http.StatusOK)
	assert.Equal(t, []Entry{{"one", 1}, {"two", 2}}, first.Wheels)
	assert.Equal(t, "one", first.Wheel.Name)
	second := document(t, h, "/?format=json&wheel=two", http.StatusOK)
	assert.Equal(t, "two", second.Wheel.Name)
	assert.Equal(t, 2, second.Wheel.Pending)

	none := document(t, h, "/?format=json&wheel=three", http.StatusNotFound)
	assert.Equal(t, `no wheel "three"`, none.Error)
	assert.Len(t, none.Wheels, 2, "the list is needed to choose another wheel")
	assert.Nil(t, none.Wheel)

	assert.True(t, h.Remove("one"))
	assert.False(t, h.Remove("one"))
	assert.Equal(t, []Entry{{"two", 2}}, document(t, h, "/?format=json", http.StatusOK).Wheels)
	document(t, h, "/?format=json&wheel=one", http.StatusNotFound)
}

// Names may contain markup. They reach the page only inside JSON.
func TestMarkupInNamesIsNotInterpreted(t *testing.T) {
	t.Parallel()
	h := &Handler{}
	name := `<script>alert("1")</script>&'` + "\u2028"
	require.NoError(t, h.Add(name, newManualWheel(t, timingwheel.Options{})))
	target := "/?format=json&wheel=" + url.QueryEscape(name)
	assert.Equal(t, name, document(t, h, target, http.StatusOK).Wheel.Name)
	for _, target := range []string{target, "/?format=json&wheel=" + url.QueryEscape(name+"x"), "/?wheel=" + url.QueryEscape(name)} {
		assert.NotContains(t, request(h, http.MethodGet, target).Body.String(), "<script>alert", target)
	}
}

func TestBadNamesAreRejected(t *testing.T) {
	t.Parallel()
	h := &Handler{}
	tw := newManualWheel(t, timingwheel.Options{})
	require.NoError(t, h.Add(strings.Repeat("x", webpage.MaxName), tw))
	for name, want := range map[string]string{
		"":                                     `wheeldebug: bad wheel name: ""; it must be UTF-8 of 1 to 128 bytes`,
		strings.Repeat("x", webpage.MaxName+1): "must be UTF-8 of 1 to 128 bytes",
		"\xff":                                 `"\xff"; it must be UTF-8 of 1 to 128 bytes`,
	} {
		err := h.Add(name, tw)
		require.ErrorIs(t, err, ErrName)
		assert.ErrorContains(t, err, want)
	}
	assert.PanicsWithValue(t, `wheeldebug: Add with a nil <nil> as wheel "nil"`, func() { h.Add("nil", nil) })
	var none *timingwheel.TimingWheel // as if the error of New was ignored
	assert.PanicsWithValue(t, `wheeldebug: Add with a nil *timingwheel.TimingWheel as wheel "none"`, func() { h.Add("none", none) })
	require.NoError(t, h.Add("twice", tw))
	require.ErrorIs(t, h.Add("twice", tw), ErrName)
	require.EqualError(t, h.Add("twice", tw), `wheeldebug: bad wheel name: "twice" is in use; names must be unique`)
	assert.Len(t, document(t, h, "/?format=json", http.StatusOK).Wheels, 2)
}

// The profile is in the format of pprof and belongs to the requested wheel.
func TestProfileOfTheRequestedWheel(t *testing.T) {
	t.Parallel()
	h := &Handler{}
	w := request(h, http.MethodGet, "/?format=pprof")
	assert.Equal(t, http.StatusNotFound, w.Code)
	assert.Contains(t, w.Body.String(), `no wheel ""`)

	sampled := newManualWheel(t, timingwheel.Options{ProfileRate: 1, Name: "label"})
	sampled.AfterFunc(time.Hour, noop)
	require.NoError(t, h.Add("plain", newManualWheel(t, timingwheel.Options{})))
	require.NoError(t, h.Add("sampled", sampled))
	require.NoError(t, h.Add("other", struct{ Source }{sampled}))
	for target, want := range map[string]string{
		"/?format=pprof":             `wheel "plain": timingwheel: bad option: Options.ProfileRate is 0`,
		"/?format=pprof&wheel=none":  `no wheel "none"`,
		"/?format=pprof&wheel=other": `wheel "other" has no profile: struct { wheeldebug.Source } has no method WriteProfile`,
	} {
		w := request(h, http.MethodGet, target)
		assert.Equal(t, http.StatusNotFound, w.Code, target)
		assert.Contains(t, w.Body.String(), want, target)
	}

	const target = "/?format=pprof&wheel=sampled"
	w = request(h, http.MethodGet, target, "Accept", "application/json")
	require.Equal(t, http.StatusOK, w.Code)
	assert.Equal(t, "application/octet-stream", w.Header().Get("Content-Type"))
	assert.Equal(t, `attachment; filename="timers.pb.gz"`, w.Header().Get("Content-Disposition"))
	assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	data := w.Body.Bytes()
	assert.Equal(t, strconv.Itoa(len(data)), w.Header().Get("Content-Length"))
	z, err := gzip.NewReader(bytes.NewReader(data))
	require.NoError(t, err)
	profile, err := io.ReadAll(z)
	require.NoError(t, err)
	for _, text := range []string{"timers", "wheeldebug.TestProfileOfTheRequestedWheel", "handler_test.go", "expires", "label"} {
		assert.Contains(t, string(profile), text)
	}
	assert.Equal(t, data, request(h, http.MethodGet, target).Body.Bytes(), "viewers must share one profile")
	head := request(h, http.MethodHead, target)
	assert.Empty(t, head.Body.Bytes())
	assert.Equal(t, strconv.Itoa(len(data)), head.Header().Get("Content-Length"))
}

func TestStoppedWheelKeepsItsCounters(t *testing.T) {
	t.Parallel()
	h := &Handler{}
	tw := newManualWheel(t, timingwheel.Options{})
	tw.AfterFunc(time.Second, noop)
	tw.Stop()
	require.NoError(t, h.Add("ended", tw))
	w := document(t, h, "/?format=json", http.StatusOK).Wheel
	assert.True(t, w.Stopped)
	assert.Zero(t, w.Pending)
	assert.EqualValues(t, 1, w.Counters["armed"])
	assert.Empty(t, w.Next)
	assert.Len(t, w.Levels, 4)
}

// countingSource counts reads and overlapping reads.
type countingSource struct {
	reads, active atomic.Int32
	overlaps      atomic.Int32
	Source
}

func (c *countingSource) Stats() timingwheel.Stats {
	c.reads.Inc()
	if c.active.Inc() > 1 {
		c.overlaps.Inc()
	}
	runtime.Gosched() // not a sleep: in a bubble, time does not pass while goroutines wait for a mutex
	defer c.active.Dec()
	return c.Source.Stats()
}

// However many viewers there are, the wheel is read twice a second, and never concurrently.
func TestManyViewersCostNoMoreThanOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tw, err := timingwheel.New(timingwheel.Options{})
		require.NoError(t, err)
		defer tw.Stop()
		c := &countingSource{Source: tw}
		h := &Handler{}
		require.NoError(t, h.Add("crowded", c))
		var viewers sync.WaitGroup
		for range 100 {
			viewers.Go(func() {
				for range 40 {
					w := request(h, http.MethodGet, "/?format=json")
					assert.Equal(t, http.StatusOK, w.Code)
					time.Sleep(100 * time.Millisecond)
				}
			})
		}
		viewers.Wait() // takes slightly more than four seconds
		assert.InDelta(t, 8, c.reads.Load(), 1)
		assert.Zero(t, c.overlaps.Load())
	})
}

// A result is cached for half a second.
func TestNoAnswerIsOlderThanMaxAge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tw, err := timingwheel.New(timingwheel.Options{})
		require.NoError(t, err)
		defer tw.Stop()
		h := &Handler{}
		require.NoError(t, h.Add("wheel", tw))
		pending := func() int { return document(t, h, "/?format=json", http.StatusOK).Wheel.Pending }
		require.Zero(t, pending())
		tw.AfterFunc(time.Hour, noop)
		time.Sleep(maxAge - 1)
		assert.Zero(t, pending())
		time.Sleep(time.Nanosecond)
		assert.Equal(t, 1, pending())
	})
}

// slowSource is a source whose Len takes 100 ms.
type slowSource struct{ Source }

func (s slowSource) Len() int {
	time.Sleep(100 * time.Millisecond)
	return s.Source.Len()
}

// A result that took long is cached for longer, so reading takes at most a twentieth of a
// processor.
func TestSlowResultsAreCachedLonger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tw, err := timingwheel.New(timingwheel.Options{})
		require.NoError(t, err)
		defer tw.Stop()
		h := &Handler{}
		require.NoError(t, h.Add("wheel", slowSource{tw}))
		pending := func() int { return document(t, h, "/?format=json", http.StatusOK).Wheels[0].Pending }
		require.Zero(t, pending())
		tw.AfterFunc(time.Hour, noop)
		time.Sleep(2*time.Second - time.Nanosecond)
		assert.Zero(t, pending())
		time.Sleep(time.Nanosecond)
		assert.Equal(t, 1, pending())
	})
}

// Goroutines add, remove and read wheels while their timers are armed and stopped.
func TestConcurrentAddRemoveAndRequests(t *testing.T) {
	t.Parallel()
	h := &Handler{}
	tw, err := timingwheel.New(timingwheel.Options{Shards: 2})
	require.NoError(t, err)
	defer tw.Stop()
	require.NoError(t, h.Add("stays", tw))
	var all sync.WaitGroup
	for g := range 4 {
		name := string(rune('a' + g))
		all.Go(func() {
			for range 50 {
				assert.NoError(t, h.Add(name, tw))
				timer := tw.AfterFunc(time.Minute, noop)
				assert.Contains(t, []int{200, 404}, request(h, http.MethodGet, "/?format=json&wheel="+name).Code)
				timer.Stop()
				assert.True(t, h.Remove(name))
			}
		})
		all.Go(func() {
			for range 50 {
				w := request(h, http.MethodGet, "/?format=json")
				assert.Equal(t, http.StatusOK, w.Code)
				assert.True(t, json.Valid(w.Body.Bytes()))
			}
		})
	}
	all.Wait()
	assert.Equal(t, []Entry{{"stays", 0}}, document(t, h, "/?format=json", http.StatusOK).Wheels)
}

// yieldingSource is a source that yields the processor in Len.
type yieldingSource struct{ Source }

func (y yieldingSource) Len() int {
	runtime.Gosched()
	return y.Source.Len()
}

// After Remove has returned, no list contains the wheel, even if a request that began earlier
// computes the list.
func TestRemovedWheelIsNotListed(t *testing.T) {
	t.Parallel()
	h := &Handler{}
	tw := newManualWheel(t, timingwheel.Options{})
	require.NoError(t, h.Add("stays", yieldingSource{tw}))
	var over atomic.Bool
	var viewers sync.WaitGroup
	for range 4 {
		viewers.Go(func() {
			for !over.Load() {
				request(h, http.MethodGet, "/?format=json")
			}
		})
	}
	defer viewers.Wait()
	defer over.Store(true)
	for range 100 {
		require.NoError(t, h.Add("goes", yieldingSource{tw}))
		require.Equal(t, []Entry{{"stays", 0}, {"goes", 0}}, document(t, h, "/?format=json", http.StatusOK).Wheels)
		require.True(t, h.Remove("goes"))
		require.Equal(t, []Entry{{"stays", 0}}, document(t, h, "/?format=json", http.StatusOK).Wheels)
	}
}

// The Accept header chooses between the page and the JSON, unless the query has a format.
func TestAcceptHeaderChoosesFormat(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]string{
		"": "text/html; charset=utf-8", "*/*": "text/html; charset=utf-8", "application/json": "application/json",
		"text/html, application/json;q=0.5": "text/html; charset=utf-8",
	} {
		assert.Equal(t, want, request(&Handler{}, http.MethodGet, "/", "Accept", accept).Header().Get("Content-Type"), accept)
		page := request(&Handler{}, http.MethodGet, "/?format=html", "Accept", accept)
		assert.Equal(t, "text/html; charset=utf-8", page.Header().Get("Content-Type"), accept)
	}
}
