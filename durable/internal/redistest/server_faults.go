package redistest

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/internal/redistest/proctest"
)

// Kill ends the server with SIGKILL and waits for its end. It has no effect if the server has
// ended.
func (s *Server) Kill() {
	s.t.Helper()
	s.change("kill", func() error { return s.proc.End(os.Kill) })
}

// Stop ends the server with SIGTERM and waits for its end. It continues a paused server.
func (s *Server) Stop() {
	s.t.Helper()
	s.change("stop", s.stop)
}

func (s *Server) stop() error { return s.proc.End(syscall.SIGTERM) }

// Restart stops the server if it is running, starts it with the same port and directory, and
// returns when it answers. The server keeps its data if [Options.AppendOnly] is set.
func (s *Server) Restart() {
	s.t.Helper()
	s.change("restart", func() error {
		err := s.stop()
		for end := time.Now().Add(startTimeout); err == nil; time.Sleep(50 * time.Millisecond) {
			err = s.run()
			if !errors.Is(err, errAddressInUse) || time.Now().After(end) {
				break
			}
			err = nil // a forked process of the server has not ended yet
		}
		return err
	})
}

// Pause suspends the server with SIGSTOP: its connections stay open, and it does not answer.
func (s *Server) Pause() {
	s.t.Helper()
	s.change("pause", func() error { return s.proc.Signal(proctest.Pause) })
}

// Continue ends a [Server.Pause].
func (s *Server) Continue() {
	s.t.Helper()
	s.change("continue", func() error { return s.proc.Signal(proctest.Continue) })
}

// Running reports whether the server was started and has not ended. A paused server is running.
func (s *Server) Running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.proc.Ended()
}

// change calls f with s.mu held and reports its error.
func (s *Server) change(what string, f func() error) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := f(); err != nil {
		s.t.Errorf("redistest: %s the server on port %d: %v\n%s", what, s.port.Number, err, proctest.Tail(s.Log(), 20))
	}
}

// end stops the server when the test ends.
func (s *Server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil {
		if err := s.proc.End(os.Kill); err != nil {
			s.t.Error(fmt.Errorf("redistest: %w", err))
		}
	}
	if s.t.Failed() {
		s.t.Logf("end of the log of the server on port %d:\n%s", s.port.Number, proctest.Tail(s.Log(), 15))
	}
	if s.port != nil {
		_ = s.control.Close()
		s.port.Release()
	}
}
