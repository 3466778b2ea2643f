package durabledebug

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
	"github.com/timingwheel-go/timingwheel/wheeldebug"
)

// store is a memory store whose reads a test can count, delay or fail.
type store struct {
	durable.Store
	before func(ctx context.Context) error // called before each read
	lists  atomic.Int32
	slow   atomic.Int64 // duration of List; negative: List fails
}

func (s *store) Open(ctx context.Context, c driver.Config) (driver.Backend, error) {
	b, err := s.Store.Open(ctx, c)
	return &backend{b, s}, err
}

type backend struct {
	driver.Backend
	s *store
}

func (b *backend) Count(ctx context.Context, partition int) (driver.Counts, error) {
	if err := b.s.before(ctx); err != nil {
		return driver.Counts{}, err
	}
	return b.Backend.Count(ctx, partition)
}

func (b *backend) List(ctx context.Context, partition int, state driver.State, cursor string, limit int) ([]driver.Record, string, error) {
	b.s.lists.Add(1)
	if b.s.slow.Load() < 0 {
		return nil, "", errors.New("<the list>")
	}
	time.Sleep(time.Duration(b.s.slow.Load()))
	return b.Backend.List(ctx, partition, state, cursor, limit)
}

// openQueue opens a queue with two partitions. before may be nil.
func openQueue(t *testing.T, before func(ctx context.Context) error) (*durable.Queue, *store) {
	t.Helper()
	if before == nil {
		before = func(context.Context) error { return nil }
	}
	s := &store{Store: memstore.New(memstore.Options{}), before: before}
	q, err := durable.Open(t.Context(), s, durable.Options{Queue: "orders", Partitions: 2, RetryFor: 100 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(q.Close)
	return q, s
}

// bury creates a dead letter.
func bury(t *testing.T, q *durable.Queue, m durable.Message, reason string) {
	t.Helper()
	_, err := q.Enqueue(t.Context(), m)
	require.NoError(t, err)
	d, err := q.Take(t.Context())
	require.NoError(t, err)
	require.NoError(t, d.Bury(t.Context(), reason))
}

func handler(t *testing.T, h *Handler, name string, q *durable.Queue) *Handler {
	t.Helper()
	require.NoError(t, h.Add(name, q))
	return h
}

func request(h http.Handler, method, target, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func decode[T any](t *testing.T, w *httptest.ResponseRecorder, status int) (v T) {
	t.Helper()
	require.Equal(t, status, w.Code, w.Body)
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	decoder := json.NewDecoder(w.Body)
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&v))
	return v
}

// decodedDocument is a jsonDocument with all fields of a queue.
type decodedDocument struct {
	jsonDocument
	Queue *decodedQueue `json:"queue"`
}

type decodedQueue struct {
	Name        string              `json:"name"`
	Taken       time.Time           `json:"taken"`
	Now         time.Time           `json:"now"`
	Paused      bool                `json:"paused"`
	Pending     int64               `json:"pending"`
	Due         int64               `json:"due"`
	OverdueNs   int64               `json:"overdue_ns"`
	InFlight    int64               `json:"in_flight"`
	Dead        int64               `json:"dead"`
	DeadBytes   int64               `json:"dead_bytes"`
	Unreadable  int64               `json:"unreadable"`
	Lost        uint64              `json:"lost"`
	Prefetched  int                 `json:"prefetched"`
	Running     int                 `json:"running"`
	Unowned     int                 `json:"unowned"`
	Counters    map[string]uint64   `json:"counters"`
	Bands       []band              `json:"bands"`
	Lateness    wheeldebug.Lateness `json:"lateness"`
	Consumers   []durable.Consumer  `json:"consumers"`
	Partitions  []partition         `json:"partitions"`
	DeadLetters []message           `json:"dead_letters"`
	Recurring   []message           `json:"recurring"`
	Found       int                 `json:"recurring_found"`
	Searched    int                 `json:"searched"`
	SearchedAll bool                `json:"searched_all"`
}

func document(t *testing.T, h http.Handler, target string, status int) decodedDocument {
	t.Helper()
	return decode[decodedDocument](t, request(h, http.MethodGet, target, ""), status)
}

// The document contains the counts of the queue, and the bands add up.
func TestDocumentAgreesWithTheQueue(t *testing.T) {
	t.Parallel()
	q, _ := openQueue(t, nil)
	expire := time.Date(2130, 1, 31, 9, 0, 0, 0, time.UTC)
	bury(t, q, durable.Message{ID: "dead", Body: []byte("body"), Headers: map[string]string{"k": "v"}, MaxAttempts: 3, ExpireAt: expire}, "why")
	for i := range 10 {
		_, err := q.Enqueue(t.Context(), durable.Message{ID: fmt.Sprint(i), Delay: time.Duration(i+1) * 50 * time.Minute})
		require.NoError(t, err)
	}
	h := handler(t, &Handler{Headers: true}, "orders", q)
	d := document(t, h, "/anywhere?format=json", http.StatusOK)
	assert.Equal(t, schemaVersion, d.Schema)
	assert.False(t, d.Actions)
	assert.Equal(t, []entry{{"orders"}}, d.Queues)
	got := d.Queue
	assert.Equal(t, "orders", got.Name)
	assert.WithinDuration(t, time.Now(), got.Taken, time.Minute)
	assert.WithinDuration(t, time.Now(), got.Now, time.Minute)
	assert.EqualValues(t, 10, got.Pending)
	assert.EqualValues(t, 1, got.Dead)
	assert.EqualValues(t, 11, got.Counters["enqueued"])
	assert.EqualValues(t, 1, got.Counters["buried"])
	assert.EqualValues(t, 1, got.Lateness.Count)
	require.Len(t, got.Partitions, 2)
	assert.EqualValues(t, 10, got.Partitions[0].Pending+got.Partitions[1].Pending)
	require.Len(t, got.Bands, len(bounds))
	found := map[time.Duration]int64{}
	sum, from := int64(0), int64(0)
	for _, b := range got.Bands {
		assert.Equal(t, from, b.FromNs)
		sum, from = sum+b.Messages, b.ToNs
		if b.Messages > 0 {
			found[time.Duration(b.ToNs)] = b.Messages
		}
	}
	assert.EqualValues(t, 10, sum)
	assert.Equal(t, map[time.Duration]int64{time.Hour: 1, 3 * time.Hour: 2, 12 * time.Hour: 7}, found)
	require.Len(t, got.DeadLetters, 1)
	l := got.DeadLetters[0]
	assert.WithinDuration(t, time.Now(), l.Died, time.Minute)
	l.Died, l.Enqueued, l.ExpireAt = time.Time{}, time.Time{}, l.ExpireAt.UTC()
	assert.Equal(t, message{ID: "dead", ExpireAt: expire, Reason: "why", Attempts: 1, MaxAttempts: 3, Bytes: 4, Headers: map[string]string{"k": "v"}}, l)

	h = handler(t, &Handler{}, "orders", q)
	body := request(h, http.MethodGet, "/", "", "Accept", "application/json").Body.String()
	assert.Contains(t, body, `"id":"dead"`)
	assert.NotContains(t, body, "headers")

	assert.Equal(t, `no queue "none"`, document(t, h, "/?format=json&queue=none", http.StatusNotFound).Error)
	empty := document(t, &Handler{}, "/?format=json", http.StatusOK)
	assert.Equal(t, decodedDocument{jsonDocument: jsonDocument{Schema: schemaVersion, Queues: []entry{}}}, empty)
}

// All parts that the page references exist, and the page references no other host.
func TestPageIsSelfContained(t *testing.T) {
	t.Parallel()
	h := &Handler{}
	w := request(h, http.MethodGet, "/debug/queues/?queue=x", "")
	require.Equal(t, http.StatusOK, w.Code)
	assert.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"))
	assert.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'")
	body := w.Body.String()
	for _, part := range strings.Split(body, "?asset=")[1:] {
		name, _, _ := strings.Cut(part, `"`)
		assert.Equal(t, http.StatusOK, request(h, http.MethodGet, "/?asset="+name, "").Code, name)
	}
	assert.Equal(t, len(assets())-1, strings.Count(body, "?asset="), "every asset is used by the page")
	for name := range assets() {
		asset := request(h, http.MethodGet, "/?asset="+name, "").Body.String()
		for _, banned := range []string{"https://", "<script>", " style=", " onclick", "innerHTML", "eval("} {
			assert.NotContains(t, asset, banned, name)
		}
	}
	assert.Equal(t, http.StatusBadRequest, request(h, http.MethodGet, "/?format=xml", "").Code)
	assert.Equal(t, http.StatusNotFound, request(h, http.MethodGet, "/?asset=none", "").Code)
	for _, method := range []string{http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions} {
		w := request(h, method, "/?action=delete", "")
		assert.Equal(t, http.StatusMethodNotAllowed, w.Code, method)
		assert.Equal(t, "GET, HEAD, POST", w.Header().Get("Allow"))
	}
	head := request(h, http.MethodHead, "/?format=json", "")
	assert.Equal(t, http.StatusOK, head.Code)
	assert.Empty(t, head.Body.Bytes())
}

func TestAddRefusesBadNames(t *testing.T) {
	t.Parallel()
	q, _ := openQueue(t, nil)
	h := handler(t, &Handler{}, "orders", q)
	for _, name := range []string{"", strings.Repeat("x", 129), "\xff", "orders"} {
		require.ErrorIs(t, h.Add(name, q), durable.ErrInvalid, "%q", name)
	}
	assert.PanicsWithValue(t, `durabledebug: Add with a nil queue as "x"`, func() { _ = h.Add("x", nil) })
	assert.True(t, h.Remove("orders"))
	assert.False(t, h.Remove("orders"))
	assert.Empty(t, document(t, h, "/?format=json", http.StatusOK).Queues)
}

func form(pairs ...string) string {
	v := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		v.Set(pairs[i], pairs[i+1])
	}
	return v.Encode()
}

