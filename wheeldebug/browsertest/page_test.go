package browsertest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/atomic"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/wheeldebug"
)

var begin = time.Date(2030, time.January, 1, 12, 0, 0, 0, time.UTC)

func noop() {}

// newManualWheel returns a wheel in Manual mode, so that every figure is known.
func newManualWheel(t *testing.T, opts timingwheel.Options) *timingwheel.TimingWheel {
	t.Helper()
	opts.Manual, opts.Start = true, begin
	tw, err := timingwheel.New(opts)
	require.NoError(t, err)
	t.Cleanup(tw.Stop)
	return tw
}

// orders returns a wheel with 5 timers on level 0, 3 on level 1 and one in a later lap of level 2.
func orders(t *testing.T) *timingwheel.TimingWheel {
	tw := newManualWheel(t, timingwheel.Options{Tick: time.Second, WheelSize: 8, Levels: 3})
	for range 4 {
		tw.AfterFunc(2*time.Second, noop)
	}
	tw.AfterFunc(7*time.Second, noop)
	for range 3 {
		tw.AfterFunc(20*time.Second, noop)
	}
	tw.AfterFunc(1000*time.Second, noop)
	return tw
}

func TestPageShowsTheCounts(t *testing.T) {
	t.Parallel()
	p := open(t, wheels("orders", orders(t)), "")
	p.live("orders")
	assert.Equal(t, "9timers", p.text("#tile-pending"))
	assert.Equal(t, "9", p.text("#rings .total"))
	assert.Equal(t, "\u20139 in all", eval[string](p, `rateAndTotal(page.shown, new Past(), 'armed').join('')`), "the first sample has no rate")
	p.wait(`document.getElementById('tile-armed').textContent === '0/s9 in all'`)
	assert.Equal(t, []string{
		"5 timers \u00b7 a slot is 1\u00a0s", "3 timers \u00b7 a slot is 8\u00a0s", "1 timer, 1 in later laps \u00b7 a slot is 1\u00a0min\u00a04\u00a0s",
	}, eval[[]string](p, `[...document.querySelectorAll('.strip-facts')].map((e) => e.textContent)`))
	assert.Equal(t, []string{"2\u00a0s", "12:00:02.000", "0", "4", "run"},
		eval[[]string](p, `[...document.querySelectorAll('#next tbody tr:first-child td')].map((e) => e.textContent)`))
	assert.Equal(t, 4, eval[int](p, `document.querySelectorAll('#next tbody tr').length`))
	assert.Contains(t, p.text("#wheel-options"), "8 slots on each of 3 levels, ticks of 1\u00a0s, 1 shard")
	assert.Contains(t, p.text("#rings-title"), "9 pending timers on 3 levels; level 0: 5, level 1: 3, level 2: 1")
	assert.Equal(t, "orders: 9 pending", eval[string](p, "document.title"))

	p.click("#slots-details summary")
	p.wait(`document.querySelectorAll('#slots tbody tr').length === 4`)
	assert.Equal(t, []string{"0", "2", "+2\u00a0s to +3\u00a0s", "4"},
		eval[[]string](p, `[...document.querySelectorAll('#slots tbody tr:first-child td')].map((e) => e.textContent)`))

	// A strip has colour only where it has timers. A path has one piece for adjacent cells.
	assert.Equal(t, []string{"M2 0H3V1H2Z", "M7 0H8V1H7Z"},
		eval[[]string](p, `[...document.querySelectorAll('.strip[data-level="0"] path')].map((e) => e.getAttribute('d')).filter(Boolean).sort()`))
}

// The figures follow a wheel while timers are armed, stopped and run.
func TestPageFollowsAWheel(t *testing.T) {
	t.Parallel()
	tw, err := timingwheel.New(timingwheel.Options{})
	require.NoError(t, err)
	defer tw.Stop()
	p := open(t, wheels("live", tw), "")
	p.live("live")
	p.showsPending("0")
	assert.Contains(t, p.text("#next tbody"), "No timers are pending.")

	var timers []timingwheel.Timer
	for range 1234 {
		timers = append(timers, tw.AfterFunc(time.Hour, noop))
	}
	p.showsPending("1,234")
	p.wait(`/\d/.test(document.querySelector('#tile-armed > span').textContent)`)
	for _, timer := range timers[:1000] {
		timer.Stop()
	}
	p.showsPending("234")
	p.wait(`document.querySelector('#tile-stopped small').textContent === '1,000 in all'`)
	for _, timer := range timers[1000:] {
		timer.Reschedule(0)
	}
	p.showsPending("0")
	p.wait(`document.querySelector('#tile-fired small').textContent === '234 in all'`)
	p.wait(`document.querySelector('#chart-pending .one').getAttribute('d').includes('L')`)
	assert.Contains(t, eval[string](p, `document.querySelector('#chart-pending .plot').getAttribute('aria-label')`), "highest 1,234")
	assert.NotEmpty(t, eval[string](p, `document.querySelector('.bar-fill').getAttribute('d')`), "lateness")

	tw.Stop()
	p.wait(`document.getElementById('notice').textContent.includes('was stopped')`)
}

