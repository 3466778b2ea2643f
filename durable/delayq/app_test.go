package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v3"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/delayq/internal/storeurl"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
	"github.com/timingwheel-go/timingwheel/durable/pebblestore"
)

// run runs the program in this process. args[0] is its name.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	return newApp(stdin, &lockedWriter{w: stdout}, &lockedWriter{w: stderr}).run(ctx, args)
}

// lockedWriter serializes the writes of several goroutines, as a file does.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// tester runs the program on a store.
type tester struct {
	t     *testing.T
	store string
}

// onDirectory returns a tester on a directory that does not exist yet.
func onDirectory(t *testing.T) tester {
	t.Parallel()
	return tester{t, "dir:" + filepath.Join(t.TempDir(), "q")}
}

type result struct {
	stdout, stderr string
	err            error
}

// patience is far longer than any command of the tests.
const patience = 2 * time.Minute

// runIn runs the program with an input.
func (d tester) runIn(stdin string, args ...string) result {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	err := run(ctx, append([]string{"delayq", "-store", d.store}, args...), strings.NewReader(stdin), &stdout, &stderr)
	require.NoError(d.t, ctx.Err(), "the command did not end in time: %v", args)
	return result{stdout.String(), stderr.String(), err}
}

// ok runs the program, fails the test unless it succeeds, and returns its output.
func (d tester) ok(args ...string) string {
	d.t.Helper()
	r := d.runIn("", args...)
	require.NoError(d.t, r.err, args)
	return r.stdout
}

// fails runs the program, and fails the test unless it returns an error with these words.
func (d tester) fails(args []string, words ...string) error {
	d.t.Helper()
	r := d.runIn("", args...)
	require.Error(d.t, r.err, args)
	for _, w := range words {
		require.ErrorContains(d.t, r.err, w, args)
	}
	return r.err
}

// These types are what programs read with -json.
type (
	printedMessage struct {
		ID, State, Reason, Error string
		Body                     *string
		BodyBase64               []byte
		Headers                  map[string]string
		Enqueued, Due            time.Time
		ExpireAt, LeaseEnd, Died time.Time
		Attempts, Crashes        int
		MaxAttempts              int
		Token                    uint64
		Partition                *int
	}
	printedCounts struct {
		Scheduled, Due, InFlight, Dead, DeadBytes, OverdueMs, Unreadable    int64
		Enqueued, Acked, Retried, Buried, Cancelled, Crashed, Trimmed, Lost uint64
		Now, NextDue                                                        time.Time
		Paused                                                              bool
		PerSecond                                                           map[string]float64
	}
	printedSample struct {
		printedCounts
		Queue      string
		Partitions []printedCounts
	}
	printedConsumer struct {
		ID, Host               string
		PID                    int
		Partitions             []int
		LastHeartbeat, Expires time.Time
	}
)

// message reads a message by inspect.
func (d tester) message(id string) printedMessage {
	d.t.Helper()
	var m printedMessage
	require.NoError(d.t, json.Unmarshal([]byte(d.ok("-json", "inspect", id)), &m))
	return m
}

// counts reads the state of the queue by watch.
func (d tester) counts() printedCounts {
	d.t.Helper()
	var s printedSample
	require.NoError(d.t, json.Unmarshal([]byte(d.ok("watch", "-n", "1", "-json")), &s))
	return s.printedCounts
}

