package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

func TestBodyComesFromTheOptionOrStdin(t *testing.T) {
	d := onDirectory(t)
	assert.Equal(t, "a\n", d.ok("enqueue", "-id", "a", "-body", "from the option"))
	r := d.runIn("from\nstdin\n", "enqueue", "-id", "b")
	require.NoError(t, r.err)
	d.ok("enqueue", "-id", "c", "-body", "")
	assert.Equal(t, "from the option", *d.message("a").Body)
	assert.Equal(t, "from\nstdin\n", *d.message("b").Body)
	assert.Empty(t, *d.message("c").Body)
	r = d.runIn("\xff\x00", "enqueue", "-id", "d")
	require.NoError(t, r.err)
	assert.Equal(t, []byte("\xff\x00"), d.message("d").BodyBase64)
}

func TestHalfABodyIsNotEnqueued(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	err := run(t.Context(), []string{"delayq", "-store", "memory:", "enqueue"}, io.MultiReader(strings.NewReader("half"), failing{broken}),
		io.Discard, io.Discard)
	require.ErrorIs(t, err, broken, "half a body must not be enqueued")
}

// failing is a reader and writer that fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error)  { return 0, f.err }
func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestEnqueueNumbersItsIDs(t *testing.T) {
	d := onDirectory(t)
	assert.Equal(t, "a-1\na-2\na-3\n", d.ok("enqueue", "-id", "a", "-n", "3", "-body", "x"))
	ids := strings.Fields(d.ok("enqueue", "-n", "5000", "-body", "x"))
	assert.Len(t, ids, 5000)
	assert.EqualValues(t, 5003, d.counts().Scheduled)
	var one struct{ ID string }
	require.NoError(t, json.Unmarshal([]byte(d.ok("-json", "enqueue", "-body", "x")), &one))
	assert.Equal(t, "x", *d.message(one.ID).Body)
}

func TestDuplicatesAreRejectedAndCounted(t *testing.T) {
	d := onDirectory(t)
	d.ok("enqueue", "-id", "a", "-body", "first")
	require.ErrorIs(t, d.fails([]string{"enqueue", "-id", "a", "-body", "second"}, `"a"`), durable.ErrDuplicate)
	assert.Equal(t, "first", *d.message("a").Body)
	d.ok("enqueue", "-id", "a", "-body", "third", "-replace")
	assert.Equal(t, "third", *d.message("a").Body)
	d.ok("enqueue", "-id", "many", "-n", "18", "-body", "x")
	err := d.fails([]string{"enqueue", "-id", "many", "-n", "30", "-body", "x"}, "and 8 more of 30 messages")
	require.ErrorIs(t, err, durable.ErrDuplicate)
	assert.Less(t, strings.Count(err.Error(), "\n"), 12)
	assert.EqualValues(t, 31, d.counts().Scheduled, "the others are enqueued")
}

func TestDelaysAndTimesBecomeDueTimes(t *testing.T) {
	d := onDirectory(t)
	before := time.Now()
	d.ok("enqueue", "-id", "days", "-body", "x", "-delay", "7d", "-max-attempts", "3")
	d.ok("enqueue", "-id", "past", "-body", "x", "-at", "2001-01-01T00:00:00Z")
	d.ok("enqueue", "-id", "zone", "-body", "x", "-at", "2130-01-01T01:00:00.5+01:00")
	m := d.message("days")
	assert.WithinDuration(t, before.Add(7*day), m.Due, time.Hour)
	assert.Equal(t, 3, m.MaxAttempts)
	d.ok("enqueue", "-id", "centuries", "-body", "x", "-delay", "106751d")
	assert.WithinDuration(t, before.Add(106751*day), d.message("centuries").Due, time.Hour)
	assert.False(t, d.message("past").Due.After(time.Now()))
	assert.True(t, d.message("zone").Due.Equal(time.Date(2130, 1, 1, 0, 0, 0, 5e8, time.UTC)))
}

