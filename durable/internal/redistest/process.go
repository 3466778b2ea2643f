package redistest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"
)

// process is one run of a server.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// startProcess starts a program. It appends the program's output to a file and adds env to its
// environment.
func startProcess(path, logFile, dir string, env []string, args ...string) (*process, error) {
	out, err := os.OpenFile(logFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the child has its own
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = processAttributes()
	if err := onPermanentThread(cmd.Start); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		_ = cmd.Wait() // most processes are killed, so the error has no meaning
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// wait waits until the process has ended.
func (p *process) wait(timeout time.Duration) error {
	select {
	case <-p.done:
		return nil
	case <-time.After(timeout):
		return fmt.Errorf("process %d has not ended within %v", p.pid(), timeout)
	}
}

// kill ends the process, and the processes that it has forked to write files, with SIGKILL.
func (p *process) kill() error {
	if p.ended() {
		return nil
	}
	if err := killGroup(p.cmd.Process); err != nil && !p.ended() {
		return err
	}
	return p.wait(startTimeout)
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

// onPermanentThread calls start on a thread that lives as long as the process. Linux kills a child
// with Pdeathsig when the thread that started it ends, and Go sometimes ends threads.
func onPermanentThread(start func() error) error {
	result := make(chan error, 1)
	starts() <- func() { result <- start() }
	return <-result
}