// An action changes one dead letter or all of them, and the next document shows the change.
func TestActionsChangeTheSelectedDeadLettersOnly(t *testing.T) {
	t.Parallel()
	q, _ := openQueue(t, nil)
	for _, id := range []string{"a", "b", "c", "<d>&=+ü"} {
		bury(t, q, durable.Message{ID: id}, "x")
	}
	h := handler(t, &Handler{Actions: true}, "orders", q)
	dead := func() int64 { return document(t, h, "/?format=json", http.StatusOK).Queue.Dead }
	act := func(status int, pairs ...string) outcome {
		t.Helper()
		return decode[outcome](t, request(h, http.MethodPost, "/", form(pairs...)), status)
	}
	assert.EqualValues(t, 4, dead())
	assert.Equal(t, outcome{Done: 1}, act(http.StatusOK, "action", "replay", "queue", "orders", "id", "<d>&=+ü"))
	assert.EqualValues(t, 3, dead(), "the document is not cached across an action")
	assert.Equal(t, outcome{Done: 1}, act(http.StatusOK, "action", "delete", "queue", "orders", "id", "a"))
	assert.EqualValues(t, 2, dead())
	again := act(http.StatusNotFound, "action", "delete", "queue", "orders", "id", "a")
	assert.Contains(t, again.Error, durable.ErrNotFound.Error())
	assert.Equal(t, `no queue "none"`, act(http.StatusNotFound, "action", "delete", "queue", "none", "all", "true").Error)
	act(http.StatusBadRequest, "action", "delete", "queue", "orders", "id", strings.Repeat("x", maxForm))
	assert.EqualValues(t, 2, dead())
	assert.Equal(t, outcome{Done: 2}, act(http.StatusOK, "action", "replay", "queue", "orders", "all", "true"))
	assert.Zero(t, dead())

	paused := func() bool { return document(t, h, "/?format=json", http.StatusOK).Queue.Paused }
	assert.False(t, paused())
	assert.Equal(t, outcome{Done: 1}, act(http.StatusOK, "action", "pause", "queue", "orders"))
	assert.True(t, paused())
	assert.Equal(t, outcome{Done: 1}, act(http.StatusOK, "action", "resume", "queue", "orders"))
	assert.False(t, paused())

	q, _ = openQueue(t, nil) // the first queue's receiver may hold replayed messages
	h = handler(t, &Handler{Actions: true}, "orders", q)
	longest := strings.Repeat("\u00fc", contract.MaxID/2)
	bury(t, q, durable.Message{ID: longest}, "x")
	bury(t, q, durable.Message{ID: "e"}, "x")
	bury(t, q, durable.Message{ID: "f"}, "another")
	assert.Equal(t, outcome{Done: 1}, act(http.StatusOK, "action", "delete", "queue", "orders", "id", longest), "the longest id fits into a form")
	assert.Equal(t, outcome{Done: 1}, act(http.StatusOK, "action", "delete", "queue", "orders", "reason", "other"))
	assert.Equal(t, outcome{}, act(http.StatusOK, "action", "replay", "queue", "orders", "reason", "other"))
	assert.Equal(t, outcome{Done: 1}, act(http.StatusOK, "action", "delete", "queue", "orders", "all", "true"))
}

