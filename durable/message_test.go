package durable_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

func TestBadMessagesAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		m    durable.Message
		want []string // in the error
	}{
		{"long id", durable.Message{ID: strings.Repeat("x", 256)}, []string{"256 bytes", "1 to 255"}},
		{"not UTF-8", durable.Message{ID: "a\xffb"}, []string{`"a\xffb"`, "UTF-8"}},
		{"control character", durable.Message{ID: "a\nb"}, []string{`"a\nb"`, "control"}},
		{"reserved", durable.Message{ID: "timingwheel.probe"}, []string{`"timingwheel.probe"`, "reserved"}},
		{"large body", durable.Message{ID: "m", Body: make([]byte, 101)}, []string{`"m"`, "101 bytes", "at most 100", "MaxBody"}},
		{"negative attempts", durable.Message{ID: "m", MaxAttempts: -1}, []string{"-1", "MaxAttempts"}},
		{"two times", durable.Message{ID: "m", Delay: time.Second, At: time.Now()}, []string{"both", "1s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			q := open(t, memstore.New(memstore.Options{}), durable.Options{MaxBody: 100})
			defer q.Close()
			_, err := q.Enqueue(t.Context(), c.m)
			require.ErrorIs(t, err, durable.ErrInvalid)
			_, batchErr := q.EnqueueBatch(t.Context(), []durable.Message{{ID: "good"}, c.m})
			require.ErrorIs(t, batchErr, durable.ErrInvalid)
			for _, want := range c.want {
				assert.ErrorContains(t, err, want)
				assert.ErrorContains(t, batchErr, want)
			}
			_, err = q.Get(t.Context(), "good")
			assert.ErrorIs(t, err, durable.ErrNotFound, "an invalid batch stores nothing")
		})
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		options durable.Options
		want    []string
	}{
		{durable.Options{Queue: "a b"}, []string{`"a b"`, "letters"}},
		{durable.Options{Queue: strings.Repeat("q", 129)}, []string{"1 to 128"}},
		{durable.Options{Queue: "{tag}"}, []string{`"{tag}"`}},
		{durable.Options{Partitions: -1}, []string{"Partitions -1", "1 to 1024"}},
		{durable.Options{Partitions: 1025}, []string{"Partitions 1025"}},
		{durable.Options{MaxBody: -5}, []string{"MaxBody -5"}},
		{durable.Options{MaxAttempts: -1}, []string{"MaxAttempts -1"}},
		{durable.Options{DeadLimit: -1}, []string{"DeadLimit -1"}},
		{durable.Options{DeadBytes: -1}, []string{"DeadBytes -1", "from 1 to"}},
		{durable.Options{DeadAge: -time.Second}, []string{"DeadAge -1s"}},
		{durable.Options{RetryFor: -time.Second}, []string{"RetryFor -1s"}},
	} {
		_, err := durable.Open(t.Context(), memstore.New(memstore.Options{}), c.options)
		require.ErrorIs(t, err, durable.ErrInvalid)
		for _, want := range c.want {
			assert.ErrorContains(t, err, want)
		}
	}
}

