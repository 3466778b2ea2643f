package typed_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
	"github.com/timingwheel-go/timingwheel/durable/typed"
)

type order struct {
	Number int
	Items  []string
}

// bubble runs a test with a memory queue in a synctest bubble.
func bubble(t *testing.T, body func(t *testing.T, q *durable.Queue)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		q, err := durable.Open(t.Context(), store, durable.Options{Partitions: 1, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		body(t, q)
		q.Close()
		require.NoError(t, store.Close())
	})
}

// consume runs a consumer for a while.
func consume[T any](t *testing.T, q *typed.Queue[T], handler func(context.Context, *typed.Delivery[T]) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	require.NoError(t, q.Consume(ctx, handler, durable.ConsumerOptions{}))
}

// A value is delivered as it was enqueued, with all fields of its message, and again after an
// error.
func TestValuesAreDeliveredAsEnqueued(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *durable.Queue) {
		orders := typed.New[order](q, nil)
		body := order{42, []string{"a", "ß"}}
		id, err := orders.Enqueue(t.Context(), typed.Message[order]{
			ID: "m", Body: body, Headers: map[string]string{"k": "v"}, Delay: time.Minute, ExpireAt: time.Now().Add(time.Hour), MaxAttempts: 7,
		})
		require.NoError(t, err)
		require.Equal(t, "m", id)
		n := 0
		consume(t, orders, func(_ context.Context, d *typed.Delivery[order]) error {
			n++
			assert.Equal(t, body, d.Body)
			assert.JSONEq(t, `{"Number":42,"Items":["a","ß"]}`, string(d.Delivery.Body))
			assert.Equal(t, "v", d.Headers["k"])
			assert.Equal(t, 7, d.MaxAttempts)
			assert.False(t, d.ExpireAt.IsZero())
			assert.Equal(t, n-1, d.Attempts)
			if n < 3 {
				return errors.New("again")
			}
			return nil
		})
		require.Equal(t, 3, n)
		stats, err := q.Stats(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, stats.Acked)
	})
}

// Message has every field of durable.Message, and Enqueue passes all of them on.
func TestMessageHasAllFields(t *testing.T) {
	t.Parallel()
	want, got := reflect.TypeFor[durable.Message](), reflect.TypeFor[typed.Message[int]]()
	require.Equal(t, want.NumField(), got.NumField())
	for i := range want.NumField() {
		f, ok := got.FieldByName(want.Field(i).Name)
		require.True(t, ok, want.Field(i).Name)
		if f.Name != "Body" {
			require.Equal(t, want.Field(i).Type, f.Type, f.Name)
		}
	}
	bubble(t, func(t *testing.T, q *durable.Queue) {
		at := time.Now().Add(time.Hour).Truncate(time.Millisecond)
		ints := typed.New[int](q, nil)
		_, err := ints.Enqueue(t.Context(), typed.Message[int]{ID: "m", Body: 1, At: at})
		require.NoError(t, err)
		_, err = ints.Enqueue(t.Context(), typed.Message[int]{ID: "m", Body: 2})
		require.ErrorIs(t, err, durable.ErrDuplicate)
		_, err = ints.Enqueue(t.Context(), typed.Message[int]{ID: "m", Body: 2, At: at, Replace: true})
		require.NoError(t, err)
		r, err := q.Get(t.Context(), "m")
		require.NoError(t, err)
		require.Equal(t, "2", string(r.Body))
		require.True(t, at.Equal(r.Due))
	})
}

type user struct{ Name string }

type box[T any] struct{ Content T }

// named has a kind of its own.
type named struct{ Number int }

func (*named) Kind() string { return "order" }