// A form that is not exactly right changes nothing. In particular, a mistyped field must not select
// all dead letters.
func TestMistypedParametersChangeNothing(t *testing.T) {
	t.Parallel()
	q, _ := openQueue(t, nil)
	bury(t, q, durable.Message{ID: "a"}, "x")
	bury(t, q, durable.Message{ID: "b"}, "x")
	h := handler(t, &Handler{Actions: true}, "orders", q)
	for _, c := range []struct{ fields, word string }{
		{"", "id, reason and all"},
		{"ids=", "ids is"}, {"ids=a", "ids is"}, {"Id=a", "Id is"}, {"id=", "id is"}, {"id=a&id=b", "id is"}, {"id=a&id=a", "id is"},
		{"reason=", "reason is"}, {"reason=x&reason=y", "reason is"}, {"id=a&reason=x", "id, reason and all"},
		{"all=", "all is"}, {"all=1", `"1"`}, {"all=True", `"True"`}, {"all=true&all=true", "all is"}, {"all", "all is"},
		{"id=a&all=true", "id, reason and all"}, {"reason=x&all=true", "id, reason and all"}, {"reason=%20", "not blank"}, {"all=true&=", " is"},
		{"all=true&queue=orders", "queue is"}, {"all=true&action=delete", "action is"}, {"all=true&rate=5", "rate is"}, {"id=a;all=true", "semicolon"},
	} {
		for _, action := range []string{"delete", "replay"} {
			w := request(h, http.MethodPost, "/", "action="+action+"&queue=orders&"+c.fields)
			assert.Contains(t, decode[outcome](t, w, http.StatusBadRequest).Error, c.word, c.fields)
		}
	}
	for _, body := range []string{
		"", "action=delete", "queue=orders", "action=delete&all=true", "action=delete&queue=&all=true", "queue=orders&all=true",
		"action=drop&queue=orders&all=true", "action=&queue=orders&all=true", "Action=delete&queue=orders&all=true", "action=delete&Queue=orders&all=true",
		"action=pause&queue=orders&id=a", "action=pause&queue=orders&reason=x", "action=pause&queue=orders&all=true", "action=resume&queue=orders&all=true",
		"action=pause&queue=orders&partition=1",
	} {
		w := request(h, http.MethodPost, "/", body)
		assert.NotEmpty(t, decode[outcome](t, w, http.StatusBadRequest).Error, body)
	}
	w := request(h, http.MethodPost, "/?reason=x", "action=delete&queue=orders&all=true")
	assert.Contains(t, decode[outcome](t, w, http.StatusBadRequest).Error, "reason is in the URL")
	d := document(t, h, "/?format=json", http.StatusOK).Queue
	assert.EqualValues(t, 2, d.Dead)
	assert.False(t, d.Paused)
}