func TestHelpNamesAllOptionsAndCommands(t *testing.T) {
	t.Parallel()
	var check func(c *cli.Command, path []string)
	check = func(c *cli.Command, path []string) {
		var stdout, stderr bytes.Buffer
		require.NoError(t, run(t.Context(), append(append([]string{"delayq"}, path...), "-help"), nil, &stdout, &stderr))
		help := stdout.String()
		assert.Empty(t, stderr.String())
		for _, f := range append(c.Flags, newApp(nil, io.Discard, io.Discard).globals()...) {
			assert.Contains(t, help, "-"+f.Names()[0]+" ", path)
		}
		for _, sub := range c.Commands {
			assert.Contains(t, help, "\n   "+strings.Join(sub.Names(), ", ")+" ", path)
			check(sub, append(path, sub.Name))
		}
		assert.True(t, c.Description != "" || path == nil, path)
		assert.True(t, path == nil || strings.Contains("\n"+helpText, "\n# "+strings.Join(path, " ")+"\n"+c.Description+"\n"), path)
		if len(path) == 1 {
			assert.Contains(t, help, "Examples:\n      delayq ", path)
		}
	}
	a := newApp(nil, io.Discard, io.Discard)
	check(&cli.Command{Commands: a.commands()}, nil)
	var bare, asked bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"delayq"}, nil, &bare, io.Discard))
	require.NoError(t, run(t.Context(), []string{"delayq", "-help"}, nil, &asked, io.Discard))
	assert.Equal(t, asked.String(), bare.String())
}

// The command lines of all examples are parsed, on a store that cannot be opened.
func TestExamplesOfHelpAreAccepted(t *testing.T) {
	t.Parallel()
	n := 0
	for section := range strings.SplitSeq("\n"+helpText, "\n# ") {
		_, examples, ok := strings.Cut(section, "Examples:\n")
		require.Equal(t, section != "", ok)
		if strings.HasPrefix(section, "backup") || strings.HasPrefix(section, "migrate") { // which reject the store of the test
			continue
		}
		for line := range strings.SplitSeq(examples, "\n") {
			words, ok := strings.CutPrefix(line, "   delayq ")
			if !ok {
				continue
			}
			n++
			err := withoutStore(t, example(words)...)
			assert.NotErrorIs(t, err, durable.ErrInvalid, line)
			assert.ErrorIs(t, err, errNoStore, line)
		}
	}
	assert.Greater(t, n, 30)
}

// example splits a shell command. It supports only the syntax of the examples.
func example(line string) []string {
	line, _, _ = strings.Cut(line, " < ")
	line, _, _ = strings.Cut(line, " > ")
	var args []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			args = append(args, part)
		} else {
			args = append(args, strings.Fields(part)...)
		}
	}
	return args
}

var errNoStore = io.ErrNoProgress

// withoutStore runs the program with stores that cannot be opened.
func withoutStore(t *testing.T, args ...string) error {
	a := newApp(strings.NewReader(""), io.Discard, io.Discard)
	a.parse = func(string) (storeurl.Opener, error) {
		return func(storeurl.Use) (durable.Store, error) { return nil, errNoStore }, nil
	}
	err := a.run(t.Context(), append([]string{"delayq", "-store", "memory:"}, args...))
	return err
}

