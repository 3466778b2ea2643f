//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	flags "flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
	"github.com/timingwheel-go/timingwheel/durable/pebblestore"
)

// outputTrigger is a writer that calls end, perhaps more than once, after some lines and words were
// written.
type outputTrigger struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	lines int
	words string
	end   func()
}

func (c *outputTrigger) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.buf.Write(p)
	if bytes.Count(c.buf.Bytes(), []byte("\n")) >= c.lines && bytes.Contains(c.buf.Bytes(), []byte(c.words)) {
		c.end()
	}
	return len(p), nil
}

// interruptAfter runs the program, and interrupts it after some lines on stdout or stderr. Any
// goroutine may call it.
func (d tester) interruptAfter(lines int, onStderr bool, args ...string) result {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	watched := &outputTrigger{lines: lines, end: cancel}
	var other bytes.Buffer
	var stdout, stderr io.Writer = watched, &other
	if onStderr {
		stdout, stderr = &other, watched
	}
	err := run(ctx, append([]string{"delayq", "-store", d.store}, args...), nil, stdout, stderr)
	assert.ErrorIs(d.t, ctx.Err(), context.Canceled, "the program did not print the lines: %v; stderr: %s", err, other.String())
	r := result{watched.buf.String(), other.String(), err}
	if onStderr {
		r.stdout, r.stderr = r.stderr, r.stdout
	}
	return r
}

func TestConsumeRunsTheCommandForEachDueMessage(t *testing.T) {
	d := onDirectory(t)
	d.ok("enqueue", "-id", "a", "-n", "10", "-body", "hello")
	d.ok("enqueue", "-id", "later", "-body", "x", "-delay", "1h")
	r := d.interruptAfter(10, false, "consume", "-exec", `printf '%s %s %s\n' "$(cat)" "$DELAYQ_ID" "$DELAYQ_ATTEMPTS"`, "-concurrency", "4")
	require.NoError(t, r.err)
	for _, id := range []string{"a-1", "a-10"} {
		assert.Contains(t, r.stdout, "hello "+id+" 0\n")
	}
	assert.Contains(t, r.stderr, "10 messages delivered, 0 failed")
	c := d.counts()
	assert.EqualValues(t, 10, c.Acked)
	assert.EqualValues(t, 1, c.Scheduled)
}

func TestCommandsGetExpireAtAndHeaders(t *testing.T) {
	d := onDirectory(t)
	d.ok("-partitions", "1", "enqueue", "-id", "a", "-body", "x", "-expire-at", "2130-01-31T09:00:00Z", "-header", "customer=4\"2", "-header", "trace-id=x y")
	d.ok("enqueue", "-id", "b", "-body", "x")
	r := d.interruptAfter(2, false, "consume", "-exec", `echo "$DELAYQ_ID<$DELAYQ_EXPIRE_AT>$DELAYQ_HEADERS$DELAYQ_HEADER_TRACE_ID"`)
	require.NoError(t, r.err)
	assert.Regexp(t, `a<2130-01-31T.*>\{"customer":"4\\"2","trace-id":"x y"\}x y`, r.stdout)
	assert.Contains(t, r.stdout, "b<>{}\n")
}

// Each header is a variable, unless its value has a NUL byte. If the keys of several headers have
// the same variable, the last one counts.
func TestCommandsGetEachHeaderAsAVariable(t *testing.T) {
	q, _ := queueAndProgram(t)
	_, err := q.Enqueue(t.Context(), durable.Message{Headers: map[string]string{
		"user-id": "7", "User.ID": "6", "trace2": "a b\nc=d", "ü": "1", "nul": "a\x00b",
	}})
	require.NoError(t, err)
	delivery, err := q.Take(t.Context())
	require.NoError(t, err)
	var found []string
	for _, v := range environment(delivery) {
		if strings.HasPrefix(v, "DELAYQ_HEADER_") {
			found = append(found, v)
		}
	}
	assert.Equal(t, []string{
		"DELAYQ_HEADER_USER_ID=6", "DELAYQ_HEADER_TRACE2=a b\nc=d", "DELAYQ_HEADER_USER_ID=7", "DELAYQ_HEADER__=1",
	}, found) // exec.Cmd passes the last one of a name
	require.NoError(t, delivery.Ack(t.Context()))
}

func TestTwoProcessesShareAQueueOnRedis(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	redistest.AwaitDisconnects(t, server)
	tester{t, "redis://" + server.Addr()}.share()
}

func TestTwoProcessesShareAQueueOnPostgres(t *testing.T) {
	d := onPostgres(t)
	d.ok("migrate")
	d.share()
}