// Only a page of the handler itself can make a browser change something, and only if actions are
// enabled.
func TestActionsOfOtherSitesAreRefused(t *testing.T) {
	t.Parallel()
	q, _ := openQueue(t, nil)
	bury(t, q, durable.Message{ID: "a"}, "x")
	h := handler(t, &Handler{Actions: true}, "orders", q)
	replay := form("action", "replay", "queue", "orders", "id", "a")
	for _, header := range [][]string{
		{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"}, {"Origin", "null"},
		{"Sec-Fetch-Site", "cross-site", "Origin", "http://example.com"},
	} {
		w := request(h, http.MethodPost, "http://example.com/", replay, header...)
		require.Equal(t, http.StatusForbidden, w.Code, header)
		assert.Contains(t, w.Body.String(), "cross-site request")
	}
	w := request(handler(t, &Handler{}, "orders", q), http.MethodPost, "http://example.com/", replay, "Sec-Fetch-Site", "same-origin")
	require.Equal(t, http.StatusForbidden, w.Code)
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		require.Equal(t, http.StatusOK, request(h, method, "/?"+replay, "").Code)
	}
	assert.EqualValues(t, 1, document(t, h, "/?format=json", http.StatusOK).Queue.Dead)
	w = request(h, http.MethodPost, "http://example.com/", replay, "Sec-Fetch-Site", "same-origin", "Origin", "http://example.com")
	require.Equal(t, http.StatusOK, w.Code, w.Body)
}

