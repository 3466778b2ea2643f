package browsertest

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// wheelFiles builds the files of the page "The wheel, live", as "make site" does. The page has no
// theme here.
var wheelFiles = sync.OnceValues(func() (map[string][]byte, error) {
	folder, err := os.MkdirTemp("", "wheel")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	module := filepath.Join(folder, "wheel.wasm")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", module, "./site/wheel")
	build.Dir = "../.."
	build.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return nil, err
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for name, source := range map[string]string{
		"wheel/wheel.wasm":   module,
		"wheel/wheel.js":     "../../site/wheel/wheel.js",
		"wheel/wheel.css":    "../../site/wheel/wheel.css",
		"wheel/wasm_exec.js": filepath.Join(strings.TrimSpace(string(root)), "lib/wasm/wasm_exec.js"),
		"":                   "../../site/wheel/page.md",
	} {
		if files[name], err = os.ReadFile(source); err != nil {
			return nil, err
		}
	}
	tags := regexp.MustCompile(`(?m)^<.*$`).FindAllString(string(files[""]), -1)
	files[""] = []byte("<!doctype html>\n<title>The wheel</title>\n<link rel=icon href=data:,>\n" + strings.Join(tags, "\n"))
	return files, nil
})

// openWheel opens the page of the wheel with an example.
func openWheel(t *testing.T, example string) *tab {
	t.Helper()
	findChromium(t)
	files, err := wheelFiles()
	require.NoError(t, err)
	p := open(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		file, ok := files[strings.TrimPrefix(r.URL.Path, path)]
		if !ok {
			http.NotFound(w, r)
			return
		}
		switch filepath.Ext(r.URL.Path) {
		case ".js":
			w.Header().Set("Content-Type", "text/javascript")
		case ".css":
			w.Header().Set("Content-Type", "text/css")
		case ".wasm":
			w.Header().Set("Content-Type", "application/wasm")
		default:
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
		}
		_, _ = w.Write(file) //nolint:errcheck // the browser sees it
	}), "")
	p.wait(`document.getElementById('wheel').dataset.ready === 'true'`)
	p.click("#wheel-" + example)
	return p
}

// events returns the lines of the log.
func (p *tab) events() []string {
	p.Helper()
	return eval[[]string](p, `[...document.querySelectorAll('#wheel-log div')].map((e) => e.textContent)`)
}

func TestWheelShowsTheCascadeOfTheExample(t *testing.T) {
	t.Parallel()
	p := openWheel(t, "cascade")
	assert.Equal(t, "192", p.text("#wheel-next"))
	assert.Equal(t, "1", p.text("#wheel-pending"))
	for _, tick := range []string{"192", "208", "213"} {
		p.click("#wheel-skip")
		assert.Equal(t, tick, p.text("#wheel-clock"))
	}
	assert.Equal(t, []string{
		"5: Timer 1 is armed for tick 213: level 2, slot 3.",
		"192: Timer 1 moves from level 2 to level 1, slot 2.",
		"208: Timer 1 moves from level 1 to level 0, slot 5.",
		"213: Timer 1 runs at tick 213.",
	}, p.events())
	assert.Equal(t, "3", p.text("#wheel-stops"))
	assert.Equal(t, 0, eval[int](p, `document.querySelectorAll('#wheel-dots g').length`))
}

func TestTimerOfALaterRoundIsMarked(t *testing.T) {
	t.Parallel()
	p := openWheel(t, "rounds")
	assert.Equal(t, "timer", eval[string](p, `document.getElementById('timer-1').getAttribute('class')`))
	assert.Equal(t, "timer waits", eval[string](p, `document.getElementById('timer-2').getAttribute('class')`))
	assert.Equal(t, []string{"2", "1237", "2", "3", "2"},
		eval[[]string](p, `[...document.querySelectorAll('#wheel-rows tr:last-child td')].slice(0, 5).map((e) => e.textContent)`))
}

func TestTimersAreAddedPostponedAndStopped(t *testing.T) {
	t.Parallel()
	p := openWheel(t, "reset")
	assert.Equal(t, "–", p.text("#wheel-next"))
	p.do(chromedp.Evaluate[chromedp.Void](`document.getElementById('wheel-delay').value = 0`))
	p.click("#wheel-arm")
	p.click("#wheel-arm")
	assert.Equal(t, "2", p.text("#wheel-pending"))
	for _, action := range []string{"Postpone timer 1 by 30 ticks", "Stop timer 2"} {
		p.click(`[aria-label=` + strconv.Quote(action) + `]`)
	}
	p.click("#wheel-step")
	assert.Equal(t, "1", p.text("#wheel-pending"))
	assert.Contains(t, p.events(), "0: Timer 2 is stopped.")
	assert.Contains(t, p.events(), "0: Timer 1 is rescheduled to tick 31. It stays where it is until its bucket expires.")
}

func TestHeartbeatPlays(t *testing.T) {
	t.Parallel()
	p := openWheel(t, "heartbeat")
	p.do(chromedp.Evaluate[chromedp.Void](`document.getElementById('wheel-speed').value = 30`))
	p.click("#wheel-play")
	p.wait(`document.getElementById('wheel-log').textContent.includes('12: Timer 2 runs at tick 12.')`)
	assert.Equal(t, "Pause", p.text("#wheel-play"))
	p.click("#wheel-play")
	assert.Equal(t, "1", p.text("#wheel-pending"))
}

// Each control has a name for screen readers, and the keyboard reaches it.
func TestWheelIsUsableWithoutAMouse(t *testing.T) {
	t.Parallel()
	p := openWheel(t, "crowd")
	assert.Empty(t, eval[[]string](p, `[...document.querySelectorAll('#wheel button, #wheel input')]
		.filter((e) => e.tabIndex < 0 || !(e.getAttribute('aria-label') || e.textContent)).map((e) => e.outerHTML)`))
	p.do(chromedp.Evaluate[chromedp.Void](`document.getElementById('wheel-skip').focus()`), chromedp.KeyEvent("\r"))
	p.wait(`document.getElementById('wheel-clock').textContent !== '0'`)
}