// inBubble runs a test with the program on a memory store and on fake time, so that waits take no
// time.
func inBubble(t *testing.T, test func(t *testing.T, run func(args ...string) result, message func(id string) printedMessage)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		run := func(args ...string) result {
			var stdout, stderr bytes.Buffer
			err := onMemory(t.Context(), store, &stdout, &stderr, args...)
			require.NoError(t, err, args)
			return result{stdout.String(), stderr.String(), err}
		}
		test(t, run, func(id string) (m printedMessage) {
			require.NoError(t, json.Unmarshal([]byte(run("-json", "inspect", id).stdout), &m))
			return m
		})
	})
}

func TestTakeKeepsByDefault(t *testing.T) {
	inBubble(t, func(t *testing.T, run func(args ...string) result, message func(id string) printedMessage) {
		run("enqueue", "-id", "a", "-body", "one")
		for _, args := range [][]string{{"take"}, {"take", "-keep", "-wait", "0"}, {"take", "-n", "3", "-wait", "1h"}} {
			assert.Equal(t, "one\n", run(args...).stdout, "the message stays in the queue")
		}
		m := message("a")
		assert.Equal(t, "scheduled", m.State)
		assert.Zero(t, m.Attempts)
		assert.Zero(t, m.Crashes)
	})
}

func TestTakeAckRemovesMessages(t *testing.T) {
	d := onDirectory(t)
	d.ok("enqueue", "-id", "a", "-n", "20", "-body", "line\n")
	d.ok("enqueue", "-id", "later", "-body", "x", "-delay", "1h")
	assert.Equal(t, strings.Repeat("line\n", 20), d.ok("take", "-n", "20", "-ack", "-wait", "1m"))
	c := d.counts()
	assert.EqualValues(t, 1, c.Scheduled)
	assert.EqualValues(t, 20, c.Acked)
	err := d.fails([]string{"take", "-ack", "-wait", "50ms"}, "no message", "50ms")
	assert.NotErrorIs(t, err, durable.ErrInvalid)
	assert.Equal(t, "scheduled", d.message("later").State)
}

func TestTakeNackCountsAnAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T, run func(args ...string) result, message func(id string) printedMessage) {
		run("enqueue", "-id", "a", "-body", "one")
		run("enqueue", "-id", "last", "-body", "two", "-max-attempts", "1")
		r := run("take", "-n", "3", "-wait", "4s", "-nack", "-delay", "1h", "-json")
		assert.Contains(t, r.stderr, "took 2 of 3 messages")
		assert.NotContains(t, r.stderr, "WARN", "the user asked for the failures")
		assert.Equal(t, 2, strings.Count(r.stdout, `"attempts":0`))
		m := message("a")
		assert.Equal(t, 1, m.Attempts)
		assert.WithinDuration(t, time.Now().Add(time.Hour), m.Due, time.Second)
		assert.Equal(t, "dead", message("last").State)
	})
}

// Without -delay the message is due again after a backoff, which lies between 0.5 and 1.5 s.
func TestTakeNackWithoutDelayBacksOff(t *testing.T) {
	inBubble(t, func(t *testing.T, run func(args ...string) result, message func(id string) printedMessage) {
		run("enqueue", "-id", "a", "-body", "one")
		run("take", "-nack")
		m := message("a")
		assert.Equal(t, 1, m.Attempts)
		assert.WithinRange(t, m.Due, time.Now().Add(400*time.Millisecond), time.Now().Add(1600*time.Millisecond))
	})
}

// A dead letter keeps its id, and the error names the ways to use the id again.
func TestEnqueueNamesTheRemedyForADeadLetter(t *testing.T) {
	d := onDirectory(t)
	d.ok("enqueue", "-id", "a", "-body", "one", "-max-attempts", "1")
	d.ok("take", "-nack", "-wait", "1m")
	require.ErrorIs(t, d.fails([]string{"enqueue", "-id", "a", "-body", "two"}, `"a"`, "delayq dead replay", "-replace"), durable.ErrDead)
	d.fails([]string{"cancel", "a"}, "dead letters")
	d.ok("enqueue", "-id", "a", "-body", "two", "-replace")
}