// invalidCommandLines are command lines that must be rejected, with words of the error.
var invalidCommandLines = []struct {
	args string
	want []string
}{
	{"nonsense", []string{`"nonsense"`, "enqueue", "audit"}},
	{"-nonsense", []string{"-nonsense", "delayq -help"}},
	{"-partitions 1025 list", []string{`"1025"`, "0 to 1024"}},
	{"-queue= list", []string{`queue name ""`, "letters"}},
	{"-queue= enqueue", []string{`queue name ""`, "letters"}},
	{"-partitions -1 list", []string{`"-1"`, "0 to 1024"}},
	{"enqueue extra", []string{`"extra"`, "only options", "delayq enqueue -help"}},
	{"enqueue -body x -n 0", []string{`"0"`, "1 to 100000000"}},
	{"enqueue -body x -delay -5s", []string{`"-5s"`, "0s or more"}},
	{"enqueue -body x -delay soon", []string{`"soon"`, "1h30m"}},
	{"enqueue -body x -delay 999999d", []string{`"999999d"`, "7d"}},
	{"enqueue -body x -delay 106752d", []string{`"106752d"`, "up to 106751d"}},
	{"enqueue -body x -delay 18446744073709551615d", []string{"up to 106751d"}},
	{"enqueue -body x -delay 3000000h", []string{`"3000000h"`, "up to 106751d"}},
	{"enqueue -body x -delay 60000d1h", []string{`"60000d1h"`}},
	{"enqueue -body x -at tomorrow", []string{`"tomorrow"`, "2030-12-31T23:59:00Z"}},
	{"enqueue -body x -at 2030-01-01T00:00:00Z -delay 1s", []string{"-delay is 1s", "-at is 2030-01-01T00:00:00Z", "one of them"}},
	{"enqueue -body x -id=", []string{`-id is ""`, "1 to 255"}},
	{"enqueue -body x -max-attempts -1", []string{`"-1"`, "0 to 2147483647"}},
	{"enqueue -body", []string{"needs an argument"}},
	{"take -n 0", []string{`"0"`, "1 to 1000000"}},
	{"take -ack -nack", []string{"one of them"}},
	{"take -ack -keep", []string{"one of them"}},
	{"take -keep -nack", []string{"one of them"}},
	{"take -ack -delay 1s", []string{"-delay is 1s", "-nack"}},
	{"take -wait -1s", []string{`"-1s"`}},
	{"consume", []string{"-exec is missing", "a shell command"}},
	{"consume -exec true -concurrency 0", []string{`"0"`, "1 to 4096"}},
	{"consume -exec true -visibility 99ms", []string{`"99ms"`, "100ms or more"}},
	{"watch -interval 1ms", []string{`"1ms"`, "10ms or more"}},
	{"watch -partitions 4", []string{`"4"`, "only options"}},
	{"watch -n -1", []string{`"-1"`}},
	{"inspect", []string{"one message"}},
	{"inspect a b", []string{`"b"`, "one message"}},
	{"list -state asleep", []string{`"asleep"`, "scheduled or in-flight or dead"}},
	{"cancel", []string{"ids of messages"}},
	{"reschedule a", []string{"-delay or -at"}},
	{"reschedule -delay 1s", []string{"one message"}},
	{"reschedule a -delay 1s -at 2030-01-01T00:00:00Z", []string{"one of -delay or -at or -repeat"}},
	{"reschedule a b -delay 1s", []string{`"b"`}},
	{"dead nonsense", []string{`"nonsense"`, "replay, delete"}},
	{"dead replay", []string{"-all"}},
	{"dead delete", []string{"-all"}},
	{"dead delete a -all", []string{`"a"`, "not both"}},
	{"dead delete a -reason x", []string{`"a"`, "not both"}},
	{"dead replay -reason=", []string{`-reason is ""`, "-all"}},
	{"dead delete a -reason=", []string{`-reason is ""`}},
	{"dead delete -reason= -since 6h", []string{`-reason is ""`}},
	{"dead delete -since 1h -until 2h", []string{"-since is 1h", "-until is 2h", "earlier"}},
	{"dead replay -since 2020-01-01T00:00:00Z -until 2020-01-01T00:00:00Z", []string{"-since is 2020-01-01T00:00:00Z", "earlier"}},
	{"dead delete -all -reason x", []string{"-all", "-reason", "not both"}},
	{"dead replay -all -since 1h", []string{"not both"}},
	{"dead delete -all -until 1h", []string{"not both"}},
	{"dead delete -all=false", []string{"-all"}},
	{"dead delete -until 0s", []string{`"0s"`, "90m"}},
	{"dead delete -until 0d", []string{`"0d"`}},
	{"dead replay -until -1h", []string{`"-1h"`}},
	{"dead delete -since -1h", []string{`"-1h"`}},
	{"dead replay -since 2100-01-01T00:00:00Z", []string{"2100", "has passed"}},
	{"dead delete -until 2999-01-01T00:00:00Z", []string{"2999", "has passed"}},
	{"dead replay a -rate 5", []string{"-rate is 5", "-since"}},
	{"dead replay -all -rate -1", []string{`"-1"`, "0 to 100000"}},
	{"dead replay -all -rate NaN", []string{`"NaN"`, "0 to 100000"}},
	{"dead delete -since yesterday", []string{`"yesterday"`, "90m"}},
	{"cancel a -header b=c", []string{`"a"`, "not both"}},
	{"cancel -header b", []string{`"b"`, "key=value"}},
	{"cancel -header =b", []string{`"=b"`, "key=value"}},
	{"cancel -header b=c -header b=d", []string{`"b=d"`, "different keys"}},
	{"cancel a -all", []string{`"a"`, "not both"}},
	{"cancel -all -header b=c", []string{"-all or -header", "not both"}},
	{"cancel -all=false", []string{"-all"}},
	{"audit extra", []string{`"extra"`}},
	{"queues extra", []string{`"extra"`, "delete"}},
	{"queues -force", []string{"-force"}},
	{"queues delete", []string{"one queue"}},
	{"queues delete a b", []string{`"b"`, "one queue"}},
}