// A body that cannot be decoded, and a message of another kind, are declined: they wait for another
// version of the program. The handler gets the other messages.
func TestMessageThatIsNotOfTheTypeIsDeclined(t *testing.T) {
	t.Parallel()
	receive := map[string]func(t *testing.T, q *typed.Queue[order]) (numbers []int){
		"Consume": func(t *testing.T, q *typed.Queue[order]) (numbers []int) {
			var mu sync.Mutex
			consume(t, q, func(_ context.Context, d *typed.Delivery[order]) error {
				mu.Lock()
				defer mu.Unlock()
				numbers = append(numbers, d.Body.Number)
				return nil
			})
			return numbers
		},
		"Take": func(t *testing.T, q *typed.Queue[order]) (numbers []int) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			for {
				d, err := q.Take(ctx)
				if err != nil {
					require.ErrorIs(t, err, context.DeadlineExceeded)
					return numbers
				}
				require.NoError(t, d.Ack(ctx))
				numbers = append(numbers, d.Body.Number)
			}
		},
	}
	for name, receive := range receive {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, q *durable.Queue) {
				for i, body := range []string{`{"Number":1}`, `{"Number":"one"}`, "", `{"Number":2}`} {
					_, err := q.Enqueue(t.Context(), durable.Message{ID: fmt.Sprint(i), Body: []byte(body)})
					require.NoError(t, err)
				}
				_, err := typed.New[user](q, nil).Enqueue(t.Context(), typed.Message[user]{ID: "user", Body: user{"Ada"}})
				require.NoError(t, err)
				reasons := map[string]string{
					"1": "string into Go struct field", "2": "unexpected end of JSON input", "user": `is of kind "user", not "order"`,
				}
				orders := typed.New[order](q, nil)
				numbers := receive(t, orders)
				slices.Sort(numbers)
				require.Equal(t, []int{1, 2}, numbers)
				for id, reason := range reasons {
					r, err := q.Get(t.Context(), id)
					require.NoError(t, err)
					assert.Zero(t, r.Attempts)
					assert.Contains(t, r.Reason, reason)
				}
			})
		})
	}
}

// Values of the same kind have the same header, and a value without a kind has none.
func TestKindIsInTheHeader(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *durable.Queue) {
		headers := map[string]string{"k": "v"}
		for _, m := range []struct {
			encoded func() (durable.Message, error)
			kind    string
		}{
			{func() (durable.Message, error) {
				return typed.New[order](q, nil).Encode(typed.Message[order]{Headers: headers})
			}, "order"},
			{func() (durable.Message, error) {
				return typed.New[*order](q, nil).Encode(typed.Message[*order]{Headers: headers})
			}, "order"},
			{func() (durable.Message, error) {
				return typed.New[named](q, nil).Encode(typed.Message[named]{Headers: headers})
			}, "order"},
			{func() (durable.Message, error) {
				return typed.New[*named](q, nil).Encode(typed.Message[*named]{Headers: headers})
			}, "order"},
			{func() (durable.Message, error) {
				return typed.New[box[order]](q, nil).Encode(typed.Message[box[order]]{Headers: headers})
			}, ""},
			{func() (durable.Message, error) {
				return typed.New[map[string]any](q, nil).Encode(typed.Message[map[string]any]{Headers: headers})
			}, ""},
		} {
			encoded, err := m.encoded()
			require.NoError(t, err)
			require.Equal(t, m.kind, encoded.Headers["kind"])
			require.Equal(t, "v", encoded.Headers["k"])
		}
		require.Len(t, headers, 1, "the caller's map is unchanged")
		orders := typed.New[order](q, nil)
		_, err := orders.Enqueue(t.Context(), typed.Message[order]{ID: "m", Headers: map[string]string{"kind": "user"}})
		require.ErrorIs(t, err, durable.ErrInvalid)
		require.ErrorContains(t, err, `"user"; it must be "order"`)
		_, err = orders.Enqueue(t.Context(), typed.Message[order]{Body: order{Number: 7}})
		require.NoError(t, err)
		m, err := typed.New[map[string]any](q, nil).Take(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 7, m.Body["Number"])
		require.NoError(t, m.Ack(t.Context()))
	})
}

// upper is a codec that stores upper-case text.
type upper struct{}

func (upper) Encode(s string) ([]byte, error) {
	if s == "" {
		return nil, errEmpty
	}
	return []byte(strings.ToUpper(s)), nil
}
func (upper) Decode(b []byte) (string, error) { return strings.ToLower(string(b)), nil }

var errEmpty = errors.New("empty")

func TestCodecOfTheCallerIsUsed(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, q *durable.Queue) {
		words := typed.New[string](q, upper{})
		_, err := words.Enqueue(t.Context(), typed.Message[string]{ID: "m"})
		require.ErrorIs(t, err, errEmpty)
		require.ErrorIs(t, err, durable.ErrInvalid)
		require.ErrorContains(t, err, `"m"`)
		_, err = words.Enqueue(t.Context(), typed.Message[string]{Body: "word"})
		require.NoError(t, err)
		d, err := words.Take(t.Context())
		require.NoError(t, err)
		require.Equal(t, "word", d.Body)
		require.Equal(t, "WORD", string(d.Delivery.Body))
		require.NoError(t, d.Ack(t.Context()))
		require.ErrorIs(t, words.Consume(t.Context(), nil, durable.ConsumerOptions{}), durable.ErrInvalid)
	})
}