func TestUnprintableMessageIsNotLost(t *testing.T) {
	d := onDirectory(t)
	d.ok("enqueue", "-id", "a", "-body", "precious")
	broken := errors.New("broken pipe")
	err := run(t.Context(), []string{"delayq", "-store", d.store, "take", "-ack", "-wait", "1m"}, nil, failing{broken}, io.Discard)
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, `"a"`)
	m := d.message("a")
	assert.Equal(t, "scheduled", m.State)
	assert.Zero(t, m.Attempts)
	assert.Equal(t, "precious\n", d.ok("take", "-ack", "-wait", "1m"))
}

func TestInspectPrintsNoControlCharacters(t *testing.T) {
	d := onDirectory(t)
	d.ok("enqueue", "-id", "a", "-body", "red\x1b[31m", "-delay", "90m")
	out := d.ok("inspect", "a")
	assert.Regexp(t, `last error +│ - `, out)
	for _, w := range []string{"scheduled", "0 failed of 25", `red\x1b[31m`, "8 bytes", "(in 1h"} {
		assert.Contains(t, out, w)
	}
	assert.NotContains(t, out, "\x1b")
	err := d.fails([]string{"inspect", "b"}, "cancelled")
	require.ErrorIs(t, err, durable.ErrNotFound)
	assert.Equal(t, 1, strings.Count(err.Error(), `"b"`), err)
}

func TestListIsLimitedAndSaysSo(t *testing.T) {
	d := onDirectory(t)
	d.ok("enqueue", "-id", "a", "-n", "12", "-body", strings.Repeat("long ", 20), "-delay", "1h")
	r := d.runIn("", "list", "-n", "10")
	require.NoError(t, r.err)
	assert.Equal(t, 10, strings.Count(r.stdout, " a-"))
	assert.Contains(t, r.stdout, "…")
	assert.Contains(t, r.stderr, "ends after 10 messages; -n 0")
	assert.Equal(t, 12, strings.Count(d.ok("list", "-n", "0", "-json"), "\n"))
	r = d.runIn("", "list", "-state", "in-flight")
	require.NoError(t, r.err)
	assert.Empty(t, r.stdout)
	assert.Contains(t, r.stderr, "has no such messages")
	assert.Empty(t, d.ok("-json", "dead", "list"))
}

func TestCancelPrintsTheResultOfEachID(t *testing.T) {
	d := onDirectory(t)
	d.ok("enqueue", "-id", "a", "-n", "2", "-body", "x")
	d.ok("enqueue", "-id", "-dash", "-body", "x")
	assert.Equal(t, "a-1: cancelled\n-dash: cancelled\n", d.ok("cancel", "a-1", "--", "-dash"))
	r := d.runIn("", "cancel", "a-1", "a-2")
	require.EqualError(t, r.err, "1 of 2 messages not cancelled: see above, and delayq dead list for dead letters")
	assert.Equal(t, "a-1: not found\na-2: cancelled\n", r.stdout)
	assert.EqualValues(t, 3, d.counts().Cancelled)
}

func TestRescheduleAcceptsADelayOrATime(t *testing.T) {
	d := onDirectory(t)
	d.ok("enqueue", "-id", "a", "-body", "x")
	assert.Equal(t, "a: rescheduled\n", d.ok("reschedule", "a", "-delay", "1h"))
	assert.WithinDuration(t, time.Now().Add(time.Hour), d.message("a").Due, 10*time.Minute)
	assert.Equal(t, "a: rescheduled\n", d.ok("reschedule", "-at", "2130-01-01T00:00:00Z", "a"))
	assert.Equal(t, 2130, d.message("a").Due.UTC().Year())
	assert.JSONEq(t, `{"id":"a","result":"rescheduled"}`, d.ok("-json", "reschedule", "a", "-delay", "0s"))
	assert.Equal(t, "x\n", d.ok("take", "-wait", "1m"))
	d.fails([]string{"reschedule", "b", "-delay", "1s"}, "1 of 1 messages not rescheduled")
}

