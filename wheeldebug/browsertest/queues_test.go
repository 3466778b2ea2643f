package browsertest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/atomic"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/durabledebug"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
	"github.com/timingwheel-go/timingwheel/durable/pebblestore"
)

// openQueue opens a queue that is closed when the test ends.
func openQueue(t *testing.T, store durable.Store, name string) *durable.Queue {
	t.Helper()
	q, err := durable.Open(t.Context(), store, durable.Options{
		Queue: name, Partitions: 4, RetryFor: 30 * time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		q.Close()
		assert.NoError(t, store.Close())
	})
	return q
}

func memory() durable.Store { return memstore.New(memstore.Options{}) }

// stores opens a store of each kind.
var stores = map[string]func(t *testing.T) durable.Store{
	"memory": func(*testing.T) durable.Store { return memory() },
	"directory": func(t *testing.T) durable.Store {
		store, err := pebblestore.Open(t.TempDir(), pebblestore.Options{})
		require.NoError(t, err)
		return store
	},
}

// queues adds the given pairs of a name and a queue to h and returns h.
func queues(h *durabledebug.Handler, named ...any) *durabledebug.Handler {
	for i := 0; i < len(named); i += 2 {
		if err := h.Add(named[i].(string), named[i+1].(*durable.Queue)); err != nil {
			panic(err)
		}
	}
	return h
}

// put enqueues n messages whose ids begin with prefix.
func put(t *testing.T, q *durable.Queue, prefix string, n int, delay time.Duration) {
	t.Helper()
	messages := make([]durable.Message, n)
	for i := range messages {
		messages[i] = durable.Message{ID: fmt.Sprint(prefix, i), Body: []byte("private body"), Delay: delay}
	}
	_, err := q.EnqueueBatch(t.Context(), messages)
	require.NoError(t, err)
}

// consumeUntilEnd consumes until the returned function is called or the test ends.
func consumeUntilEnd(t *testing.T, q *durable.Queue, handler durable.Handler) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- q.Consume(ctx, handler, durable.ConsumerOptions{}) }()
	var over bool
	stop = func() {
		cancel()
		if !over {
			over = true
			assert.NoError(t, <-ended)
		}
	}
	t.Cleanup(stop)
	return stop
}

// bury enqueues messages and turns them into dead letters with the given reason.
func bury(t *testing.T, q *durable.Queue, why string, messages ...durable.Message) {
	t.Helper()
	for i := range messages {
		messages[i].Replace = true
	}
	_, err := q.EnqueueBatch(t.Context(), messages)
	require.NoError(t, err)
	for range messages {
		d, err := q.Take(t.Context())
		require.NoError(t, err)
		require.NoError(t, d.Bury(t.Context(), why))
	}
}

// tile waits until a figure at the top and its note together have the given text.
func (p *tab) tile(id, text string) {
	p.Helper()
	p.wait(fmt.Sprintf(`document.querySelector('#tile-%s').textContent.replaceAll('\u00a0', ' ') === %q`, id, text))
}

// figure waits until a figure at the top has the given text. It ignores the note of the figure.
func (p *tab) figure(id, text string) {
	p.Helper()
	p.wait(fmt.Sprintf(`document.querySelector('#tile-%s > span').textContent === %q`, id, text))
}

// texts returns the texts of all elements that match a CSS selector.
func (p *tab) texts(selector string) []string {
	p.Helper()
	return eval[[]string](p, fmt.Sprintf(`[...document.querySelectorAll(%q)].map((e) => e.textContent.replaceAll('\u00a0', ' '))`, selector))
}