// A queue is read at most twice a second, regardless of the number of viewers, and the searches for
// messages take at most a hundredth of the time.
func TestManyViewersCostNoMoreThanOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int32
		q, s := openQueue(t, func(context.Context) error { looks.Add(1); return nil })
		defer q.Close()
		bury(t, q, durable.Message{ID: "a"}, "x")
		_, err := q.Enqueue(t.Context(), durable.Message{ID: "r", Repeat: "@every 10s"})
		require.NoError(t, err)
		h := handler(t, &Handler{}, "orders", q)
		looks.Store(0)
		s.lists.Store(0)
		s.slow.Store(int64(10 * time.Millisecond))
		var viewers sync.WaitGroup
		for range 100 {
			viewers.Go(func() {
				for range 40 {
					assert.Equal(t, http.StatusOK, request(h, http.MethodGet, "/?format=json", "").Code)
					time.Sleep(100 * time.Millisecond)
				}
			})
		}
		viewers.Wait()
		assert.InDelta(t, 8*2, looks.Load(), 2, "four seconds, two partitions")
		assert.EqualValues(t, 2*2+4, s.lists.Load(), "two pages every two seconds, and four every four")
		bury(t, q, durable.Message{ID: "b"}, "x")
		time.Sleep(4 * time.Second)
		d := document(t, h, "/?format=json", http.StatusOK).Queue
		assert.Len(t, d.DeadLetters, 2)
		assert.Len(t, d.Recurring, 1)
	})
}

// A store that does not answer, even if it ignores contexts, costs one goroutine and a bounded
// time. The page recovers when the store answers again.
func TestUnresponsiveStoreCostsBoundedTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var silent atomic.Pointer[chan struct{}]
		q, _ := openQueue(t, func(context.Context) error {
			if c := silent.Load(); c != nil {
				<-*c
			}
			return nil
		})
		defer q.Close()
		h := handler(t, &Handler{Timeout: time.Second}, "orders", q)
		document(t, h, "/?format=json", http.StatusOK)
		time.Sleep(time.Second)
		over := make(chan struct{})
		silent.Store(&over)
		var viewers sync.WaitGroup
		for range 20 {
			viewers.Go(func() {
				began := time.Now()
				d := document(t, h, "/?format=json", http.StatusServiceUnavailable)
				assert.Equal(t, "the store did not answer: context deadline exceeded", d.Error)
				assert.Nil(t, d.Queue)
				assert.Equal(t, time.Second, time.Since(began))
			})
		}
		viewers.Wait()
		silent.Store(nil)
		close(over)
		synctest.Wait()
		time.Sleep(maxSnapshotAge)
		document(t, h, "/?format=json", http.StatusOK)
	})
}

// An error of the store is shown, and the store is read again soon. A closed queue stays on the
// page.
func TestErrorsOfTheStoreAreShown(t *testing.T) {
	t.Parallel()
	fail := errors.New("<the disk>")
	var broken atomic.Bool
	q, s := openQueue(t, func(context.Context) error {
		if broken.Load() {
			return fail
		}
		return nil
	})
	bury(t, q, durable.Message{ID: "a"}, "x")
	h := handler(t, &Handler{Actions: true}, "orders", q)
	broken.Store(true)
	assert.Contains(t, document(t, h, "/?format=json", http.StatusServiceUnavailable).Error, "<the disk>")
	w := request(h, http.MethodPost, "/", form("action", "delete", "queue", "orders", "all", "true"))
	assert.Contains(t, decode[outcome](t, w, http.StatusServiceUnavailable).Error, "<the disk>")
	broken.Store(false)
	require.NoError(t, q.Pause(t.Context()))
	s.slow.Store(-1)
	h = handler(t, &Handler{}, "orders", q)
	assert.Contains(t, document(t, h, "/?format=json", http.StatusServiceUnavailable).Error, "<the list>")
	s.slow.Store(0)
	h = handler(t, &Handler{}, "orders", q)
	document(t, h, "/?format=json", http.StatusOK)
	q.Close()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		w := request(h, http.MethodGet, "/?format=json", "")
		assert.Equal(c, http.StatusServiceUnavailable, w.Code)
		assert.Contains(c, w.Body.String(), durable.ErrClosed.Error())
	}, time.Minute, 10*time.Millisecond)
}

