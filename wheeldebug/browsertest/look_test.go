package browsertest

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/survey"
	"github.com/timingwheel-go/timingwheel/wheeldebug"
)

// colours are the computed colours of the page.
type colours struct{ Page, Ink, Card, Heat, Scheme string }

func (p *tab) colours() colours {
	p.Helper()
	return eval[colours](p, `({
		Page: getComputedStyle(document.body).backgroundColor, Ink: getComputedStyle(document.body).color,
		Card: getComputedStyle(document.querySelector('.card')).backgroundColor,
		Heat: getComputedStyle(document.querySelector('.heat8')).fill, Scheme: getComputedStyle(document.documentElement).colorScheme,
	})`)
}

// The theme follows the system until the user chooses one. The browser's storage keeps the choice.
func TestThemeFollowsSystemUntilChosen(t *testing.T) {
	t.Parallel()
	p := open(t, wheels("orders", orders(t)), "")
	p.live("orders")
	p.media(scheme("light"))
	light := p.colours()
	p.media(scheme("dark"))
	dark := p.colours()
	assert.Equal(t, colours{"rgb(246, 244, 239)", "rgb(29, 39, 48)", "rgb(255, 253, 249)", "rgb(3, 34, 43)", "light"}, light)
	assert.Equal(t, colours{"rgb(14, 20, 23)", "rgb(232, 237, 238)", "rgb(21, 29, 33)", "rgb(219, 247, 243)", "dark"}, dark)

	press := func(want string) {
		p.click("#theme")
		assert.Equal(t, "Theme: "+want, p.text("#theme"))
	}
	press("light") // while the system prefers dark
	assert.Equal(t, light, p.colours())
	press("dark")
	p.media(scheme("light"))
	assert.Equal(t, dark, p.colours())
	p.do(chromedp.Reload())
	p.live("orders")
	assert.Equal(t, dark, p.colours(), "the choice was lost on reload")
	press("auto")
	assert.Equal(t, light, p.colours())
}

func TestReducedMotionStopsAnimations(t *testing.T) {
	t.Parallel()
	p := open(t, wheels("orders", orders(t)), "")
	p.live("orders")
	const moving = `[...document.querySelectorAll('*')].filter((e) => getComputedStyle(e).transitionDuration !== '0s' || getComputedStyle(e).animationName !== 'none').length`
	p.media(&emulation.MediaFeature{Name: "prefers-reduced-motion", Value: "no-preference"})
	assert.NotZero(t, eval[int](p, moving))
	p.media(&emulation.MediaFeature{Name: "prefers-reduced-motion", Value: "reduce"})
	assert.Zero(t, eval[int](p, moving))
}

// hugeSource is a source with the widest figures.
type hugeSource struct{ wheeldebug.Source }

func init() {
	take := survey.Take
	survey.Take = func(wheel any) survey.Wheel {
		c, ok := wheel.(hugeSource)
		if !ok {
			return take(wheel)
		}
		v := take(c.Source)
		v.Pending, v.Due = 8_888_888, 8_888_888
		return v
	}
}

func (c hugeSource) Stats() timingwheel.Stats {
	st := c.Source.Stats()
	st.Running, st.Overdue, st.Bytes = 8_888_888, 100*time.Hour, 888<<30
	return st
}

// On small and large screens no element is wider than the screen, and no button is too small.
func TestPageFitsScreens(t *testing.T) {
	t.Parallel()
	deep := newManualWheel(t, timingwheel.Options{WheelSize: 16, Levels: 16, Shards: 4})
	for k := range 62 {
		for range 1 << min(k, 10) {
			deep.AfterFunc(time.Duration(1)<<k, noop)
		}
	}
	named := "a name without any place to break " + strings.Repeat("x", 90)
	p := open(t, wheels("orders", orders(t), "deep", deep, named, newManualWheel(t, timingwheel.Options{WheelSize: 65536}), "crowd", hugeSource{deep}), "")
	for _, width := range []int64{320, 375, 640, 768, 1024, 1280, 1920} {
		p.do(chromedp.EmulateViewport(width, 800))
		for n, name := range []string{"orders", "deep", named, "crowd"} {
			p.wait("document.querySelectorAll('#wheels button').length === 4")
			p.do(chromedp.Evaluate[chromedp.Void](`document.querySelectorAll('#wheels button')[` + string(rune('0'+n)) + `].click()`))
			p.live(name)
			assert.Equal(t, width, eval[int64](p, "document.documentElement.scrollWidth"), "%s at %d", name, width)
			assert.Empty(t, eval[[]string](p, `[...document.querySelectorAll('main > *')].filter((e) => {
				const b = e.getBoundingClientRect(); return b.left < 0 || b.right > innerWidth + 0.5; }).map((e) => e.className)`), "%s at %d", name, width)
			assert.Empty(t, eval[[]string](p, `[...document.querySelectorAll('.tiles dd')].filter((e) => e.scrollWidth > e.clientWidth + 1 ||
				e.firstChild.offsetHeight > 2 * parseFloat(getComputedStyle(e).fontSize)).map((e) => e.id + ': ' + e.textContent)`),
				"figures that are cut off or wrapped: %s at %d", name, width)
			assert.Empty(t, eval[[]string](p, `[...document.querySelectorAll('.scale > span')].filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.textContent)`),
				"numbers of the legend that overlap: %s at %d", name, width)
			assert.Empty(t, eval[[]string](p, `[...document.querySelectorAll('.tick-label')].filter((e) => {
				const b = e.getBoundingClientRect(), plot = e.parentElement.getBoundingClientRect(), card = e.closest('.card').getBoundingClientRect();
				return b.right > plot.left || b.left < card.left; }).map((e) => e.textContent)`), "labels that cover the drawing or leave the card: %s at %d", name, width)
		}
		assert.Empty(t, eval[[]string](p, `[...document.querySelectorAll('button, .button')].filter((e) => e.getBoundingClientRect().height < 24).map((e) => e.id)`))
	}
}

// The number of elements is bounded for any number of slots, because the browser redraws them every
// second.
func TestNumberOfElementsIsBounded(t *testing.T) {
	t.Parallel()
	tw := newManualWheel(t, timingwheel.Options{WheelSize: 65536, Levels: 16})
	for k := range 100_000 {
		tw.AfterFunc(time.Duration(k*k)*time.Millisecond, noop)
	}
	p := open(t, wheels("large", tw), "")
	p.live("large")
	p.showsPending("100,000")
	assert.Less(t, eval[int](p, "document.querySelectorAll('*').length"), 1000)
	p.click("#slots-details summary")
	p.wait("document.querySelectorAll('#slots tbody tr').length > 0")
	assert.LessOrEqual(t, eval[int](p, "document.querySelectorAll('#slots tbody tr').length"), 200)
	assert.Contains(t, p.text("#slots-note"), "more slots with timers")
}
