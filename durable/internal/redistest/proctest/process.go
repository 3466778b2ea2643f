// Package proctest runs servers of tests as processes.
package proctest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
)

// Timeout limits how long servers take to become ready and to end. Only an overloaded machine needs
// that long.
const Timeout = 60 * time.Second

// Process is one run of a server.
type Process struct {
	*os.Process
	done chan struct{} // closed when it has ended
}

// Start starts cmd and appends its output to a file. On Linux the process receives deathSignal when
// the test binary ends.
func Start(cmd *exec.Cmd, logFile string, deathSignal os.Signal) (*Process, error) {
	out, err := os.OpenFile(logFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the child has its own
	cmd.Stdout, cmd.Stderr = out, out
	setAttributes(cmd, deathSignal)
	if err := onPermanentThread(cmd.Start); err != nil {
		return nil, err
	}
	p := &Process{cmd.Process, make(chan struct{})}
	go func() {
		defer close(p.done)
		_ = cmd.Wait() // most processes are killed, so the error has no meaning
	}()
	return p, nil
}

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// End sends a signal to the process and, on Linux, to the processes that it has forked to write
// files. It continues a paused process, and waits until it has ended.
func (p *Process) End(signal os.Signal) error {
	if p.Ended() {
		return nil
	}
	if err := signalGroup(p.Process, signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_ = p.Signal(Continue) // unless it has ended
	select {
	case <-p.done:
		return nil
	case <-time.After(Timeout):
		return fmt.Errorf("process %d has not ended within %v", p.Pid, Timeout)
	}
}

// starts returns the channel of functions for onPermanentThread.
var starts = sync.OnceValue(func() chan func() {
	c := make(chan func())
	go func() {
		runtime.LockOSThread() // never unlocked
		for f := range c {
			f()
		}
	}()
	return c
})

// onPermanentThread calls start on a thread that lives as long as the process. Linux sends a child
// its death signal when the thread that started it ends, and Go sometimes ends threads.
func onPermanentThread(start func() error) error {
	result := make(chan error, 1)
	starts() <- func() { result <- start() }
	return <-result
}

// Tail returns the last n lines of a log.
func Tail(log string, n int) string {
	lines := strings.Split(strings.TrimRight(log, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// Fatal wraps an error that waiting cannot resolve.
func Fatal(err error) error { return fatal{err} }

// Eventually calls ready until it returns nil or a [Fatal] error, or timeout has passed. It returns
// the last error.
func Eventually(timeout time.Duration, ready func() error) error {
	end := time.Now().Add(timeout)
	for {
		err := ready()
		if err == nil || errors.As(err, new(fatal)) {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("after %v: %w", timeout, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