func TestButtonsChooseAWheel(t *testing.T) {
	t.Parallel()
	hostile := `<img src=x onerror=alert(1)>&"'`
	h := wheels("orders", orders(t), "empty", newManualWheel(t, timingwheel.Options{}), hostile, newManualWheel(t, timingwheel.Options{}))
	p := open(t, h, "")
	p.live("orders")
	assert.Equal(t, []string{"orders", "empty", hostile},
		eval[[]string](p, `[...document.querySelectorAll('#wheels button')].map((b) => b.firstChild.textContent)`))
	p.click("#wheels button:nth-child(2)")
	p.live("empty")
	p.showsPending("0")
	assert.Equal(t, []string{"false", "true", "false"},
		eval[[]string](p, `[...document.querySelectorAll('#wheels button')].map((b) => b.getAttribute('aria-pressed'))`))
	assert.Equal(t, "?wheel=empty", eval[string](p, "location.search"))

	p.click("#wheels button:nth-child(3)")
	p.live(hostile)
	assert.Zero(t, eval[int](p, "document.images.length"))
	p.do(chromedp.Reload())
	p.live(hostile)

	h.Remove(hostile) // while the page shows it
	p.wait(`document.getElementById('notice').textContent.includes('There is no wheel')`)
	assert.True(t, eval[bool](p, "document.getElementById('main').hidden"))
	p.click("#wheels button:nth-child(1)")
	p.live("orders")
	p.showsPending("9")
	p.expectProblem("404") // the browser logs the answer for the removed wheel
}

func TestAddressChoosesTheWheel(t *testing.T) {
	t.Parallel()
	p := open(t, wheels("one", newManualWheel(t, timingwheel.Options{}), "orders & more", orders(t)), chosen("orders & more"))
	p.live("orders & more")
	p.showsPending("9")
	for id, format := range map[string]string{"json": "json", "profile": "pprof"} {
		assert.Equal(t, "?format="+format+"&wheel=orders+%26+more", eval[string](p, "new URL(document.getElementById('"+id+"').href).search"))
	}
}

func TestPageWithoutWheelsSaysSo(t *testing.T) {
	t.Parallel()
	p := open(t, &wheeldebug.Handler{}, "")
	p.wait(`document.getElementById('notice').textContent === 'No wheel has been added yet.'`)
}

// flakyHandler forwards requests to a handler, or fails them.
type flakyHandler struct {
	requests atomic.Int64 // first, because of its alignment on 32-bit systems
	failing  atomic.Bool
	handler  http.Handler
}

func (r *flakyHandler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Query().Get("format") == "json" {
		r.requests.Inc()
		if r.failing.Load() {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
	}
	r.handler.ServeHTTP(w, req)
}

// The page reports that answers are missing and recovers by itself. A paused or hidden page sends
// no requests.
func TestPageRecoversAndPausesRequests(t *testing.T) {
	t.Parallel()
	r := &flakyHandler{handler: wheels("orders", orders(t))}
	p := open(t, r, "")
	p.live("orders")
	r.failing.Store(true)
	p.wait(`document.getElementById('state').dataset.state === 'lost'`)
	assert.Contains(t, p.text("#notice"), "503")
	assert.Contains(t, p.text("#notice"), "The figures are from ")
	r.failing.Store(false)
	p.live("orders")
	p.expectProblem("503")

	p.click("#pause")
	p.wait(`document.getElementById('state').dataset.state === 'paused'`)
	requireIdle := func() {
		t.Helper()
		assert.True(t, eval[bool](p, "page.request === null && page.timer === 0"), "a request is in progress or planned")
	}
	requireIdle()
	assert.Equal(t, "true", eval[string](p, `document.getElementById('pause').getAttribute('aria-pressed')`))
	requests := r.requests.Load()
	p.click("#pause")
	p.live("orders")
	p.wait("page.pasts.get('orders').points.length > 2")
	assert.Greater(t, r.requests.Load(), requests)

	hide := func(hidden bool) {
		p.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`Object.defineProperty(document, 'hidden', { value: %v, configurable: true });
			document.dispatchEvent(new Event('visibilitychange'))`, hidden)))
	}
	hide(true) // as if another tab was chosen
	requireIdle()
	points := eval[int](p, "page.pasts.get('orders').points.length")
	hide(false)
	p.wait(fmt.Sprintf("page.pasts.get('orders').points.length > %d", points))
}