// The figures follow a consumer, and a click on Replay redelivers a dead letter.
func TestQueuePageFollowsAConsumer(t *testing.T) {
	t.Parallel()
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := openQueue(t, store(t), "orders")
			p := open(t, queues(&durabledebug.Handler{Actions: true}, "orders", q), "")
			p.live("orders")
			p.tile("pending", "0messages")
			assert.Equal(t, "There are none.", p.text("#dead-note"))
			put(t, q, "now", 20, 0)
			put(t, q, "soon", 10, 55*time.Minute)
			put(t, q, "later", 3, 5*24*time.Hour)
			put(t, q, "bad", 1, 0)
			_, err := q.Enqueue(t.Context(), durable.Message{ID: "expired", ExpireAt: time.Now().Add(-time.Hour)})
			require.NoError(t, err)
			p.tile("pending", "35messages")
			p.tile("consumers", "0in all processes")
			p.wait(`document.getElementById('notice').textContent === 'Messages are due, but there is no consumer.'`)
			p.wait(`document.querySelectorAll('.band-labels b')[0].textContent === '22'`)
			assert.Equal(t, []string{"22due", "101 h", "37 d"}, eval[[]string](p, `[...document.querySelectorAll('.band-labels span')]
				.filter((e) => e.firstChild.textContent !== '0').map((e) => e.textContent.replaceAll('\u00a0', ' '))`))

			deliveries := make(chan string, 100)
			consumeUntilEnd(t, q, func(_ context.Context, d *durable.Delivery) error {
				deliveries <- d.ID
				if d.ID == "bad0" && len(deliveries) <= 21 {
					return durable.Reject(errors.New("the card was refused"))
				}
				return nil
			})
			p.tile("pending", "13messages")
			p.figure("dead", "1")
			p.wait(`document.querySelector('#tile-acked small').textContent === '20 in all'`)
			p.tile("consumers", "1in all processes")
			host, err := os.Hostname()
			require.NoError(t, err)
			row := p.texts("#consumers tbody td")
			require.Len(t, row, 7)
			assert.Equal(t, []string{host, strconv.Itoa(os.Getpid()), "0\u20133"}, []string{row[0], row[1], row[3]})
			assert.Contains(t, row[2], " ago")
			p.wait(`document.querySelector('#notice').hidden`)
			p.wait(`document.querySelector('#chart-lateness .keys').textContent.startsWith('all 21: ')`)
			assert.NotEmpty(t, eval[string](p, `document.querySelector('#chart-lateness .bar-fill').getAttribute('d')`))
			assert.Contains(t, eval[string](p, `document.querySelector('#chart-pending .plot').getAttribute('aria-label')`), "highest 35")
			assert.Equal(t, []string{"bad0", "rejected: the card was refused"}, p.texts("#dead .id, #dead .reason"))
			assert.Equal(t, "1 of 25", p.texts("#dead tbody td")[2])
			assert.NotContains(t, p.text("body"), "private body")
			assert.Equal(t, "Total: 0 cancelled, 1 expired, 1 dead letter, 0 of them dropped, 0 lost.", p.text("#totals"))

			p.click("#dead tbody button")
			p.figure("dead", "0")
			assert.Equal(t, "replayed: “bad0”", p.text("#outcome"))
			p.wait(`document.querySelector('#tile-acked small').textContent === '21 in all'`)
			assert.Len(t, deliveries, 22)
			assert.Empty(t, p.texts("#dead tbody tr"))

			p.click("#partitions-details summary")
			p.wait(`document.querySelectorAll('#partitions tbody tr').length === 4`)
			assert.Equal(t, 13, eval[int](p, `[...document.querySelectorAll('#partitions tbody tr')].reduce((sum, row) => sum + Number(row.cells[1].textContent), 0)`))
		})
	}
}