func TestDeadLettersAreListedReplayedAndPurged(t *testing.T) {
	d := onDirectory(t)
	d.ok("enqueue", "-id", "a", "-n", "4", "-body", "x", "-max-attempts", "1")
	d.ok("take", "-n", "4", "-nack", "-wait", "1m")
	assert.Equal(t, 4, strings.Count(d.ok("dead", "list"), "dead"))
	assert.Equal(t, "a-1: replayed\n", d.ok("dead", "replay", "a-1", "-delay", "1h"))
	m := d.message("a-1")
	assert.Equal(t, "scheduled", m.State)
	assert.Zero(t, m.Attempts)
	r := d.runIn("", "dead", "delete", "a-1", "a-2")
	require.ErrorContains(t, r.err, "1 of 2 messages not deleted", "a-1 is no longer a dead letter")
	assert.Equal(t, "a-1: no dead letter\na-2: deleted\n", r.stdout)
	assert.Equal(t, "2 dead letters replayed\n", d.ok("dead", "replay", "-all"))
	d.ok("take", "-n", "2", "-nack", "-wait", "1m")
	assert.JSONEq(t, `{"deleted":2}`, d.ok("-json", "dead", "delete", "-all"))
	c := d.counts()
	assert.Zero(t, c.Dead)
	assert.EqualValues(t, 1, c.Scheduled)
}

func TestCancelByHeadersNeedsAllOfThem(t *testing.T) {
	d := onDirectory(t)
	d.ok("enqueue", "-id", "a", "-n", "300", "-body", "x", "-delay", "1h", "-header", "customer=7", "-header", "kind=a=b, c")
	d.ok("enqueue", "-id", "b", "-body", "x", "-delay", "1h", "-header", "customer=7")
	d.ok("enqueue", "-id", "c", "-body", "x", "-delay", "1h", "-header", "customer=8")
	assert.Equal(t, map[string]string{"customer": "7", "kind": "a=b, c"}, d.message("a-300").Headers)
	assert.Contains(t, d.ok("inspect", "a-1"), "a=b, c")
	assert.Equal(t, "300 messages cancelled\n", d.ok("cancel", "-header", "customer=7", "-header", "kind=a=b, c"))
	assert.JSONEq(t, `{"cancelled":1,"delivering":0,"unreadable":0}`, d.ok("-json", "cancel", "-header", "customer=7"))
	assert.Equal(t, "0 messages cancelled\n", d.ok("cancel", "-header", "customer=7"))
	assert.EqualValues(t, 1, d.counts().Scheduled)
}

func TestCancelAllCancelsEachMessage(t *testing.T) {
	d := onDirectory(t)
	d.ok("enqueue", "-id", "a", "-n", "300", "-body", "x", "-delay", "1h")
	d.ok("enqueue", "-id", "b", "-body", "x", "-header", "customer=7")
	assert.Contains(t, d.ok("list", "-n", "0"), " customer=7 ")
	assert.Equal(t, "301 messages cancelled\n", d.ok("cancel", "-all"))
	assert.JSONEq(t, `{"cancelled":0,"delivering":0,"unreadable":0}`, d.ok("-json", "cancel", "-all"))
	assert.Zero(t, d.counts().Scheduled)
}

// queueAndProgram opens a queue, and returns a function that runs the program on its store.
func queueAndProgram(t *testing.T) (*durable.Queue, func(args ...string) (string, error)) {
	t.Helper()
	t.Parallel()
	store := memstore.New(memstore.Options{})
	q, err := durable.Open(t.Context(), store, durable.Options{})
	require.NoError(t, err)
	t.Cleanup(q.Close)
	return q, func(args ...string) (string, error) {
		var stdout bytes.Buffer
		err := onMemory(t.Context(), store, &stdout, io.Discard, args...)
		return stdout.String(), err
	}
}

// A message is being delivered. The command fails, and cancels the other messages.
func TestCancelByHeadersFailsIfAMessageIsBeingDelivered(t *testing.T) {
	q, run := queueAndProgram(t)
	for _, delay := range []time.Duration{0, time.Hour} {
		_, err := q.Enqueue(t.Context(), durable.Message{Delay: delay, Headers: map[string]string{"a": "b"}})
		require.NoError(t, err)
	}
	delivery, err := q.Take(t.Context())
	require.NoError(t, err)
	stdout, err := run("cancel", "-header", "a=b")
	require.ErrorContains(t, err, "1 message being delivered")
	assert.Equal(t, "1 message cancelled\n", stdout)
	require.NoError(t, delivery.Ack(t.Context()))
}

