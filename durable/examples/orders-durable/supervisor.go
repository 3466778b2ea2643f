package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/rpc"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"
)

// supervisor runs consumers, one at a time, and kills them.
type supervisor struct {
	job    job
	stderr io.Writer
	quiet  chan struct{} // closed when no more kills will come

	mu      sync.Mutex
	current *process
	changed chan struct{} // closed when there is another one
}

// process is a consumer that runs, or has.
type process struct {
	cmd    *exec.Cmd
	client *rpc.Client
	exited chan struct{}
	err    error // how it ended; read when exited is closed
}

func newSupervisor(j job, stderr io.Writer) *supervisor {
	return &supervisor{job: j, stderr: stderr, quiet: make(chan struct{}), changed: make(chan struct{})}
}

// run starts a consumer, kills it at each of the moments and starts another one, and ends the last one when the shop has finished or
// ctx ends. No process is left when it returns. A consumer that ends by itself is an error.
func (s *supervisor) run(ctx context.Context, moments []time.Duration, finished <-chan struct{}) error {
	begin := time.Now()
	for _, m := range moments {
		p, err := s.start()
		if err != nil {
			return err
		}
		timer := time.NewTimer(time.Until(begin.Add(m)))
		select {
		case <-timer.C:
			err = p.kill(ctx)
		case <-p.exited:
			err = p.unasked(ctx)
		case <-ctx.Done():
			timer.Stop()
			return p.stop(ctx)
		}
		timer.Stop()
		if err != nil {
			return err
		}
	}
	p, err := s.start()
	if err != nil {
		return err
	}
	close(s.quiet)
	select {
	case <-finished:
	case <-ctx.Done():
	case <-p.exited:
		return p.unasked(ctx)
	}
	return p.stop(ctx)
}

// start runs this program once more, as a consumer.
func (s *supervisor) start() (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	told, err := json.Marshal(s.job)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(program), exited: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), jobVariable+"="+string(told))
	p.cmd.Stderr = s.stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a consumer: %w", err)
	}
	p.client = rpc.NewClient(conn{out, in, in.Close})
	go func() {
		defer close(p.exited)
		p.err = p.cmd.Wait()
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = p
	close(s.changed)
	s.changed = make(chan struct{})
	return p, nil
}

// other waits for a consumer other than one that was killed.
func (s *supervisor) other(ctx context.Context, killed *process) (*process, error) {
	for {
		s.mu.Lock()
		p, changed := s.current, s.changed
		s.mu.Unlock()
		if p != killed {
			return p, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// kill gives the process no time for anything: on Unix it is SIGKILL.
func (p *process) kill(ctx context.Context) error {
	if err := p.cmd.Process.Kill(); err != nil {
		<-p.exited
		return p.unasked(ctx)
	}
	<-p.exited
	_ = p.client.Close() // the pipe is broken already
	return nil
}

// stop lets the process finish what it has begun.
func (p *process) stop(ctx context.Context) error {
	_ = p.client.Close() // it may have broken with the process, whose end says so
	timeout := time.NewTimer(2 * closeTime)
	defer timeout.Stop()
	select {
	case <-p.exited:
	case <-timeout.C:
		return errors.Join(fmt.Errorf("consumer %d: it has not ended in %v and was killed", p.cmd.Process.Pid, 2*closeTime), p.kill(ctx))
	}
	if p.err != nil {
		return p.unasked(ctx)
	}
	return nil
}

// unasked is the error of a process that has ended, or failed, by itself. Ctrl-C, which ends ctx, may have ended a process that had
// just begun and did not ignore it yet.
func (p *process) unasked(ctx context.Context) error {
	const bySignal = -1
	if ctx.Err() != nil && p.cmd.ProcessState.ExitCode() == bySignal {
		return nil
	}
	return fmt.Errorf("consumer %d has ended by itself: %v", p.cmd.Process.Pid, p.cmd.ProcessState)
}

// moments draws when consumers are killed, within a span of time.
func moments(rng *rand.Rand, n int, span time.Duration) []time.Duration {
	ms := make([]time.Duration, n)
	for i := range ms {
		ms[i] = time.Duration(rng.Int64N(int64(span)))
	}
	slices.Sort(ms)
	return ms
}