// A dead letter shows when it expires, if it does. A year that JSON cannot represent is cut.
func TestDeadLettersShowTheirExpiry(t *testing.T) {
	t.Parallel()
	q, _ := openQueue(t, nil)
	bury(t, q, durable.Message{ID: "a"}, "x")
	h := handler(t, &Handler{}, "orders", q)
	assert.NotContains(t, request(h, http.MethodGet, "/?format=json", "").Body.String(), "expire_at")
	require.NoError(t, q.DeleteDead(t.Context(), "a"))
	bury(t, q, durable.Message{ID: "b", ExpireAt: time.Date(20_000, 1, 1, 0, 0, 0, 0, time.UTC)}, "x")
	h = handler(t, &Handler{}, "orders", q)
	assert.Equal(t, 9999, document(t, h, "/?format=json", http.StatusOK).Queue.DeadLetters[0].ExpireAt.Year())
}

// A document has only the first dead letters.
func TestDocumentHasTheFirstDeadLettersOnly(t *testing.T) {
	t.Parallel()
	q, s := openQueue(t, nil)
	const n = 3 * maxListed // more than maxListed in the first partition
	for i := range n {
		bury(t, q, durable.Message{ID: fmt.Sprint(i)}, "x")
	}
	d := document(t, handler(t, &Handler{}, "orders", q), "/?format=json", http.StatusOK).Queue
	assert.EqualValues(t, n, d.Dead)
	assert.EqualValues(t, 1, s.lists.Load(), "the first partition has enough")
	require.Len(t, d.DeadLetters, maxListed)
	i := 0
	for r, err := range q.List(t.Context(), durable.StateDead) {
		require.NoError(t, err)
		if i == maxListed {
			break
		}
		assert.Equal(t, r.ID, d.DeadLetters[i].ID)
		i++
	}
}