// share makes two runs of the program use one queue concurrently.
func (d tester) share() {
	t := d.t
	done := make(chan result, 1)
	go func() { done <- d.interruptAfter(6, false, "consume", "-exec", "cat; echo", "-concurrency", "2") }()
	d.ok("enqueue", "-n", "5", "-body", "x", "-delay", "100ms")
	d.ok("enqueue", "-id", "last", "-body", "y", "-delay", "1s")
	r := <-done
	require.NoError(t, r.err)
	assert.Equal(t, 5, strings.Count(r.stdout, "x\n"))
	assert.Equal(t, 1, strings.Count(r.stdout, "y\n"))
	assert.EqualValues(t, 6, d.counts().Acked)
	d.ok("enqueue", "-body", "kept")
	assert.Equal(t, "kept\n", d.ok("take", "-wait", "1m"))
	assert.Equal(t, "kept\n", d.ok("take", "-ack", "-wait", "1m"))
}

const waitingNotice = "waiting for 1 running command; "

// commandUntilNotice returns a command that ends after the program has written to the returned
// writer that it waits for the command.
func commandUntilNotice(t *testing.T) (line string, stderr *outputTrigger) {
	t.Helper()
	noticed := filepath.Join(t.TempDir(), "noticed")
	goOn := func() { assert.NoError(t, os.WriteFile(noticed, nil, 0o600)) }
	timeout := time.AfterFunc(patience, goOn) // so that the test fails instead of hanging
	t.Cleanup(func() { timeout.Stop() })
	return "until test -e '" + noticed + "'; do sleep 0.05; done", &outputTrigger{words: waitingNotice, end: goOn}
}

func TestCtrlCLetsCommandsEndAndReleasesTheRest(t *testing.T) {
	d := onDirectory(t)
	d.ok("enqueue", "-id", "a", "-n", "50", "-body", "x")
	done := filepath.Join(t.TempDir(), "done")
	wait, stderr := commandUntilNotice(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	command := `echo begun; ` + wait + `; echo "$DELAYQ_ID" >> '` + done + `'`
	err := run(ctx, []string{"delayq", "-store", d.store, "consume", "-exec", command}, nil, &outputTrigger{lines: 1, end: cancel}, stderr)
	require.NoError(t, err)
	require.ErrorIs(t, ctx.Err(), context.Canceled, "output is printed while the command runs")
	assert.Contains(t, stderr.buf.String(), waitingNotice)
	finished, err := os.ReadFile(done)
	require.NoError(t, err, "the running command has ended by itself")
	n := int64(strings.Count(string(finished), "\n"))
	c := d.counts()
	assert.EqualValues(t, n, c.Acked)
	assert.Equal(t, 50-n, c.Scheduled, "messages that had not begun are released")
	assert.Zero(t, c.InFlight)
	assert.Zero(t, c.Retried)
}

func TestFailedCommandIsAFailedAttempt(t *testing.T) {
	d := onDirectory(t)
	d.ok("enqueue", "-id", "a", "-body", "x")
	d.ok("enqueue", "-id", "last", "-body", "x", "-max-attempts", "1")
	r := d.interruptAfter(4, true, "consume", "-exec", `echo "$DELAYQ_ID: out of order" >&2; exit 3`)
	require.NoError(t, r.err)
	assert.Contains(t, r.stderr, "exit status 3")
	m := d.message("last")
	assert.Equal(t, "dead", m.State)
	assert.Equal(t, "exit status 3: last: out of order", m.Reason)
	m = d.message("a")
	assert.Equal(t, "scheduled", m.State)
	assert.Positive(t, m.Attempts)
}

// A supervisor signals all processes of a service, in any order. delayq may see that the command
// has ended before it gets its own signal: no attempt is counted.
func TestSIGTERMToAllProcessesCountsNothing(t *testing.T) {
	t.Parallel()
	for name, command := range map[string]string{
		"signal":     `echo begun; exec sleep 600`,
		"child":      `echo begun; sleep 600; true`,
		"exit 128+n": `trap 'exit 143' TERM; echo begun; sleep 600 & wait`,
		"exit 1":     `trap 'exit 1' TERM; echo begun; sleep 600 & wait`,
	} {
		for _, commandFirst := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, command first %v", name, commandFirst), func(t *testing.T) {
				d := onDirectory(t)
				d.consumeUntilSIGTERM(command, patience, func(ended <-chan struct{}, signal, end func()) {
					if !commandFirst {
						end()
					}
					signal()
					<-ended
					end()
				})
				m := d.message("a")
				assert.Equal(t, "scheduled", m.State, m.Reason)
				assert.Zero(t, m.Attempts)
				assert.Zero(t, m.Crashes)
			})
		}
	}
}

