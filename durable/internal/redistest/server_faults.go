package redistest

import (
	"errors"
	"fmt"
	"time"
)

// Kill ends the server with SIGKILL, and returns when it has ended. A server that has ended already stays so.
func (s *Server) Kill() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.check("kill", s.proc.kill())
}

// Stop asks the server to end, as its operator would, and returns when it has. A paused server is continued for it.
func (s *Server) Stop() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.check("stop", s.stop())
}

func (s *Server) stop() error {
	if s.proc.ended() {
		return nil
	}
	err := errors.Join(continueProcess(s.proc.cmd.Process), terminateProcess(s.proc.cmd.Process))
	if err != nil && !s.proc.ended() {
		return err
	}
	return s.proc.wait(startTimeout)
}

// Restart starts the server on the same port and folder, after it has stopped it where it runs, and returns
// when it answers. What it has kept depends on [Options.AppendOnly].
func (s *Server) Restart() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.stop()
	for end := time.Now().Add(startTimeout); err == nil; time.Sleep(50 * time.Millisecond) {
		err = s.run()
		if !errors.Is(err, errAddressInUse) || time.Now().After(end) {
			break
		}
		err = nil // a process that it had forked has still to go
	}
	s.check("restart", err)
}

// Pause stops the server with SIGSTOP: its connections stay open and nothing answers.
func (s *Server) Pause() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.check("pause", pauseProcess(s.proc.cmd.Process))
}

// Continue ends a [Server.Pause].
func (s *Server) Continue() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.check("continue", continueProcess(s.proc.cmd.Process))
}

// Running says whether the server has been started and has not ended; a paused one runs.
func (s *Server) Running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.proc.ended()
}

func (s *Server) check(what string, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Errorf("redistest: %s the server on port %d: %v\n%s", what, s.port.number, err, tail(s.Log(), 20))
	}
}

// end is the server's part of the test's clean-up.
func (s *Server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil {
		if err := s.proc.kill(); err != nil {
			s.t.Error(fmt.Errorf("redistest: %w", err))
		}
	}
	if s.t.Failed() {
		s.t.Logf("end of the log of the server on port %d:\n%s", s.port.number, tail(s.Log(), 15))
	}
	if s.port != nil {
		_ = s.control.Close()
		s.port.release()
	}
}
