//go:build unix

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
)

// full is true if the tests run with the numbers of the guarantees.
var full = os.Getenv("TIMINGWHEEL_CHAOS") == "full"

// scaled returns n, or large with TIMINGWHEEL_CHAOS=full.
func scaled[T any](n, large T) T {
	if full {
		return large
	}
	return n
}

// skipIfShort skips a test with -short.
func skipIfShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("child processes and faults take a while")
	}
}

// waitLimit is how long a test waits for an event, which is enough on an overloaded machine.
var waitLimit = scaled(60*time.Second, 10*time.Minute)

// children numbers the child processes of this test binary.
var children atomic.Int64

// run is a queue with its producers and consumers.
type run struct {
	t      *testing.T
	target target
	dir    string
	events string   // the file of this process
	files  []string // the files of all processes, producers first
	series bool     // there are recurring messages
}

func newRun(t *testing.T, tg target) *run {
	t.Helper()
	r := &run{t: t, target: tg, dir: t.TempDir()}
	r.events = r.newFile("events", true)
	return r
}

// newFile returns a file of events for one process. SIGKILL may interrupt a write, so no other
// process may write to the same file. Files of producers are read first, so that messages are known
// when their handlers start.
func (r *run) newFile(name string, producer bool) string {
	path := filepath.Join(r.dir, name)
	if producer {
		r.files = slices.Insert(r.files, 0, path)
	} else {
		r.files = append(r.files, path)
	}
	return path
}

// child is a child process with a role.
type child struct {
	t    *testing.T
	role role
	cmd  *exec.Cmd
	in   io.Closer
	out  lockedText
	errs lockedText
	done chan struct{}
}

// start starts a child process with a role.
func (r *run) start(ro role) *child {
	r.t.Helper()
	ro.Target, ro.Name = r.target, fmt.Sprintf("p%d", children.Add(1))
	ro.Events = r.newFile(ro.Name, ro.Messages > 0 || ro.Series > 0)
	r.series = r.series || ro.Series > 0
	ro.Batch = max(1, ro.Batch)
	text, err := json.Marshal(ro)
	require.NoError(r.t, err)
	c := &child{t: r.t, role: ro, cmd: exec.Command(os.Args[0]), done: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), envRole+"="+string(text))
	c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.errs
	c.in, err = c.cmd.StdinPipe()
	require.NoError(r.t, err)
	require.NoError(r.t, c.cmd.Start())
	go func() {
		defer close(c.done)
		_ = c.cmd.Wait() // most children are killed
	}()
	r.t.Cleanup(func() {
		c.kill()
		if r.t.Failed() {
			r.t.Logf("%s printed %q, and to stderr: %s", ro.Name, c.out.String(), tail(c.errs.String(), 3000))
		}
	})
	return c
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

// kill ends the process with SIGKILL and waits for its end.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // the process may have ended
	<-c.done
}

func (c *child) signal(s syscall.Signal) {
	c.t.Helper()
	require.NoError(c.t, c.cmd.Process.Signal(s))
}

// wait waits until the process ends by itself, and fails the test if the process fails.
func (c *child) wait() {
	c.t.Helper()
	select {
	case <-c.done:
		assert.True(c.t, c.cmd.ProcessState.Success(), "%v: %s", c.cmd.ProcessState, tail(c.errs.String(), 2000))
	case <-time.After(waitLimit):
		c.t.Errorf("a child process did not end within %v", waitLimit)
	}
}

// stop asks the process to end gracefully and waits for its end. Before the signal, stop waits
// until the process has opened its queue, because the signal would kill a process that does not
// handle it yet.
func (c *child) stop() {
	c.t.Helper()
	c.waitUntilOpen()
	c.signal(syscall.SIGTERM)
	c.wait()
}

// waitUntilOpen waits until the process has opened its queue, or has ended.
func (c *child) waitUntilOpen() {
	c.t.Helper()
	open := func() bool { return strings.Contains(c.out.String(), "open") || c.ended() }
	require.Eventually(c.t, open, waitLimit, time.Millisecond, "a child process did not open its queue")
}

// ended reports whether the process has ended.
func (c *child) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// recorded reports whether the process has recorded any events.
func (c *child) recorded() bool {
	info, err := os.Stat(c.role.Events)
	return err == nil && info.Size() > 0
}

// waitUntilDrained waits until the queue has no messages to deliver, and records its dead letters.
// It cancels the recurring messages that no producer has cancelled. It fails if the number of these
// messages has not fallen for waitLimit.
func (r *run) waitUntilDrained() {
	r.t.Helper()
	q, store, err := (&role{Target: r.target}).target(r.t.Context())
	require.NoError(r.t, err)
	defer store.Close()
	defer q.Close()
	events, err := OpenFile(r.events)
	require.NoError(r.t, err)
	defer events.Close()
	least, end := int64(math.MaxInt64), time.Now().Add(waitLimit)
	for least > 0 {
		s, err := q.Stats(r.t.Context())
		if n := s.Scheduled + s.InFlight; err == nil && n < least {
			least, end = n, time.Now().Add(waitLimit)
		}
		if r.series {
			require.NoError(r.t, endSeries(r.t.Context(), q, events))
		}
		require.True(r.t, time.Now().Before(end), "the queue was not drained: %+v, error %v", s, err)
		time.Sleep(100 * time.Millisecond)
	}
	for record, err := range q.List(context.Background(), durable.StateDead) {
		require.NoError(r.t, err)
		require.NoError(r.t, events.Record(Event{Kind: Dead, ID: record.ID}))
	}
}

// check returns the report of the checker, and fails the test if a guarantee was broken. edit may
// change events.
func (r *run) check(o Options, edit func(Event) Event) *Report {
	r.t.Helper()
	if edit == nil {
		edit = func(e Event) Event { return e }
	}
	report := r.read(o, func(_ string, e Event) Event { return edit(e) }).Check()
	r.t.Log(report)
	require.NoError(r.t, report.Err())
	return report
}

// checkAll is check, and also checks the numbers of enqueued and handled messages.
func (r *run) checkAll(messages int, o Options) *Report {
	r.t.Helper()
	report := r.check(o, nil)
	assert.Equal(r.t, messages, report.Enqueued)
	assert.Equal(r.t, messages, report.Handled)
	return report
}

// read returns the history of the events that all processes have recorded. edit gets the file of
// each event.
func (r *run) read(o Options, edit func(file string, e Event) Event) *History {
	r.t.Helper()
	h := New(o)
	for _, file := range r.files {
		err := h.ReadFile(file, func(e Event) Event { return edit(file, e) })
		if !errors.Is(err, os.ErrNotExist) { // a process that was killed early has no file
			require.NoError(r.t, err)
		}
	}
	return h
}

// lockedText is the output of a process, safe for concurrent use.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