// Delete requires a second click. One action replays or deletes all dead letters of a queue, or all
// with a certain reason.
func TestQueuePageReplaysAndDeletes(t *testing.T) {
	t.Parallel()
	q, other := openQueue(t, memory(), "orders"), openQueue(t, memory(), "other")
	bury(t, q, "no", durable.Message{ID: "a"}, durable.Message{ID: "b"}, durable.Message{ID: "c"})
	bury(t, other, "the card expired", durable.Message{ID: "a"})
	bury(t, other, "no address", durable.Message{ID: "b"})
	bury(t, other, "no such card", durable.Message{ID: "c"})
	p := open(t, queues(&durabledebug.Handler{Actions: true}, "other", other, "orders", q), "?queue=orders")
	p.live("orders")
	p.figure("dead", "3")
	const delete = `#dead tbody tr:first-child button:nth-child(2)`
	first := p.texts("#dead .id")[0]
	p.click(delete)
	assert.Equal(t, "Click again to delete", p.text(delete))
	p.click(delete)
	p.figure("dead", "2")
	assert.Equal(t, "deleted: “"+first+"”", p.text("#outcome"))
	p.click("#replay-all")
	p.click("#replay-all")
	p.figure("dead", "0")
	assert.Equal(t, "2 dead letters replayed", p.text("#outcome"))
	p.wait(`page.shown.pending + page.shown.in_flight === 2`) // the receiver of bury may have claimed them
	p.click("#queues button:first-child")
	p.live("other")
	p.figure("dead", "3")
	assert.Empty(t, p.text("#outcome"))
	p.click("#delete-all")
	p.click("#queues button:last-child")
	p.live("orders")
	assert.Equal(t, "Delete all", p.text("#delete-all"), "a first click must not count for another queue")
	p.click("#queues button:first-child")
	p.live("other")
	assert.Len(t, p.texts("#dead tbody tr:not([hidden])"), 3)
	p.do(chromedp.SendKeys(chromedp.CSS("#reason"), "card"))
	assert.ElementsMatch(t, []string{"the card expired", "no such card"}, p.texts("#dead tbody tr:not([hidden]) .reason"))
	assert.Equal(t, "Delete all with this reason", p.text("#delete-all"))
	p.click("#delete-all")
	p.click("#delete-all")
	p.figure("dead", "1")
	assert.Equal(t, "2 dead letters deleted", p.text("#outcome"))
	p.do(chromedp.Evaluate[chromedp.Void](`byId('reason').value = ''; byId('reason').dispatchEvent(new Event('input'))`))
	assert.Equal(t, []string{"no address"}, p.texts("#dead tbody tr:not([hidden]) .reason"))
	p.click("#replay-all")
	p.click("#replay-all")
	p.figure("dead", "0")
	assert.True(t, eval[bool](p, `document.getElementById('dead-all').hidden`))
}

// Two clicks pause a queue, and one click resumes it. The page shows that the queue is paused.
func TestQueuePagePausesAndResumes(t *testing.T) {
	t.Parallel()
	q := openQueue(t, memory(), "orders")
	var handled atomic.Int32
	consumeUntilEnd(t, q, func(context.Context, *durable.Delivery) error { handled.Inc(); return nil })
	p := open(t, queues(&durabledebug.Handler{Actions: true}, "orders", q), "")
	p.live("orders")
	p.click("#hold")
	assert.Equal(t, "Click again to pause", p.text("#hold"))
	p.click("#hold")
	p.wait(`document.getElementById('notice').textContent === 'This queue is paused: no message begins until it is resumed.'`)
	assert.Equal(t, "The queue is paused", p.text("#outcome"))
	put(t, q, "m", 3, 0)
	p.figure("due", "3")
	assert.Zero(t, handled.Load())
	p.click("#hold")
	p.wait(`document.querySelector('#tile-acked small').textContent === '3 in all'`)
	p.wait(`document.getElementById('notice').hidden && document.getElementById('hold').textContent === 'Pause queue'`)
	assert.EqualValues(t, 3, handled.Load())
	p.do(chromedp.Evaluate[chromedp.Void](`byId('hold').click(); page.shown.paused = true; byId('hold').click()`))
	p.wait(`document.getElementById('outcome').textContent === 'The queue is paused'`) // as the button said at the first click
}