// 1,000 of a unit is 1 of the next larger unit.
func TestFormatsOfNumbers(t *testing.T) {
	t.Parallel()
	p := open(t, wheels("orders", orders(t)), "")
	p.live("orders")
	for expression, want := range map[string]string{
		"duration(0)":           "0",
		"duration(1)":           "1 ns",
		"duration(999.9999e3)":  "1 ms",
		"duration(1.25e6)":      "1.25 ms",
		"duration(-2.5e9)":      "\u22122.5 s",
		"duration(59.94e9)":     "59.9 s",
		"duration(59.96e9)":     "1 min",
		"duration(65.536e9)":    "1 min 6 s",
		"duration(3599.7e9)":    "1 h",
		"duration(16777.216e9)": "4 h 40 min",
		"duration(2 ** 63)":     "292 y or more",
		"compact(9_999)":        "9,999",
		"compact(40_325)":       "40.3k",
		"compact(999_499)":      "999k",
		"compact(999_999)":      "1M",
		"compact(0.125)":        "0.125",
		"plural(1, 'timer')":    "1 timer",
		"plural(1234, 'timer')": "1,234 timers",
		"bytes(1536).join(' ')": "1.5 KiB",
		"String(nice(202_513))": "300000",
		"then(2, 2)":            "move to level 1 or finer, or wait another lap",
	} {
		assert.Equal(t, want, strings.ReplaceAll(eval[string](p, expression), "\u00a0", " "), expression)
	}
}

// The lateness of the last minute is the increase of the buckets during that minute.
func TestRecentLatenessIsOfTheLastMinute(t *testing.T) {
	t.Parallel()
	p := open(t, wheels("orders", orders(t)), "")
	p.live("orders")
	got := eval[[]int](p, `(() => {
		const past = new Past();
		const take = (second, ...counts) => past.add({ taken: new Date(second * 1000).toISOString(), pending: 0, counters: { armed: 0 },
			lateness: { max_ns: 250, buckets: counts.map((count, k) => ({ from_ns: k * 100, to_ns: (k + 1) * 100, count })) } });
		take(0, 50, 7);
		take(30, 90, 7);
		const known = past.recent();
		take(80, 90, 9, 1);
		const recent = past.recent();
		return [known.count, recent.count, recent.buckets.length, quantile(recent, 0.5), quantile(recent, 0.99)];
	})()`)
	assert.Equal(t, []int{40, 3, 2, 200, 250}, got, "a quantile must not exceed the maximum")
}

// The cursor is on a slot of a large wheel. On a small wheel without that slot there is no cursor.
func TestCursorIsResetIfWheelHasNoSuchSlot(t *testing.T) {
	t.Parallel()
	small, large := newManualWheel(t, timingwheel.Options{WheelSize: 8}), newManualWheel(t, timingwheel.Options{WheelSize: 64})
	p := open(t, wheels("small", small, "large", large), chosen("large"))
	p.live("large")
	p.do(chromedp.Focus(chromedp.CSS(`.strip[data-level="1"]`)), chromedp.KeyEvent(kb.End))
	assert.Contains(t, p.text("#readout"), "slot 63: 0 timers")
	p.do(chromedp.Evaluate[chromedp.Void](`page.choose('small')`)) // keeps the focus
	p.live("small")
	assert.Contains(t, p.text("#readout"), "Point at a slot")
	assert.Equal(t, []string{"0", "7", "now"}, eval[[]string](p, `['valuenow', 'valuemax', 'valuetext'].map((name) => document.activeElement.getAttribute('aria-' + name))`))
	p.do(chromedp.KeyEvent(kb.ArrowRight))
	assert.Contains(t, p.text("#readout"), "slot 1: 0 timers")
}