func TestRecurringMessages(t *testing.T) {
	q, run := queueAndProgram(t)
	ok := func(args ...string) string {
		t.Helper()
		out, err := run(args...)
		require.NoError(t, err)
		return out
	}
	ok("enqueue", "-id", "report", "-body", "x", "-repeat", "CRON_TZ=Europe/Berlin 0 8 * * *")
	_, err := run("enqueue", "-id", "other", "-body", "x", "-repeat", "every day")
	require.ErrorContains(t, err, `Repeat "every day"; it must be "@every" and a duration`)
	r, err := q.Get(t.Context(), "report")
	require.NoError(t, err)
	loc, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	assert.Equal(t, "08:00:00", r.Due.In(loc).Format(time.TimeOnly))
	assert.Contains(t, ok("inspect", "report"), "Europe/Berlin 0 8 * * *")
	assert.Contains(t, ok("-json", "inspect", "report"), `"repeat":"CRON_TZ=Europe/Berlin 0 8 * * *"`)
	assert.Contains(t, ok("list"), "Europe/Berlin 0 8 * * *")
	assert.Equal(t, "report: rescheduled\n", ok("reschedule", "report", "-repeat", "@every 1h"))
	_, err = run("reschedule", "report", "-repeat", "@every 1h", "-delay", "1s")
	require.ErrorContains(t, err, "one of -delay or -at or -repeat")
	_, err = run("resume", "report")
	require.ErrorContains(t, err, "1 of 1 messages not resumed")
	_, err = q.RescheduleAt(t.Context(), "report", driver.Never.Time()) // as many crashes do
	require.NoError(t, err)
	assert.Contains(t, ok("list"), "stopped, see delayq resume")
	assert.Equal(t, "report: resumed\n", ok("resume", "report"))
	d, err := q.Take(t.Context())
	require.NoError(t, err)
	_, err = run("cancel", "-interrupt", "-all")
	require.ErrorContains(t, err, "-interrupt is set; it needs the ids of messages")
	assert.Equal(t, "report: cancelled during its delivery\n", ok("cancel", "-interrupt", "report"))
	require.NoError(t, d.Ack(t.Context()))
	assert.Empty(t, ok("list"))
}

func TestDeadLettersAreSelectedByReasonAndTime(t *testing.T) {
	q, run := queueAndProgram(t)
	var died []time.Time
	for i, reason := range []string{"cannot connect", "no such user", "cannot connect to b", "cannot connect to c"} {
		_, err := q.Enqueue(t.Context(), durable.Message{ID: fmt.Sprint(i)})
		require.NoError(t, err)
		d, err := q.Take(t.Context())
		require.NoError(t, err)
		require.NoError(t, d.Bury(t.Context(), reason))
		r, err := q.Get(t.Context(), d.ID)
		require.NoError(t, err)
		died = append(died, r.Died)
		time.Sleep(5 * time.Millisecond)
	}
	for _, c := range []struct {
		args   string
		stdout string
		left   int64
	}{
		{"dead delete -until 1h", "0 dead letters deleted\n", 4},
		{"dead replay -delay 1h -reason connect -until " + died[2].Format(time.RFC3339Nano), "1 dead letter replayed\n", 3},
		{"dead replay -delay 1h -rate 100 -reason connect -since 1h", "2 dead letters replayed\n", 1},
		{"-json dead delete -since 1h", `{"deleted":1}` + "\n", 0},
	} {
		stdout, err := run(strings.Fields(c.args)...)
		require.NoError(t, err, c.args)
		assert.Equal(t, c.stdout, stdout, c.args)
		s, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.Equal(t, c.left, s.Dead, c.args)
	}
	r, err := q.Get(t.Context(), "0")
	require.NoError(t, err)
	assert.Equal(t, durable.StateScheduled, r.State)
}