// A queue keeps its limits. Other openers get them, and change them only with Update.
func TestLimitsAreKeptWithTheQueue(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	first := open(t, store, durable.Options{Partitions: 3, MaxBody: 4, MaxAttempts: 2, DeadAge: time.Hour})
	second := open(t, store, durable.Options{})
	_, err := second.Enqueue(t.Context(), durable.Message{ID: "large", Body: make([]byte, 5)})
	require.ErrorIs(t, err, durable.ErrInvalid)
	_, err = second.Enqueue(t.Context(), durable.Message{ID: "m", Body: make([]byte, 4)})
	require.NoError(t, err)
	r, err := second.Get(t.Context(), "m")
	require.NoError(t, err)
	assert.Equal(t, 2, r.MaxAttempts)
	_, err = durable.Open(t.Context(), store, durable.Options{MaxBody: 4, MaxAttempts: 3, DeadAge: 2 * time.Hour})
	require.ErrorIs(t, err, durable.ErrOptions)
	for _, want := range []string{"MaxAttempts 3; the queue has 2", "DeadAge 2h0m0s; the queue has 1h0m0s", "Update"} {
		require.ErrorContains(t, err, want)
	}
	third := open(t, store, durable.Options{MaxBody: 5, Update: true})
	_, err = third.Enqueue(t.Context(), durable.Message{ID: "large", Body: make([]byte, 5)})
	require.NoError(t, err)
	o := first.Options()
	assert.Equal(t, []any{"default", 3, 4, 2, 100_000, int64(64 << 20), time.Hour, time.Minute},
		[]any{o.Queue, o.Partitions, o.MaxBody, o.MaxAttempts, o.DeadLimit, o.DeadBytes, o.DeadAge, o.RetryFor})
	assert.Equal(t, 5, third.Options().MaxBody)
}

func TestBadConsumerOptionsAreRefused(t *testing.T) {
	t.Parallel()
	q := open(t, memstore.New(memstore.Options{}), durable.Options{})
	defer q.Close()
	for _, c := range []struct {
		options durable.ConsumerOptions
		want    string
	}{
		{durable.ConsumerOptions{Concurrency: -1}, "Concurrency -1"},
		{durable.ConsumerOptions{Prefetch: -1}, "Prefetch -1"},
		{durable.ConsumerOptions{PrefetchBytes: -1}, "PrefetchBytes -1"},
		{durable.ConsumerOptions{MaxCrashes: -1}, "MaxCrashes -1"},
		{durable.ConsumerOptions{Visibility: time.Millisecond}, "Visibility 1ms; it must be at least 100ms"},
		{durable.ConsumerOptions{Horizon: -1}, "Horizon -1ns; it must be at least 10ms"},
		{durable.ConsumerOptions{Fallback: time.Millisecond}, "Fallback 1ms; it must be at least 500ms"},
		{durable.ConsumerOptions{Membership: time.Millisecond}, "Membership 1ms"},
	} {
		err := q.Consume(t.Context(), func(context.Context, *durable.Delivery) error { return nil }, c.options)
		require.ErrorIs(t, err, durable.ErrInvalid)
		assert.ErrorContains(t, err, c.want)
		_, err = q.Receiver(c.options)
		require.ErrorIs(t, err, durable.ErrInvalid)
		assert.ErrorContains(t, err, c.want)
	}
	err := q.Consume(t.Context(), nil, durable.ConsumerOptions{})
	require.ErrorIs(t, err, durable.ErrInvalid)
}

// A dead letter keeps its id. The error differs from the error for a message that will be
// delivered.
func TestIDOfADeadLetterIsRefusedAsDead(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
		enqueue(t, q, "user-7", 0)
		enqueue(t, q, "queued", time.Hour)
		require.NoError(t, take(t, q).Bury(t.Context(), "no such user"))
		refused := func() {
			t.Helper()
			_, err := q.Enqueue(t.Context(), durable.Message{ID: "user-7"})
			require.ErrorIs(t, err, durable.ErrDead)
			require.ErrorIs(t, err, durable.ErrDuplicate)
			require.ErrorContains(t, err, `"user-7"`)
		}
		refused()
		_, err := q.Enqueue(t.Context(), durable.Message{ID: "queued"})
		require.ErrorIs(t, err, durable.ErrDuplicate)
		require.NotErrorIs(t, err, durable.ErrDead)
		_, err = q.EnqueueBatch(t.Context(), []durable.Message{{ID: "user-7"}, {ID: "queued"}, {ID: "new", Delay: time.Hour}})
		var batch *durable.BatchError
		require.ErrorAs(t, err, &batch)
		require.ErrorIs(t, batch.Errors[0], durable.ErrDead)
		require.NotErrorIs(t, batch.Errors[1], durable.ErrDead)
		require.NoError(t, batch.Errors[2])
		for _, call := range []func() (durable.Result, error){
			func() (durable.Result, error) { return q.Cancel(t.Context(), "user-7") },
			func() (durable.Result, error) { return q.Reschedule(t.Context(), "user-7", 0) },
		} {
			result, err := call()
			require.NoError(t, err)
			require.Equal(t, durable.ResultNotFound, result)
		}
		r, err := q.Get(t.Context(), "user-7")
		require.NoError(t, err)
		require.Equal(t, durable.StateDead, r.State, "Get tells why Cancel found nothing")

		require.NoError(t, q.Replay(t.Context(), "user-7", time.Hour))
		_, err = q.Enqueue(t.Context(), durable.Message{ID: "user-7"})
		require.NotErrorIs(t, err, durable.ErrDead, "it is queued again")
		_, err = q.Enqueue(t.Context(), durable.Message{ID: "user-7", Replace: true})
		require.NoError(t, err)
		require.NoError(t, take(t, q).Bury(t.Context(), "again"))
		refused()
		_, err = q.Enqueue(t.Context(), durable.Message{ID: "user-7", Replace: true})
		require.NoError(t, err)
	})
}