// The cursor is on a slot that the next wheel has too. The strip and the rings mark the slot with
// its width on that wheel.
func TestCursorIsKeptIfWheelHasTheSlot(t *testing.T) {
	t.Parallel()
	small, large := newManualWheel(t, timingwheel.Options{WheelSize: 8}), newManualWheel(t, timingwheel.Options{WheelSize: 64})
	mark := func(name string) string {
		p := open(t, wheels("small", small, "large", large), chosen(name))
		p.live(name)
		p.do(chromedp.Focus(chromedp.CSS(`.strip[data-level="1"]`)), chromedp.KeyEvent(kb.ArrowRight))
		if name == "large" {
			p.do(chromedp.Evaluate[chromedp.Void](`page.choose('small')`))
			p.live("small")
		}
		assert.Contains(t, p.text("#readout"), "slot 1: 0 timers")
		return eval[string](p, `document.querySelector('#rings .chosen').getAttribute('d')`)
	}
	assert.Equal(t, mark("small"), mark("large"))
}

// Samples of an earlier wheel with the same name, or of an earlier process, are not part of a rate.
// An unknown rate is shown as a dash.
func TestRateIgnoresSamplesOfAnotherWheel(t *testing.T) {
	t.Parallel()
	p := open(t, wheels("orders", orders(t)), "")
	p.live("orders")
	got := eval[[]string](p, `(() => {
		const past = new Past();
		const take = (second, armed, stopped) => past.add({ taken: new Date(second * 1000).toISOString(), pending: 0, counters: { armed, stopped }, lateness: { buckets: [] } });
		const said = () => page.rates.say('stopped', past.rates('armed', 'stopped', 'stopped'), 2);
		take(0, 10, 10);
		take(1, 20, 15);
		const before = said().now;
		take(100, 30, 17);
		const after = said().now, all = said().all;
		take(101, 40, 3);
		return [before, after, all, String(past.rate('stopped')), String(past.points.length)];
	})()`)
	assert.Equal(t, []string{"stopped 5/s", "stopped \u2013", "stopped \u2013, lowest 5/s, highest 5/s", "null", "1"}, got)
}

// A long list of wheels scrolls to the chosen wheel.
func TestChosenWheelIsVisibleInTheList(t *testing.T) {
	t.Parallel()
	h := &wheeldebug.Handler{}
	for k := range 60 {
		require.NoError(t, h.Add(fmt.Sprintf("wheel number %d", k), orders(t)))
	}
	p := open(t, h, chosen("wheel number 55"))
	p.do(chromedp.EmulateViewport(320, 800), chromedp.Reload())
	requireVisible := func(k int) {
		t.Helper()
		p.live(fmt.Sprintf("wheel number %d", k))
		p.wait(`(() => {
			const list = byId('wheels').getBoundingClientRect(), it = document.querySelector('#wheels [aria-pressed=true]').getBoundingClientRect();
			return it.top >= list.top && it.bottom <= list.bottom;
		})()`)
	}
	requireVisible(55)
	p.do(chromedp.Evaluate[chromedp.Void](`page.choose('wheel number 3')`))
	requireVisible(3)
	assert.Zero(t, eval[float64](p, "scrollY"), "the page itself has scrolled")
}

// Pointing at a ring changes the readout and the cursor on the strip.
func TestPointingAtARingMovesTheCursor(t *testing.T) {
	t.Parallel()
	p := open(t, wheels("orders", orders(t)), "")
	p.live("orders")
	point := func(level, slot int) {
		p.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`(() => {
			const rings = byId('rings'), [from, to] = page.rings.radii(%d), r = (from + to) / 2, a = (%d + 0.5) / 8 * 2 * Math.PI;
			const at = new DOMPoint(r * Math.sin(a), -r * Math.cos(a)).matrixTransform(rings.getScreenCTM());
			rings.dispatchEvent(new PointerEvent('pointermove', { clientX: at.x, clientY: at.y }));
		})()`, level, slot)))
	}
	point(0, 2)
	assert.Equal(t, "Level 0, +2\u00a0s to +3\u00a0s, slot 2: 4 timers", p.text("#readout"))
	point(1, 7)
	assert.Equal(t, "Level 1, +56\u00a0s to +1\u00a0min\u00a04\u00a0s, slot 7: 0 timers", p.text("#readout"))
	assert.Equal(t, "visible", eval[string](p, `document.querySelector('.strip[data-level="1"] .cursor').getAttribute('visibility')`))
	assert.NotEmpty(t, eval[string](p, `document.querySelector('#rings .chosen').getAttribute('d')`))
	p.do(chromedp.Evaluate[chromedp.Void](`byId('rings').dispatchEvent(new PointerEvent('pointerleave'))`))
	assert.Contains(t, p.text("#readout"), "Point at a slot")
}