// The document lists recurring messages: their series, next run and last error, and whether crashes
// have stopped them. Replay continues a stopped one, and the next document shows it.
func TestDocumentShowsRecurringMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q, s := openQueue(t, nil)
		defer q.Close()
		enqueue := func(id, repeat string) {
			t.Helper()
			_, err := q.Enqueue(t.Context(), durable.Message{ID: id, Repeat: repeat, Body: []byte("body"), Headers: map[string]string{"k": "v"}})
			require.NoError(t, err)
		}
		take := func() *durable.Delivery {
			t.Helper()
			d, err := q.Take(t.Context())
			require.NoError(t, err)
			return d
		}
		enqueue("crashing", "@every 1s")
		r, err := q.Receiver(durable.ConsumerOptions{MaxCrashes: 1, Visibility: time.Second})
		require.NoError(t, err)
		_, err = r.Take(t.Context())
		require.NoError(t, err)
		wait, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err = r.Take(wait)
		require.ErrorIs(t, err, context.DeadlineExceeded, "the crash has stopped it")
		r.Close()
		enqueue("<b>failing</b>", "@every 2s")
		require.NoError(t, take().NackAfter(t.Context(), time.Hour, errors.New("<i>why</i>")))
		failed := time.Now()
		enqueue("running", "@every 3s")
		take()
		enqueue("daily", "CRON_TZ=Europe/Berlin 0 8 * * *")
		enqueue("once", "")
		_, err = q.RescheduleAt(t.Context(), "once", time.Now().Add(time.Hour))
		require.NoError(t, err)

		s.slow.Store(int64(10 * time.Millisecond))
		h := handler(t, &Handler{Actions: true}, "orders", q)
		w := request(h, http.MethodGet, "/?format=json", "")
		assert.NotContains(t, w.Body.String(), "<", "JSON that a browser takes for HTML has no markup")
		got := decode[decodedDocument](t, w, http.StatusOK).Queue
		assert.Equal(t, []any{4, 5, true}, []any{got.Found, got.Searched, got.SearchedAll})
		require.Len(t, got.Recurring, 4)
		berlin, err := time.LoadLocation("Europe/Berlin")
		require.NoError(t, err)
		for i, want := range []message{
			{ID: "crashing", Repeat: "@every 1s", Crashes: 1},
			{ID: "running", Repeat: "@every 3s", Running: true, Due: failed.Add(3 * time.Second)},
			{ID: "<b>failing</b>", Repeat: "@every 2s", Reason: "<i>why</i>", Attempts: 1, Due: failed.Add(time.Hour)},
			{ID: "daily", Repeat: "CRON_TZ=Europe/Berlin 0 8 * * *", Due: time.Date(2000, 1, 1, 8, 0, 0, 0, berlin)},
		} {
			m := got.Recurring[i]
			if want.Crashes > 0 {
				assert.Contains(t, m.Reason, "the consumer process ended or hung")
				m.Reason = ""
			}
			assert.WithinDuration(t, want.Due, m.Due, time.Second, want.ID)
			want.Due, want.Enqueued, want.MaxAttempts, want.Bytes = m.Due, m.Enqueued, 25, len("body")
			assert.Equal(t, want, m)
		}

		w = request(h, http.MethodPost, "/", form("action", "replay", "queue", "orders", "id", "crashing"))
		assert.Equal(t, outcome{Done: 1}, decode[outcome](t, w, http.StatusOK))
		for _, m := range document(t, h, "/?format=json", http.StatusOK).Queue.Recurring {
			assert.NotZero(t, m.Due, m.ID)
		}
		h = handler(t, &Handler{Headers: true}, "orders", q)
		assert.Equal(t, map[string]string{"k": "v"}, document(t, h, "/?format=json", http.StatusOK).Queue.Recurring[0].Headers)
	})
}

// A document has the recurring messages that run next. A search of a large queue ends early, and
// the document says so.
func TestSearchForRecurringMessagesIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q, s := openQueue(t, nil)
		defer q.Close()
		messages := make([]durable.Message, 2000)
		for i := range messages {
			messages[i] = durable.Message{ID: fmt.Sprint(i), Repeat: fmt.Sprintf("@every %dm", 10_000-i)}
		}
		_, err := q.EnqueueBatch(t.Context(), messages)
		require.NoError(t, err)
		got := document(t, handler(t, &Handler{}, "orders", q), "/?format=json", http.StatusOK).Queue
		assert.Equal(t, []any{len(messages), len(messages), true}, []any{got.Found, got.Searched, got.SearchedAll})
		require.Len(t, got.Recurring, maxListed)
		for i, m := range got.Recurring {
			assert.Equal(t, messages[len(messages)-1-i].ID, m.ID)
		}

		s.slow.Store(int64(25 * time.Millisecond)) // a fifth of the timeout is enough for one page after those in flight
		h := handler(t, &Handler{Timeout: 500 * time.Millisecond}, "orders", q)
		got = document(t, h, "/?format=json", http.StatusOK).Queue
		assert.Equal(t, []any{256, 256, false}, []any{got.Found, got.Searched, got.SearchedAll})
		_, err = q.CancelAll(t.Context())
		require.NoError(t, err)
		time.Sleep(maxSnapshotAge)
		got = document(t, h, "/?format=json", http.StatusOK).Queue
		assert.Empty(t, got.Recurring, "an empty queue is not searched")
		assert.True(t, got.SearchedAll)

		_, err = q.Enqueue(t.Context(), durable.Message{Repeat: "@every 1s"})
		require.NoError(t, err)
		_, err = q.Take(t.Context())
		require.NoError(t, err)
		time.Sleep(maxSnapshotAge)
		got = document(t, h, "/?format=json", http.StatusOK).Queue
		require.Zero(t, got.Pending)
		assert.Len(t, got.Recurring, 1, "the only message is running")
	})
}