// A signal to the command only is a failed attempt.
func TestSIGTERMToTheCommandIsAFailedAttempt(t *testing.T) {
	d := onDirectory(t)
	d.consumeUntilSIGTERM("echo begun; exec sleep 600", time.Millisecond, func(_ <-chan struct{}, signal, _ func()) { signal() })
	m := d.message("a")
	assert.Equal(t, "dead", m.State)
	assert.Equal(t, "signal: terminated", m.Reason)
}

// consumeUntilSIGTERM runs a command, which prints a line, for a message with one attempt. It calls
// do with functions that signal the process group of the command and that end delayq. ended is
// closed when delayq has seen the end of the command. delayq also ends when it has printed a fault.
func (d tester) consumeUntilSIGTERM(command string, grace time.Duration, do func(ended <-chan struct{}, signal, end func())) {
	d.t.Helper()
	d.ok("enqueue", "-id", "a", "-body", "x", "-max-attempts", "1")
	pid := filepath.Join(d.t.TempDir(), "pid")
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	begun := make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	a := newApp(nil, &outputTrigger{lines: 1, end: begin}, &outputTrigger{words: "delivery failed", end: cancel})
	a.signalGrace = grace
	done := make(chan error, 1)
	go func() {
		done <- a.run(ctx, []string{"delayq", "-store", d.store, "consume", "-exec", "echo $$ > '" + pid + "'; " + command})
	}()
	<-begun
	text, err := os.ReadFile(pid)
	require.NoError(d.t, err)
	group, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(d.t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for a.children.count() > 0 {
			time.Sleep(time.Millisecond)
		}
	}()
	do(ended, func() { assert.NoError(d.t, syscall.Kill(-group, syscall.SIGTERM)) }, cancel)
	require.NoError(d.t, <-done)
}

// storeWithoutRelease fails to release messages.
type storeWithoutRelease struct{ durable.Store }

type backendWithoutRelease struct{ driver.Backend }

func (s storeWithoutRelease) Open(ctx context.Context, c driver.Config) (driver.Backend, error) {
	b, err := s.Store.Open(ctx, c)
	return backendWithoutRelease{b}, err
}

func (b backendWithoutRelease) Apply(ctx context.Context, batch driver.Batch) ([]driver.Outcome, error) {
	if batch.Op == driver.OpRelease {
		return nil, errors.New("no release")
	}
	return b.Backend.Apply(ctx, batch)
}

func TestFailedReleaseDoesNotAcknowledge(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	require.NoError(t, onMemory(t.Context(), store, io.Discard, io.Discard, "enqueue", "-id", "a", "-body", "x"))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	a := newApp(nil, &outputTrigger{lines: 1, end: cancel}, io.Discard)
	a.parse = opens(storeWithoutRelease{store})
	wait := filepath.Join(t.TempDir(), "none")
	_ = a.run(ctx, []string{"delayq", "-store", "memory:", "consume", "-exec", "echo begun; sleep 0.2; cat '" + wait + "'"})
	c := countsOf(t, store, "default")
	assert.Zero(t, c.Acked)
	assert.EqualValues(t, 1, c.Scheduled+c.InFlight)
}

// The shell cannot be started.
func TestMessageIsReleasedIfTheShellCannotBeStarted(t *testing.T) {
	d := tester{t, "dir:" + filepath.Join(t.TempDir(), "q")}
	d.ok("enqueue", "-id", "a", "-body", "x", "-max-attempts", "1")
	t.Setenv("PATH", t.TempDir())
	require.ErrorIs(t, d.fails([]string{"consume", "-exec", "true"}, "cannot be run", `"a"`), errNoCommand)
	assert.Equal(t, "scheduled", d.message("a").State)
}

// The URL of the store may have a password.
func TestCommandsDoNotGetTheStore(t *testing.T) {
	d := tester{t, "dir:" + filepath.Join(t.TempDir(), "q")}
	d.ok("enqueue", "-id", "a", "-body", "x")
	t.Setenv("DELAYQ_STORE", "redis://me:hush@localhost")
	t.Setenv("DELAYQ_QUEUE", "default")
	r := d.interruptAfter(1, false, "consume", "-exec", `env; echo "end"`)
	require.NoError(t, r.err)
	assert.Contains(t, r.stdout, "DELAYQ_QUEUE=default\n")
	assert.NotContains(t, r.stdout, "hush")
}