// All parts can be reached with the keyboard, and the focus is visible.
func TestKeyboardNavigation(t *testing.T) {
	t.Parallel()
	p := open(t, wheels("orders", orders(t), "empty", newManualWheel(t, timingwheel.Options{})), "")
	p.live("orders")
	var order []string
	for range 12 {
		p.do(chromedp.KeyEvent(kb.Tab))
		order = append(order, eval[string](p, `(() => { const e = document.activeElement; return e.id || e.dataset.level || e.className || e.textContent; })()`))
		outline := eval[string](p, "getComputedStyle(document.activeElement).outlineStyle + getComputedStyle(document.activeElement).outlineWidth")
		assert.Equal(t, "solid3px", outline, "focus on %s", order[len(order)-1])
	}
	assert.Equal(t, []string{"skip", "pause", "theme", "json", "profile", "orders9", "empty0", "0", "1", "2", "scroll", "Slots as a table"}, order)

	p.do(chromedp.Focus(chromedp.CSS(`.strip[data-level="0"]`)))
	value := func() string { return eval[string](p, `document.activeElement.getAttribute('aria-valuetext')`) }
	press := func(keys string) { p.do(chromedp.KeyEvent(keys)) }
	assert.Equal(t, "now to +1\u00a0s, slot 0: 0 timers", value())
	press(kb.ArrowRight + kb.ArrowRight)
	assert.Equal(t, "+2\u00a0s to +3\u00a0s, slot 2: 4 timers", value())
	assert.Equal(t, "Level 0, +2\u00a0s to +3\u00a0s, slot 2: 4 timers", p.text("#readout"))
	press(kb.End + kb.ArrowRight)
	assert.Equal(t, "+7\u00a0s to +8\u00a0s, slot 7: 1 timer", value())
	press(kb.Home + kb.ArrowLeft)
	assert.Equal(t, "now to +1\u00a0s, slot 0: 0 timers", value())

	p.do(chromedp.Focus(chromedp.CSS("#wheels button:nth-child(2)")))
	press(kb.Enter)
	p.live("empty")
	p.wait("page.pasts.get('empty').points.length > 1")
	assert.Equal(t, "empty0", eval[string](p, "document.activeElement.textContent"), "the focus was lost by an update")
	assert.Equal(t, "SPAN", strings.ToUpper(eval[string](p, "document.activeElement.firstChild.tagName")))
}

// Screen readers announce changes in live regions. Figures that change every second must not be in
// one.
func TestScreenReadersDoNotAnnounceFigures(t *testing.T) {
	t.Parallel()
	p := open(t, wheels("orders", orders(t)), "")
	p.live("orders")
	assert.Equal(t, []string{"state-text", "notice"},
		eval[[]string](p, `[...document.querySelectorAll('[aria-live], [role=status], [role=alert], [role=log]')].map((e) => e.id)`))
	// Each drawing and each focusable element has a name or is hidden.
	assert.Empty(t, eval[[]string](p, `[...document.querySelectorAll('a, button, [tabindex="0"], [role=img], main svg:not([role])')].filter((e) =>
		!(e.closest('[aria-hidden=true]') || e.getAttribute('aria-label') || e.getAttribute('aria-labelledby') || e.textContent.trim())).map((e) => e.outerHTML)`))
	assert.Equal(t, "en", eval[string](p, "document.documentElement.lang"))
	assert.Equal(t, 1, eval[int](p, "document.querySelectorAll('h1').length"))
	assert.Zero(t, eval[int](p, `document.querySelectorAll('[id]').length - new Set([...document.querySelectorAll('[id]')].map((e) => e.id)).size`), "ids are unique")
	assert.Equal(t, fmt.Sprint(9), p.text("#rings .total"))
}

func TestPageShowsPanicsAndOverdueTimers(t *testing.T) {
	t.Parallel()
	tw, err := timingwheel.New(timingwheel.Options{
		Shards: 1, Executor: timingwheel.Inline, OnPanic: func(any, []byte) {},
	})
	require.NoError(t, err)
	defer tw.Stop()
	release := make(chan struct{})
	defer close(release)
	p := open(t, wheels("trouble", tw), "")
	p.live("trouble")
	tw.AfterFunc(0, func() { panic("expected") })
	p.wait(`document.querySelector('#tile-fired small').textContent === '1 panic'`)
	tw.AfterFunc(0, func() { <-release })
	tw.AfterFunc(10*time.Millisecond, noop)
	p.wait(`/s overdue$/.test(document.querySelector('#tile-due small').textContent)`)
}