// A message of another program is due in a year that JSON cannot represent.
func TestTimesBeyondJSONAreCut(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	q, err := durable.Open(t.Context(), store, durable.Options{})
	require.NoError(t, err)
	defer q.Close()
	_, err = q.Enqueue(t.Context(), durable.Message{ID: "far", At: time.Date(20_000, 1, 1, 0, 0, 0, 0, time.UTC)})
	require.NoError(t, err)
	for _, args := range [][]string{{"inspect", "far"}, {"list"}, {"watch", "-n", "1"}} {
		var out bytes.Buffer
		require.NoError(t, onMemory(t.Context(), store, &out, io.Discard, append(args, "-json")...), args)
		assert.Contains(t, out.String(), "9999-12-31T23:59:59.999Z", args)
	}
	east := time.FixedZone("east", 9*60*60)
	for _, at := range []time.Time{time.Date(9999, 12, 31, 23, 0, 0, 0, time.UTC).In(east), driver.Never.Time().In(east)} {
		_, err := json.Marshal(timeJSON(at))
		require.NoError(t, err)
	}
}

// A queue keeps dead letters for longer than by default.
func TestTakeDropsNoDeadLetters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		q, err := durable.Open(t.Context(), store, durable.Options{Partitions: 1, DeadAge: 365 * day})
		require.NoError(t, err)
		_, err = q.Enqueue(t.Context(), durable.Message{ID: "old"})
		require.NoError(t, err)
		m, err := q.Take(t.Context())
		require.NoError(t, err)
		require.NoError(t, m.Bury(t.Context(), "kept for a year"))
		time.Sleep(60 * day)
		for _, args := range [][]string{{"enqueue", "-id", "new", "-body", "x"}, {"take", "-wait", "1m"}, {"take", "-nack", "-wait", "1m"}} {
			require.NoError(t, onMemory(t.Context(), store, io.Discard, io.Discard, args...))
		}
		r, err := q.Get(t.Context(), "old")
		require.NoError(t, err)
		assert.Equal(t, durable.StateDead, r.State)
		require.NoError(t, q.Shutdown(t.Context()))
	})
}

func TestPreviewCutsBetweenCharacters(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"short": "short", "12345678": "12345678", "123456789": "1234567…", "日本語日": "日本語日", "日本語日本": "日本語…", "1234567é": "1234567é", "1234é6789": "1234é67…",
		strings.Repeat("\xff", 99): `\xff\xf…`, strings.Repeat("é", 99): "ééééééé…", "\x1b\"\\": `\x1b"\\`,
	} {
		assert.Equal(t, want, preview(s, 8))
	}
	assert.Contains(t, formatTime(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)), "(in 292 years or more)")
}

// Take waits for longer than a lease. Held messages are not delivered a second time.
func TestTakeExtendsLeases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		require.NoError(t, onMemory(t.Context(), store, io.Discard, io.Discard, "-partitions", "1", "enqueue", "-id", "a", "-body", "one"))
		var out bytes.Buffer
		require.NoError(t, onMemory(t.Context(), store, &out, io.Discard, "take", "-n", "2", "-wait", (10*takeVisibility).String()))
		assert.Equal(t, "one\n", out.String())
		assert.Zero(t, countsOf(t, store, "default").Crashed)
	})
}