func TestInvalidCommandLinesAreRejected(t *testing.T) {
	t.Parallel()
	for _, c := range invalidCommandLines {
		err := withoutStore(t, strings.Fields(c.args)...)
		require.ErrorIs(t, err, durable.ErrInvalid, c.args)
		for _, w := range c.want {
			require.ErrorContains(t, err, w, c.args)
		}
	}
	require.ErrorIs(t, withoutStore(t, "cancel", ""), durable.ErrInvalid)
	err := withoutStore(t, "dead", "replay", "-reason", " ")
	require.ErrorIs(t, err, durable.ErrInvalid)
	require.ErrorContains(t, err, `-reason is " "; it must not be blank`)
}

func TestInvalidValuesAreNamed(t *testing.T) {
	t.Parallel()
	d := tester{t, "memory:"}
	require.ErrorIs(t, d.fails([]string{"-queue", "a b", "list"}, `"a b"`, "letters"), durable.ErrInvalid)
	err := d.fails([]string{"enqueue", "-body", "x", "-id", strings.Repeat("i", 256)}, "256 bytes", "1 to 255")
	require.ErrorIs(t, err, durable.ErrInvalid)
	d.store = "redis://me:hush@host:port"
	err = d.fails([]string{"list"}, "redis-cluster://host:port")
	require.ErrorIs(t, err, durable.ErrInvalid)
	assert.NotContains(t, err.Error(), "hush")
}

func TestOnlyEnqueueCreatesADirectory(t *testing.T) {
	d := onDirectory(t)
	for _, args := range [][]string{
		{"list"}, {"take"}, {"consume", "-exec", "true"}, {"watch"}, {"inspect", "a"}, {"cancel", "a"}, {"reschedule", "a", "-delay", "1s"},
		{"dead", "list"}, {"dead", "replay", "-all"}, {"dead", "delete", "a"}, {"audit"}, {"queues"}, {"queues", "delete", "a"},
	} {
		assert.Equal(t, 1, strings.Count(d.fails(args, "no such directory", "enqueue").Error(), "no such"), "the error says it once")
	}
	assert.NoDirExists(t, strings.TrimPrefix(d.store, "dir:"))
}

func TestErrorOfALockedDirectoryNamesTheRemedies(t *testing.T) {
	d := onDirectory(t)
	d.ok("enqueue", "-id", "a", "-body", "x")
	store, err := pebblestore.Open(strings.TrimPrefix(d.store, "dir:"), pebblestore.Options{})
	require.NoError(t, err)
	require.ErrorIs(t, d.fails([]string{"list"}, "pebblestore.Options.Socket", "Redis"), durable.ErrLocked)
	require.NoError(t, store.Close())
	d.ok("list")
}

func TestOtherNumberOfPartitionsIsRejected(t *testing.T) {
	d := onDirectory(t)
	d.ok("-partitions", "3", "enqueue", "-body", "x")
	require.ErrorIs(t, d.fails([]string{"-partitions", "4", "list"}, "Leave out -partitions", "3", "4"), durable.ErrPartitions)
	d.ok("-partitions", "3", "list")
	lines := strings.Split(d.ok("-partitions", "3", "watch", "-n", "1", "-partitions"), "\n")
	assert.Contains(t, lines[10], "│ 2 ")
}