func TestDuplicateIsRefusedUnlessItReplaces(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
		body := []byte("first")
		_, err := q.Enqueue(t.Context(), durable.Message{ID: "m", Body: body, Delay: time.Hour})
		require.NoError(t, err)
		copy(body, "XXXXX")
		_, err = q.Enqueue(t.Context(), durable.Message{ID: "m", Body: []byte("second"), Delay: time.Second})
		require.ErrorIs(t, err, durable.ErrDuplicate)
		assert.ErrorContains(t, err, `"m"`)
		r, err := q.Get(t.Context(), "m")
		require.NoError(t, err)
		assert.Equal(t, "first", string(r.Body))

		_, err = q.Enqueue(t.Context(), durable.Message{ID: "m", Body: []byte("third"), Delay: time.Second, Replace: true})
		require.NoError(t, err)
		d := take(t, q)
		assert.Equal(t, "third", string(d.Body))
		_, err = q.Enqueue(t.Context(), durable.Message{ID: "m", Replace: true})
		require.ErrorIs(t, err, durable.ErrFiring)
		require.NoError(t, d.Ack(t.Context()))
		_, err = q.Enqueue(t.Context(), durable.Message{ID: "m"})
		require.NoError(t, err, "an id that was acknowledged may be used again")

		ids, err := q.EnqueueBatch(t.Context(), []durable.Message{{ID: "x"}, {ID: "m"}, {}, {ID: "x"}})
		require.ErrorIs(t, err, durable.ErrDuplicate)
		assert.ErrorContains(t, err, `"m"`)
		assert.ErrorContains(t, err, `"x"`)
		require.Len(t, ids, 4)
		assert.Len(t, ids[2], 26, "a ULID")
		_, err = q.Get(t.Context(), ids[2])
		require.NoError(t, err)
	})
}

func TestExponentialDoublesUpToMost(t *testing.T) {
	t.Parallel()
	backoff := durable.Exponential(time.Second, time.Hour)
	for attempts, want := range map[int]time.Duration{-1: time.Second, 0: time.Second, 1: 2 * time.Second, 4: 16 * time.Second, 11: 2048 * time.Second} {
		for range 100 {
			assert.InDelta(t, want.Seconds(), backoff(&durable.Delivery{Attempts: attempts}, assert.AnError).Seconds(), want.Seconds()/2)
		}
	}
	for _, attempts := range []int{20, 1000, math.MaxInt} {
		for range 100 {
			d := backoff(&durable.Delivery{Attempts: attempts}, assert.AnError)
			assert.GreaterOrEqual(t, d, time.Hour/2)
			assert.LessOrEqual(t, d, time.Hour)
		}
	}
	assert.Zero(t, durable.Exponential(-time.Second, time.Hour)(&durable.Delivery{}, nil), "negative")
}