// Markup in ids, reasons, headers and names is shown as text: no script runs, and nothing is
// fetched.
func TestQueuePageShowsMarkupAsText(t *testing.T) {
	t.Parallel()
	const hostile = `<img src=x onerror="alert(1)"><script>alert(2)</script>&"'` + "\u202e\u2028"
	store := memory()
	q := openQueue(t, store, "orders")
	bury(t, q, hostile, durable.Message{ID: hostile, Headers: map[string]string{hostile: hostile, "__proto__": "x"}})
	backend, err := store.Open(t.Context(), driver.Config{Queue: "orders"})
	require.NoError(t, err)
	_, err = backend.Put(t.Context(), driver.Put{Items: []driver.PutItem{{ID: hostile + "2", Repeat: hostile, At: driver.Never}}})
	require.NoError(t, err) // package durable accepts no such Repeat
	p := open(t, queues(&durabledebug.Handler{Actions: true, Headers: true}, hostile, q), "")
	p.wait(`page.shown && page.shown.dead === 1`)
	assert.Equal(t, hostile, p.text("#queues button > span"))
	assert.Equal(t, hostile, eval[string](p, `document.querySelector('#dead .id').firstChild.data`))
	assert.Equal(t, hostile, p.text("#dead .reason"))
	assert.Equal(t, []string{hostile + ": " + hostile, "__proto__: x"}, p.texts("#dead .headers"))
	assert.Equal(t, []string{hostile + "2", hostile}, p.texts("#recurring tbody td")[:2])
	assert.Zero(t, eval[int](p, `document.querySelectorAll('img, body script').length`))
	p.click("#dead tbody button")
	p.figure("dead", "0")
	assert.Equal(t, "replayed: “"+hostile+"”", p.text("#outcome"))
	d, err := q.Take(t.Context())
	require.NoError(t, err)
	assert.Equal(t, hostile, d.ID)
	require.NoError(t, d.Ack(t.Context()))
}

// The page shows recurring messages, and why they do not run. A click on Resume continues one that
// crashes have stopped.
func TestQueuePageShowsRecurringMessages(t *testing.T) {
	t.Parallel()
	q := openQueue(t, memory(), "orders")
	h := queues(&durabledebug.Handler{Actions: true}, "orders", q)
	p := open(t, h, "")
	p.live("orders")
	assert.True(t, eval[bool](p, `document.getElementById('recurring').hidden`))
	for _, m := range []durable.Message{
		{ID: "daily", Repeat: "CRON_TZ=Europe/Berlin 0 8 * * *"}, {ID: "failing", Repeat: "@every 2160h"}, {ID: "running", Repeat: "@every 720h"},
		{ID: "stopped", Repeat: "@every 1440h"},
	} {
		_, err := q.Enqueue(t.Context(), m)
		require.NoError(t, err)
	}
	_, err := q.RescheduleAt(t.Context(), "stopped", driver.Never.Time()) // as many crashes do
	require.NoError(t, err)
	release := make(chan struct{})
	consumeUntilEnd(t, q, func(ctx context.Context, d *durable.Delivery) error {
		if d.ID == "failing" {
			return durable.Fail(errors.New("the mail server answers 421"), 100*time.Hour)
		}
		select {
		case <-release:
		case <-ctx.Done():
		}
		return ctx.Err()
	})
	t.Cleanup(func() { close(release) })
	for _, id := range []string{"failing", "running"} {
		_, err := q.Reschedule(t.Context(), id, 0)
		require.NoError(t, err)
	}
	p.wait(`document.querySelectorAll('#recurring tbody tr').length === 4 && document.querySelectorAll('#recurring tbody tr')[1].cells[2].firstChild.textContent === 'running'`)
	p.wait(`document.getElementById('recurring').textContent.includes('answers 421')`)
	p.wait(`document.getElementById('notice').textContent === 'Crashes have stopped a recurring message.'`)
	text := func(row, column int) string {
		return eval[string](p, fmt.Sprintf(`document.querySelectorAll('#recurring tbody tr')[%d].cells[%d].firstChild.textContent.replaceAll('\u00a0', ' ')`, row, column))
	}
	for row, want := range [][]string{{"stopped", "@every 1440h", "stopped by crashes"}, {"running", "@every 720h", "running"}} {
		assert.Equal(t, want, []string{text(row, 0), text(row, 1), text(row, 2)})
	}
	assert.Equal(t, []string{"daily", "CRON_TZ=Europe/Berlin 0 8 * * *"}, []string{text(2, 0), text(2, 1)})
	assert.Regexp(t, `^in \d+ `, text(2, 2))
	assert.Equal(t, []string{"failing", "the mail server answers 421", "1 of 25"}, []string{text(3, 0), text(3, 3), text(3, 4)})
	assert.Regexp(t, `^in 4 d [34] h$`, text(3, 2))
	assert.Empty(t, p.text("#recurring-note"))
	assert.Len(t, p.texts("#recurring button"), 1)
	p.click("#recurring button")
	p.wait(`document.querySelectorAll('#recurring button').length === 0`)
	assert.Equal(t, "replayed: “stopped”", p.text("#outcome"))
	p.wait(`document.getElementById('notice').hidden`)
}

