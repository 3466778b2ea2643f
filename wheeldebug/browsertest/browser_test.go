package browsertest

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/wheeldebug"
)

// timeout is for busy machines. Usually a test waits for less than a second.
const timeout = 90 * time.Second

// path is the path of the page. It has a prefix, as in a program.
const path = "/debug/timingwheel/"

// findChromium returns the path of a browser. If there is none, it skips the test, or fails it if
// TIMINGWHEEL_REQUIRE_CHROMIUM is 1.
func findChromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "headless-shell"} {
		if found, err := exec.LookPath(name); err == nil {
			return found
		}
	}
	if os.Getenv("TIMINGWHEEL_REQUIRE_CHROMIUM") == "1" {
		t.Fatal("no Chromium found, and TIMINGWHEEL_REQUIRE_CHROMIUM is 1")
	}
	t.Skip("no Chromium found")
	return ""
}

var started struct {
	sync.Once
	ctx   context.Context
	close func()
	err   error
}

// browser returns the browser that all tests share, because starting one takes seconds.
func browser(t *testing.T) context.Context {
	t.Helper()
	found := findChromium(t)
	started.Do(func() {
		options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(found), chromedp.WindowSize(1280, 900),
			chromedp.WSURLReadTimeout(timeout),
			chromedp.Flag("disable-gpu", true), chromedp.Flag("no-sandbox", os.Geteuid() == 0)) // Chromium does not run as root with a sandbox
		allocated, cancel := chromedp.NewExecAllocator(context.Background(), options...)
		ctx, quit := chromedp.NewContext(allocated)
		started.ctx, started.close = ctx, func() { quit(); cancel() }
		started.err = chromedp.Do(ctx)
	})
	require.NoError(t, started.err, "start %s", found)
	return started.ctx
}

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // tests mostly wait for pages and use little CPU time
		panic(err)
	}
	code := m.Run()
	if started.close != nil {
		started.close()
	}
	os.Exit(code)
}

// tab is a page with a record of its requests and of the problems that the browser reported.
type tab struct {
	*testing.T
	ctx    context.Context
	server *httptest.Server

	mu       sync.Mutex
	requests []string
	problems []string
}

// open opens the handler's page in a new tab. query is empty or begins with a question mark.
func open(t *testing.T, h http.Handler, query string) *tab {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(path, h)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)

	p := &tab{T: t, server: server}
	// A tab in its own browser context has its own window and storage.
	ctx, cancel := chromedp.NewContext(browser(t), chromedp.WithNewBrowserContext(), chromedp.WithListener(p.note))
	t.Cleanup(cancel)
	p.ctx = ctx
	require.NoError(t, chromedp.Do(ctx), "open a tab")
	_, err := chromedp.Call(ctx, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	require.NoError(t, err) // otherwise only one tab at a time has the keyboard focus
	_, err = chromedp.Call(ctx, network.Enable, network.EnableParams{})
	require.NoError(t, err)
	p.do(chromedp.Navigate(server.URL + path + query))
	t.Cleanup(p.checkProblems)
	return p
}

// note records an event of the browser.
func (p *tab) note(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		p.requests = append(p.requests, e.Request.URL)
	case *runtime.EventExceptionThrown:
		p.problems = append(p.problems, fmt.Sprintf("exception: %+v", e.ExceptionDetails))
	case *runtime.EventConsoleAPICalled:
		p.problems = append(p.problems, fmt.Sprintf("console: %+v", e.Args))
	case *cdplog.EventEntryAdded: // violations of the Content-Security-Policy too
		p.problems = append(p.problems, fmt.Sprintf("log: %s %s", e.Entry.Text, e.Entry.URL))
	}
}

// checkProblems fails the test if the page has sent a request to another host, or if the browser
// has reported a problem.
func (p *tab) checkProblems() {
	p.mu.Lock()
	defer p.mu.Unlock()
	assert.NotEmpty(p, p.requests)
	for _, r := range p.requests {
		assert.True(p, strings.HasPrefix(r, p.server.URL+path), "request to %s", r)
	}
	assert.Empty(p, p.problems)
}

// expectProblem removes the problems that contain the text. It fails the test if there is none.
func (p *tab) expectProblem(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	kept, found := []string{}, false
	for _, c := range p.problems {
		if strings.Contains(c, text) {
			found = true
			continue
		}
		kept = append(kept, c)
	}
	p.problems = kept
	assert.True(p, found, "no problem contains %q", text)
}

// do runs steps in the tab.
func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, timeout)
	defer cancel()
	require.NoError(p, chromedp.Do(ctx, steps...))
}

// eval returns the value of a JavaScript expression.
func eval[T any](p *tab, expression string) T {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, timeout)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	require.NoError(p, err, expression)
	return v
}

// wait waits until a JavaScript expression is true.
func (p *tab) wait(expression string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, timeout+10*time.Second)
	defer cancel()
	_, err := chromedp.Run(ctx, chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingTimeout(timeout),
		chromedp.WithPollingInterval(50*time.Millisecond)))
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.Fatalf("waiting for %s: %v\nproblems: %v", expression, err, p.problems)
	}
}

// click waits until the first element that matches a CSS selector is visible and enabled, and
// clicks it. It sends no mouse events: the page may be drawn again between the search for the
// element and the click, and the pointer would miss an element that has moved.
func (p *tab) click(selector string) {
	p.Helper()
	p.wait(`((e) => {
		if (!e?.checkVisibility() || e.disabled) return false;
		e.focus();
		e.click();
		return true;
	})(document.querySelector(` + strconv.Quote(selector) + `))`)
}

// live waits until the page shows the wheel or queue with the given name.
func (p *tab) live(name string) {
	p.Helper()
	p.wait(`document.getElementById('state').dataset.state === 'live' && !document.getElementById('main').hidden && page.shown.name === ` + strconv.Quote(name))
}

// text returns the text of the first element that matches a CSS selector.
func (p *tab) text(selector string) string {
	p.Helper()
	return eval[string](p, `document.querySelector(`+strconv.Quote(selector)+`).textContent`)
}

// showsPending waits until the figure for pending timers is n.
func (p *tab) showsPending(n string) {
	p.Helper()
	p.wait(`document.querySelector('#tile-pending > span').textContent === ` + strconv.Quote(n))
}

// media sets user preferences that the browser reports to the page.
func (p *tab) media(features ...*emulation.MediaFeature) {
	p.Helper()
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features})
	require.NoError(p, err)
}

// scheme returns the preference for a colour scheme.
func scheme(value string) *emulation.MediaFeature {
	return &emulation.MediaFeature{Name: "prefers-color-scheme", Value: value}
}

// wheels returns a handler with the given pairs of a name and a source.
func wheels(named ...any) *wheeldebug.Handler {
	h := &wheeldebug.Handler{}
	for i := 0; i < len(named); i += 2 {
		if err := h.Add(named[i].(string), named[i+1].(wheeldebug.Source)); err != nil {
			panic(err)
		}
	}
	return h
}

// chosen returns the query of the page of a wheel.
func chosen(name string) string { return "?" + url.Values{"wheel": {name}}.Encode() }