func TestMissingCommandEndsConsume(t *testing.T) {
	d := onDirectory(t)
	d.ok("enqueue", "-id", "a", "-n", "30", "-body", "x")
	err := d.fails([]string{"consume", "-exec", "no-such-command-anywhere"}, "cannot be run", "no-such-command-anywhere", "not found")
	require.ErrorIs(t, err, errNoCommand)
	c := d.counts()
	assert.EqualValues(t, 30, c.Scheduled)
	assert.Zero(t, c.Retried, "no message was tried")
	script := filepath.Join(t.TempDir(), "deliver.sh")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\nrm "+script), 0o700)) //nolint:gosec // a command
	err = d.fails([]string{"consume", "-exec", script}, "cannot be run", script)
	require.ErrorIs(t, err, errNoCommand)
	assert.EqualValues(t, 1, d.counts().Acked)
	assert.Zero(t, d.counts().Retried, "the command was removed after it had run")
}

func TestUnprintableOutputEndsConsume(t *testing.T) {
	d := onDirectory(t)
	d.ok("enqueue", "-id", "a", "-n", "30", "-body", "x", "-max-attempts", "1")
	broken := errors.New("broken pipe")
	err := run(t.Context(), []string{"delayq", "-store", d.store, "consume", "-exec", "cat"}, nil, failing{broken}, io.Discard)
	require.ErrorIs(t, err, broken)
	c := d.counts()
	assert.EqualValues(t, 30, c.Scheduled)
	assert.Zero(t, c.Retried, "no message has failed")
}

func TestBrokenPipeReleasesTheMessage(t *testing.T) {
	d := onDirectory(t)
	d.ok("enqueue", "-id", "a", "-body", "x")
	r, w, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, r.Close())
	cmd := d.process(w, nil, "take", "-ack", "-wait", "1m")
	require.NoError(t, w.Close())
	require.Error(t, cmd.Wait())
	assert.Equal(t, 1, cmd.ProcessState.ExitCode())
	m := d.message("a")
	assert.Equal(t, "scheduled", m.State)
	assert.Zero(t, m.Crashes, "the message was released")
}

func TestBackgroundProcessDoesNotDelayItsCommand(t *testing.T) {
	t.Parallel()
	var c children
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "sleep 600 & echo up")
	var out bytes.Buffer
	cmd.Stdout, cmd.WaitDelay = &out, time.Second
	require.ErrorIs(t, c.run(cmd), exec.ErrWaitDelay)
	assert.Equal(t, "up\n", out.String())
	require.NoError(t, killGroup(cmd), "the process in the background")
}

func TestKillEndsCommandsAndPreventsNewOnes(t *testing.T) {
	t.Parallel()
	var c children
	ended := make(chan error, 2)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "sleep 600; true")
	go func() { ended <- c.run(cmd) }()
	require.Eventually(t, func() bool { return c.count() == 1 }, time.Minute, time.Millisecond)
	c.kill()
	require.Eventually(t, func() bool { return syscall.Kill(cmd.Process.Pid, 0) != nil }, time.Minute, time.Millisecond)
	file := filepath.Join(t.TempDir(), "file")
	go func() { ended <- c.run(exec.CommandContext(t.Context(), "touch", file)) }()
	select {
	case err := <-ended:
		require.Fail(t, "a command returned before the process has exited", err)
	case <-time.After(100 * time.Millisecond):
	}
	assert.NoFileExists(t, file)
}