// The page says that messages wait for a limit or a handler.
func TestQueuePageShowsThatMessagesWait(t *testing.T) {
	t.Parallel()
	q := openQueue(t, memory(), "orders")
	put(t, q, "m", 20, 0)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	source := durable.Source{Queue: q, Rate: 0.001, Handler: func(context.Context, *durable.Delivery) error { return nil }}
	go func() { ended <- durable.Consume(ctx, []durable.Source{source}, durable.ConsumerOptions{}) }()
	t.Cleanup(func() { cancel(); assert.NoError(t, <-ended) })
	p := open(t, queues(&durabledebug.Handler{}, "orders", q), "")
	p.wait(`document.getElementById('notice').textContent === 'Messages wait for a free handler or a limit of the queue.'`)
	p.figure("due", "19")
	_, err := q.CancelAll(t.Context())
	require.NoError(t, err)
	p.wait(`document.getElementById('notice').hidden`)
}

// Without options the page cannot change a queue and does not show headers.
func TestQueuePageIsReadOnlyByDefault(t *testing.T) {
	t.Parallel()
	q := openQueue(t, memory(), "orders")
	bury(t, q, "no", durable.Message{ID: "a", Headers: map[string]string{"secret": "key"}})
	p := open(t, queues(&durabledebug.Handler{}, "orders", q), "")
	p.live("orders")
	p.figure("dead", "1")
	assert.Empty(t, p.texts("#dead button"))
	assert.True(t, eval[bool](p, `document.getElementById('dead-all').hidden`))
	assert.NotContains(t, p.text("body"), "secret")
	assert.Contains(t, p.text("#footer"), "This page is read-only.")
	p.do(chromedp.Evaluate[chromedp.Void](`page.act('delete', 'a')`))
	p.wait(`document.getElementById('outcome').textContent.includes('actions are disabled')`)
	p.expectProblem("403")
	_, err := q.Get(t.Context(), "a")
	require.NoError(t, err)
}

// A page of another site cannot change a queue with the browser of its visitor.
func TestOtherSiteCannotChangeAQueue(t *testing.T) {
	t.Parallel()
	q := openQueue(t, memory(), "orders")
	bury(t, q, "no", durable.Message{ID: "a"})
	p := open(t, queues(&durabledebug.Handler{Actions: true}, "orders", q), "")
	p.live("orders")
	attack := open(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(`<!doctype html><link rel="icon" href="data:,">`))
	}), "")
	target := p.server.URL + path
	attack.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`
		fetch(%q, { method: 'POST', mode: 'no-cors', body: new URLSearchParams({ action: 'delete', queue: 'orders', all: 'true' }) }).catch(() => {}).finally(() => { document.title = 'sent'; })`, target)))
	attack.wait(`document.title === 'sent'`)
	attack.mu.Lock()
	assert.Contains(t, attack.requests, target)
	attack.requests, attack.problems = attack.requests[:1], nil
	attack.mu.Unlock()
	st, err := q.Stats(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 1, st.Dead)
	p.do(chromedp.Evaluate[chromedp.Void](`fetch('?', { method: 'POST', body: new URLSearchParams({ action: 'delete', queue: 'orders', all: 'true' }) })`))
	p.figure("dead", "0") // the same request of the page itself succeeds
}

