package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/internal/redistest/proctest"
)

// StopMode is the mode of [Server.Stop], named as in pg_ctl.
type StopMode syscall.Signal

const (
	// Fast aborts the transactions, sends the log to the standbys, and writes all data.
	Fast = StopMode(syscall.SIGINT)

	// Immediate ends the processes without writing data.
	Immediate = StopMode(syscall.SIGQUIT)
)

// Kill ends all processes of the server with SIGKILL and waits for its end. It has no effect if the
// server has ended.
func (s *Server) Kill() {
	s.change("kill", func() error {
		return errors.Join(signalAll(s.proc, os.Kill), s.proc.End(os.Kill))
	})
}

// Stop ends the server and waits for its end. It continues a paused server.
func (s *Server) Stop(mode StopMode) {
	s.change("stop", func() error { return s.stop(mode) })
}

func (s *Server) stop(mode StopMode) error {
	return errors.Join(signalAll(s.proc, proctest.Continue), s.proc.End(syscall.Signal(mode)))
}

// Restart stops the server if it is running, starts it with the same port and data, and returns
// when it accepts connections.
func (s *Server) Restart() {
	s.change("restart", func() error {
		err := s.stop(Fast)
		for end := time.Now().Add(proctest.Timeout); err == nil; time.Sleep(50 * time.Millisecond) {
			err = s.run()
			if !errors.Is(err, errInUse) || time.Now().After(end) {
				break
			}
			err = nil // a killed process of the server has not ended yet
		}
		return err
	})
}

// Pause suspends all processes of the server with SIGSTOP: connections stay open, and the server
// does not answer.
func (s *Server) Pause() {
	s.change("pause", func() error { return signalAll(s.proc, proctest.Pause) })
}

// Continue ends a [Server.Pause].
func (s *Server) Continue() {
	s.change("continue", func() error { return signalAll(s.proc, proctest.Continue) })
}

// Running reports whether the server was started and has not ended. A paused server is running.
func (s *Server) Running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.proc.Ended()
}

// change calls f with s.mu held and reports its error.
func (s *Server) change(what string, f func() error) {
	if s.t == nil {
		panic("pgtest: a test must not " + what + " the shared server")
	}
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := f(); err != nil {
		s.t.Errorf("pgtest: %s the server on port %d: %v\n%s", what, s.port.Number, err, proctest.Tail(s.Log(), 20))
	}
}

// signalAll sends a signal to the postmaster p and its children. It suspends the postmaster
// meanwhile, which therefore starts no child, and no other process gets the id of a child.
func signalAll(p *proctest.Process, signal os.Signal) error {
	if p.Ended() {
		return nil
	}
	err := p.Signal(proctest.Pause)
	done := map[int]bool{}
	for more := true; more; {
		more = false
		for _, child := range children(p.Pid) {
			if !done[child] {
				done[child], more = true, true
				process, _ := os.FindProcess(child) // no error on Unix
				_ = process.Signal(signal)          // an error if it has ended
			}
		}
	}
	if err = errors.Join(err, p.Signal(signal)); p.Ended() {
		return nil
	}
	return err
}

// children returns the ids of the children of a process.
func children(pid int) (ids []int) {
	list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	if err != nil { // not Linux
		list, _ = exec.Command("pgrep", "-P", strconv.Itoa(pid)).Output() // an error if there are none
	}
	for _, field := range strings.Fields(string(list)) {
		id, err := strconv.Atoi(field)
		if err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// Standby starts a standby, which ends with t, and returns when it receives the log of s.
func (s *Server) Standby(t testing.TB) *Server {
	t.Helper()
	return startStandby(t, s, false)
}

// SynchronousStandby is like [Server.Standby]. From then on, commits of s wait until such a standby
// has written them.
func (s *Server) SynchronousStandby(t testing.TB) *Server {
	t.Helper()
	return startStandby(t, s, true)
}

func startStandby(t testing.TB, primary *Server, synchronous bool) *Server {
	t.Helper()
	standby, err := primary.home.launch(func(standby *Server) error {
		source := primary.URL() + "&application_name=" + standby.name
		h := primary.home
		err := h.run(h.program("pg_basebackup"), "-D", standby.name, "-d", source, "-R", "-C", "-S", standby.name, "-c", "fast", "--no-sync")
		if err != nil {
			return err
		}
		if synchronous {
			if _, err := query(primary, "ALTER SYSTEM SET synchronous_standby_names = '*'"); err != nil {
				return err
			}
			if _, err := query(primary, "SELECT pg_reload_conf()"); err != nil {
				return err
			}
		}
		return appendTo(standby.path("postgresql.auto.conf"), "synchronous_standby_names = ''\n")
	})
	if err != nil {
		t.Fatalf("pgtest: start a standby: %v", err)
	}
	endWith(t, standby)
	err = proctest.Eventually(proctest.Timeout, func() error {
		state, err := query(primary, fmt.Sprintf("SELECT state || CASE WHEN %t AND sync_state = 'async' THEN ', not synchronous' ELSE '' END FROM pg_stat_replication WHERE application_name = '%s'", synchronous, standby.name))
		if err == nil && state != "streaming" {
			err = fmt.Errorf("the standby's state is %q", state)
		}
		return err
	})
	if err != nil {
		t.Fatalf("pgtest: start a standby: %v", err)
	}
	return standby
}

// Promote makes a standby a primary and returns when it accepts writes.
func (s *Server) Promote() {
	s.change("promote", func() error {
		promoted, err := query(s, "SELECT pg_promote()")
		if err == nil && promoted != "t" {
			err = errors.New("it is still a standby")
		}
		return err
	})
}