// The options are invalid, so the body must not be read.
func TestInvalidOptionsAreRejectedBeforeTheBodyIsRead(t *testing.T) {
	t.Parallel()
	for _, options := range [][]string{{"-store", "redis://host/x"}, {"-store", "nonsense"}, {"-store", "dir:"}, {"-queue", "a b"}} {
		stdin := readerFunc(func([]byte) (int, error) {
			assert.Fail(t, "the body is read", options)
			return 0, io.EOF
		})
		args := append(append([]string{"delayq", "-store", "memory:"}, options...), "enqueue")
		require.ErrorIs(t, run(t.Context(), args, stdin, io.Discard, io.Discard), durable.ErrInvalid)
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestIDsArePrintedAsGiven(t *testing.T) {
	d := onDirectory(t)
	const id = `C:\new "é"`
	assert.Equal(t, id+"\n", d.ok("enqueue", "-id", id, "-body", "x"))
	assert.Equal(t, id+": rescheduled\n", d.ok("reschedule", id, "-delay", "1h"))
	assert.Equal(t, id+": cancelled\n", d.ok("cancel", id))
}

// Each view of a message shows when it expires, and each command keeps that time.
func TestExpireAtAndHeadersAreShownSettableAndKept(t *testing.T) {
	q, run := queueAndProgram(t)
	const at = "2130-01-31T09:00:00.5Z"
	enqueue := []string{"enqueue", "-id", "a", "-body", "x", "-expire-at", "2130-01-31T10:00:00.5+01:00", "-header", "customer=42"}
	_, err := run(enqueue...)
	require.NoError(t, err)
	want, err := time.Parse(time.RFC3339, at)
	require.NoError(t, err)
	shown := func(args ...string) {
		t.Helper()
		out, err := run(args...)
		require.NoError(t, err)
		assert.Contains(t, out, "2130-01-31 ", args)
		assert.Contains(t, out, "expires", args)
		out, err = run(append([]string{"-json"}, args...)...)
		require.NoError(t, err)
		var m printedMessage
		require.NoError(t, json.Unmarshal([]byte(out), &m))
		assert.True(t, want.Equal(m.ExpireAt), "%v: %v", args, m.ExpireAt)
		assert.Equal(t, map[string]string{"customer": "42"}, m.Headers, args)
	}
	shown("inspect", "a")
	shown("list")
	out, err := run("-json", "take", "-wait", "1m")
	require.NoError(t, err)
	assert.Contains(t, out, `"expireAt":"2130-01-31T`)
	d, err := q.Take(t.Context())
	require.NoError(t, err)
	assert.True(t, want.Equal(d.ExpireAt))
	require.NoError(t, d.Bury(t.Context(), "no such user"))
	shown("dead", "list")
	_, err = run("dead", "replay", "a", "-delay", "1h")
	require.NoError(t, err)
	shown("list")
	_, err = run("enqueue", "-id", "b", "-body", "x", "-delay", "1h")
	require.NoError(t, err)
	out, err = run("-json", "inspect", "b")
	require.NoError(t, err)
	assert.NotContains(t, out, "expireAt")
	for args, word := range map[string]string{
		"enqueue -body x -expire-at tomorrow":                                      `"tomorrow"`,
		"enqueue -body x -expire-at 2130-01-01T00:00:00Z -at 2130-01-01T00:00:00Z": "ExpireAt",
	} {
		_, err := run(strings.Fields(args)...)
		require.ErrorIs(t, err, durable.ErrInvalid, args)
		require.ErrorContains(t, err, word, args)
	}
}

// A message of a newer version is exported with its error, not with an empty body.
func TestUnreadableMessageIsShownWithItsError(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	q, err := durable.Open(t.Context(), store, durable.Options{Partitions: 1})
	require.NoError(t, err)
	defer q.Close()
	b, err := store.Open(t.Context(), driver.Config{Queue: "default", Partitions: 1})
	require.NoError(t, err)
	_, err = b.Put(t.Context(), driver.Put{Items: []driver.PutItem{{ID: "a", Body: []byte("\xff\xff\xff"), Delay: time.Hour, MaxAttempts: 1}}})
	require.NoError(t, err)
	for _, args := range [][]string{{"inspect", "a"}, {"list"}} {
		var out bytes.Buffer
		require.NoError(t, onMemory(t.Context(), store, &out, io.Discard, args...))
		assert.Contains(t, out.String(), "version", args)
		out.Reset()
		require.NoError(t, onMemory(t.Context(), store, &out, io.Discard, append(args, "-json")...))
		assert.Contains(t, out.String(), `"error":"durable: message \"a\"`, args)
		assert.NotContains(t, out.String(), `"body"`, args)
	}
}

func TestUnknownResultIsPrinted(t *testing.T) {
	t.Parallel()
	for result, want := range map[durable.Result]string{durable.ResultNotFound: "not found", 99: "Result(99)"} {
		text, _, err := resultText(result, io.EOF)
		assert.Equal(t, want, text)
		assert.Equal(t, io.EOF, err)
	}
}