func TestStoreAndQueueComeFromTheEnvironment(t *testing.T) {
	d := tester{t, "dir:" + filepath.Join(t.TempDir(), "q")}
	t.Setenv("DELAYQ_STORE", d.store)
	t.Setenv("DELAYQ_QUEUE", "other")
	require.NoError(t, run(t.Context(), []string{"delayq", "enqueue", "-id", "a", "-body", "x"}, nil, io.Discard, io.Discard))
	assert.Equal(t, "scheduled", d.message("a").State)
	require.ErrorIs(t, d.fails([]string{"-queue", "default", "inspect", "a"}), durable.ErrNoQueue)
}

func TestMisspelledQueueIsNotCreated(t *testing.T) {
	d := onDirectory(t)
	d.ok("enqueue", "-id", "a", "-body", "x")
	for _, command := range [][]string{
		{"pause"}, {"resume"}, {"health"}, {"consumers"}, {"list"}, {"audit"}, {"cancel", "a"}, {"cancel", "-header", "k=v"},
		{"dead", "list"}, {"dead", "delete", "-all"},
	} {
		err := d.fails(append([]string{"-queue", "defualt"}, command...), "defualt", "Check -queue")
		require.ErrorIs(t, err, durable.ErrNoQueue, command)
	}
	d.ok("health")
}

// opens returns a function that opens a store, and whose users cannot close it.
func opens(store durable.Store) func(string) (storeurl.Opener, error) {
	lister, _ := store.(driver.Lister)
	return func(string) (storeurl.Opener, error) {
		return func(storeurl.Use) (durable.Store, error) { return keptOpen{store, lister}, nil }, nil
	}
}

type keptOpen struct {
	durable.Store
	driver.Lister
}

func (keptOpen) Close() error { return nil }

// onMemory runs the program on a memory store and leaves the store open.
func onMemory(ctx context.Context, store *memstore.Store, stdout, stderr io.Writer, args ...string) error {
	a := newApp(strings.NewReader(""), stdout, stderr)
	a.parse = opens(store)
	return a.run(ctx, append([]string{"delayq", "-store", "memory:"}, args...))
}

func TestHelpThatCannotBePrintedIsAnError(t *testing.T) {
	t.Parallel()
	broken := errors.New("no space left")
	for _, args := range [][]string{{"-help"}, {}, {"enqueue", "-help"}, {"dead"}} {
		err := run(t.Context(), append([]string{"delayq"}, args...), nil, failing{broken}, io.Discard)
		require.ErrorIs(t, err, broken, args)
		require.NoError(t, run(t.Context(), append([]string{"delayq"}, args...), nil, failing{syscall.EPIPE}, io.Discard), "head closes its input early")
	}
}

// The store does not close before the user is notified that it delays the end.
func TestWaitForTheStoreIsReported(t *testing.T) {
	t.Parallel()
	noticed := make(chan struct{})
	var stderr bytes.Buffer
	a := newApp(nil, io.Discard, io.MultiWriter(&stderr, writerFunc(func(p []byte) (int, error) {
		close(noticed)
		return len(p), nil
	})))
	a.noticeDelay = time.Millisecond
	a.parse = func(string) (storeurl.Opener, error) {
		return func(storeurl.Use) (durable.Store, error) {
			return closedBy{memstore.New(memstore.Options{}), func() error {
				select {
				case <-noticed:
					return nil
				case <-time.After(patience):
					return errors.New("the user is not notified")
				}
			}}, nil
		}, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = a.run(ctx, []string{"delayq", "-store", "memory:", "watch"})
	assert.Equal(t, "delayq: waiting for the store, up to a minute if it does not answer; Ctrl-C again ends immediately\n", stderr.String())
}

// closedBy is a store that a function closes.
type closedBy struct {
	durable.Store
	close func() error
}

func (c closedBy) Close() error { return c.close() }

func countsOf(t *testing.T, store durable.Store, queue string) durable.Counts {
	q, err := durable.Open(t.Context(), store, durable.Options{Queue: queue})
	require.NoError(t, err)
	defer q.Close()
	stats, err := q.Stats(t.Context())
	require.NoError(t, err)
	return stats.Counts
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