// On small and large screens no element is wider than the screen, in both themes and with long
// texts.
func TestQueuePageFitsScreens(t *testing.T) {
	t.Parallel()
	q := openQueue(t, memory(), "orders")
	long := strings.Repeat("x", 255)
	bury(t, q, strings.Repeat("reason", 80), durable.Message{ID: long, Headers: map[string]string{long: long}})
	bury(t, q, "short", durable.Message{ID: "a"})
	put(t, q, "m", 1000, time.Hour)
	_, err := q.Enqueue(t.Context(), durable.Message{ID: long[1:], Repeat: "0 8 * * 1" + strings.Repeat(",1", 100), Headers: map[string]string{long: long}})
	require.NoError(t, err)
	p := open(t, queues(&durabledebug.Handler{Actions: true, Headers: true}, "orders", q, long[:128], q), "")
	p.live("orders")
	p.click("#partitions-details summary")
	for _, width := range []int64{320, 640, 1024, 1920} {
		p.do(chromedp.EmulateViewport(width, 800))
		assert.Equal(t, width, eval[int64](p, "document.documentElement.scrollWidth"), "at %d", width)
		assert.Empty(t, eval[[]string](p, `[...document.querySelectorAll('main > *')].filter((e) => {
			const b = e.getBoundingClientRect(); return b.left < 0 || b.right > innerWidth + 0.5; }).map((e) => e.className)`), "at %d", width)
		assert.Empty(t, eval[[]string](p, `[...document.querySelectorAll('.band-labels span')].filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.textContent)`), "at %d", width)
		assert.Empty(t, eval[[]string](p, `[...document.querySelectorAll('button, .button')].filter((e) => e.offsetParent && e.getBoundingClientRect().height < 24).map((e) => e.id)`))
	}
	background := func() string { return eval[string](p, "getComputedStyle(document.body).backgroundColor") }
	p.media(scheme("light"))
	light := background()
	p.media(scheme("dark"))
	assert.NotEqual(t, light, background())
	// Each drawing and each focusable element has a name or is hidden.
	assert.Empty(t, eval[[]string](p, `[...document.querySelectorAll('a, button, [tabindex="0"], [role=img], main svg:not([role])')].filter((e) =>
		!(e.closest('[aria-hidden=true]') || e.getAttribute('aria-label') || e.getAttribute('aria-labelledby') || e.textContent.trim())).map((e) => e.outerHTML)`))
	assert.Equal(t, []string{"state-text", "notice", "outcome"},
		eval[[]string](p, `[...document.querySelectorAll('[aria-live], [role=status], [role=alert], [role=log]')].map((e) => e.id)`))
}

// The page says that the queue in its address does not exist or was removed.
func TestQueuePageOfMissingQueue(t *testing.T) {
	t.Parallel()
	h := queues(&durabledebug.Handler{Actions: true}, "orders", openQueue(t, memory(), "orders"))
	p := open(t, h, "?"+url.Values{"queue": {"<b>none"}}.Encode())
	p.wait(`document.getElementById('notice').textContent === 'There is no queue “<b>none” here. Choose another one.'`)
	p.click("#queues button")
	p.live("orders")
	assert.False(t, eval[bool](p, `document.getElementById('hold').hidden`))
	require.True(t, h.Remove("orders"))
	p.wait(`document.getElementById('hold').hidden && document.getElementById('main').hidden && document.querySelectorAll('#queues button').length === 0`)
	p.click("#pause")
	p.expectProblem("404")
}