// TestMain runs the program itself if the test binary is started with DELAYQ_TEST_MAIN, for tests
// with signals.
func TestMain(m *testing.M) {
	if os.Getenv("DELAYQ_TEST_MAIN") != "" {
		main()
		os.Exit(0)
	}
	flags.Parse()
	given := false
	flags.Visit(func(f *flags.Flag) { given = given || f.Name == "test.parallel" })
	if !given { // most tests wait for processes and timeouts
		if err := flags.Set("test.parallel", "8"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// process starts the program as a process of its own.
func (d tester) process(stdout, stderr io.Writer, args ...string) *exec.Cmd {
	d.t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"-store", d.store}, args...)...)
	cmd.Env = append(os.Environ(), "DELAYQ_TEST_MAIN=1")
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.WaitDelay = time.Second
	require.NoError(d.t, cmd.Start())
	d.t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

// startAndWait starts a process, and returns after it has written some lines to stdout.
func (d tester) startAndWait(lines int, stderr io.Writer, args ...string) *exec.Cmd {
	d.t.Helper()
	begun, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	cmd := d.process(&outputTrigger{lines: lines, end: cancel}, stderr, args...)
	<-begun.Done()
	require.ErrorIs(d.t, begun.Err(), context.Canceled)
	return cmd
}

// afterCrash returns a tester on a copy of the directory, as a crash of the process that uses it
// would leave it.
func (d tester) afterCrash() tester {
	d.t.Helper()
	r, err := pebblestore.Connect(strings.TrimPrefix(d.store, "dir:"))
	require.NoError(d.t, err)
	defer r.Close()
	dir := filepath.Join(d.t.TempDir(), "crashed")
	require.NoError(d.t, r.Backup(d.t.Context(), dir))
	return tester{d.t, "dir:" + dir}
}

func TestFirstCtrlCWaitsForCommandsAndSecondEndsThem(t *testing.T) {
	d := onDirectory(t)
	d.ok("enqueue", "-id", "a", "-body", "x")
	noticed, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := d.startAndWait(1, &outputTrigger{words: waitingNotice, end: cancel}, "consume", "-exec", "echo begun; sleep 600")
	for d.afterCrash().message("a").Crashes == 0 { // the begin is written to the file asynchronously
		require.NoError(t, noticed.Err())
		time.Sleep(20 * time.Millisecond)
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	<-noticed.Done()
	require.ErrorIs(t, noticed.Err(), context.Canceled)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		require.Fail(t, "the first Ctrl-C does not wait for the command", err)
	case <-time.After(300 * time.Millisecond):
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	select {
	case <-ended:
	case <-time.After(patience):
		require.Fail(t, "the second Ctrl-C does not end the program")
	}
	assert.Equal(t, exitForced, cmd.ProcessState.ExitCode())
	assert.Equal(t, 1, d.message("a").Crashes, "the message is delivered again")
}

func TestExitCodeIs0AfterSIGTERMAnd1AfterAnError(t *testing.T) {
	d := onDirectory(t)
	d.ok("enqueue", "-body", "x", "-delay", "1h")
	cmd := d.startAndWait(2, nil, "watch", "-interval", "20ms")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait(), "exit code 0")
	d.store += ".other"
	failed := d.process(io.Discard, nil, "list")
	require.Error(t, failed.Wait())
	assert.Equal(t, 1, failed.ProcessState.ExitCode())
}

// Writes to stderr fail, as on a full disk. The commands still succeed.
func TestUnprintableErrorsDoNotFailCommands(t *testing.T) {
	d := onDirectory(t)
	d.ok("enqueue", "-id", "a", "-n", "3", "-body", "x", "-max-attempts", "1")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stdout := &outputTrigger{lines: 3, end: cancel}
	err := run(ctx, []string{"delayq", "-store", d.store, "consume", "-exec", "echo warning >&2; echo done"}, nil, stdout, failing{errors.New("full")})
	require.NoError(t, err)
	c := d.counts()
	assert.EqualValues(t, 3, c.Acked, "exit code 0 acknowledges")
	assert.Zero(t, c.Dead)
}

// The program receives the two signals of a closed terminal, from the shell and from the system.
// The running command may end, and no process is left.
func TestHangupLetsCommandsEnd(t *testing.T) {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP) // a child inherits an ignored signal, as under nohup, but not a caught one
	defer signal.Stop(caught)
	d := onDirectory(t)
	d.ok("enqueue", "-id", "a", "-body", "x")
	cmd := d.startAndWait(1, nil, "consume", "-exec", "echo begun; sleep 0.5")
	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	time.Sleep(100 * time.Millisecond) // the system may merge two signals into one
	_ = cmd.Process.Signal(syscall.SIGHUP)
	require.NoError(t, cmd.Wait(), "exit code 0")
	assert.EqualValues(t, 1, d.counts().Acked)
}

// A command runs for longer than noticeDelay.
func TestRunningCommandsAreReportedBeforeTheStore(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	require.NoError(t, onMemory(t.Context(), store, io.Discard, io.Discard, "enqueue", "-body", "x"))
	ctx, cancel := context.WithCancel(t.Context())
	out := &outputTrigger{lines: 1, end: cancel}
	wait, stderr := commandUntilNotice(t)
	a := newApp(nil, out, io.MultiWriter(out, stderr))
	a.noticeDelay = time.Millisecond
	a.parse = opens(store)
	require.NoError(t, a.run(ctx, []string{"delayq", "-store", "memory:", "consume", "-exec", "echo begun; " + wait + "; sleep 0.05; echo ended"}))
	before, _, ok := strings.Cut(out.buf.String(), "ended\n")
	require.True(t, ok)
	assert.Contains(t, before, waitingNotice)
	assert.NotContains(t, before, "waiting for the store")
}
