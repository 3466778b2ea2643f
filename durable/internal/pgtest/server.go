package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/timingwheel-go/timingwheel/durable/internal/redistest/proctest"
)

// Server is a PostgreSQL server. Its methods are safe for concurrent use.
type Server struct {
	t    testing.TB // nil if it is shared
	home *home
	name string // of the data directory
	port *proctest.Port

	mu   sync.Mutex
	proc *proctest.Process // the last run
}

// serial numbers the servers and the databases.
var serial atomic.Int64

// maxPorts is the maximum number of ports to try for a server. A second attempt is rare: another
// process must take the port between the check and the server's start.
const maxPorts = 10

// launch starts a server after fill has filled its data directory.
func (h *home) launch(fill func(*Server) error) (s *Server, err error) {
	s = &Server{home: h, name: fmt.Sprintf("server_%d", serial.Add(1))}
	if err := fill(s); err != nil {
		return nil, err
	}
	for range maxPorts {
		if s.port, err = proctest.ReservePort(); err != nil {
			return nil, err
		}
		if err = s.run(); err == nil {
			return s, nil
		}
		s.port.Release()
		if !errors.Is(err, errInUse) {
			break
		}
	}
	if s.proc != nil {
		err = errors.Join(err, s.stop(Immediate))
	}
	return nil, fmt.Errorf("%w\n%s", err, proctest.Tail(s.Log(), 20))
}

// appendTo appends lines to a file.
func appendTo(path, lines string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("\n" + lines)
	return errors.Join(err, f.Close())
}

// path returns the path of a file of the data directory.
func (s *Server) path(file string) string { return filepath.Join(s.home.dir, s.name, file) }

// endWith ends the server with a test.
func endWith(t testing.TB, s *Server) {
	s.t = t
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err := s.stop(Immediate); err != nil {
			t.Errorf("pgtest: %v", err)
		}
		if keyAndID := strings.Fields(s.state(6)); len(keyAndID) == 2 {
			_ = s.home.run("ipcrm", "-m", keyAndID[1]) // the shared memory of a killed server
		}
		if t.Failed() {
			t.Logf("end of the log of the server on port %d:\n%s", s.port.Number, proctest.Tail(s.Log(), 15))
		}
		s.port.Release()
		if err := errors.Join(os.RemoveAll(s.path("")), os.Remove(s.logFile())); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
}

// errInUse is the error if another process has the port, or if processes of the last run still have
// its shared memory.
var errInUse = errors.New("the port or the data directory is in use")

// run starts the server and waits until it accepts connections; s.mu is held.
func (s *Server) run() (err error) {
	logged := len(s.Log())
	cmd := s.home.command(s.home.program("postgres"), "-D", s.name, "-p", strconv.Itoa(s.port.Number), "-h", "127.0.0.1", "-k", "")
	// An immediate stop removes shared memory, which would outlast a killed server.
	if s.proc, err = proctest.Start(cmd, s.logFile(), syscall.SIGQUIT); err != nil {
		return err
	}
	return proctest.Eventually(proctest.Timeout, func() error {
		if s.state(0) == strconv.Itoa(s.proc.Pid) && s.state(7) == "ready" {
			return nil
		}
		if !s.proc.Ended() {
			return errors.New("the server does not accept connections")
		}
		if log := s.Log()[logged:]; strings.Contains(log, "Address already in use") || strings.Contains(log, "is still in use") {
			return proctest.Fatal(errInUse)
		}
		return proctest.Fatal(fmt.Errorf("process %d ended unexpectedly", s.proc.Pid))
	})
}

// state returns a line of the file that tells the state of the server, also to pg_ctl. A killed
// server leaves the file.
func (s *Server) state(line int) string {
	text, _ := os.ReadFile(s.path("postmaster.pid"))
	if lines := strings.Split(string(text), "\n"); line < len(lines) {
		return strings.TrimSpace(lines[line])
	}
	return ""
}

// URL returns the connection string of the database postgres. It does not change on a restart.
func (s *Server) URL() string { return s.url("postgres") }

func (s *Server) url(database string) string {
	return fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", proctest.Loopback(s.port.Number), database)
}

// Database creates an empty database and returns its connection string. It is dropped when the test
// or the server ends.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("test_%d", serial.Add(1))
	if _, err := query(s, "CREATE DATABASE "+name); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	if s.t == nil {
		t.Cleanup(func() {
			if _, err := query(s, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
				t.Errorf("pgtest: %v", err)
			}
		})
	}
	return s.url(name)
}

// query returns the rows of a statement in the database postgres.
func query(s *Server, sql string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), proctest.Timeout)
	defer cancel()
	psql := exec.CommandContext(ctx, s.home.program("psql"), "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", s.URL(), "-c", sql)
	out, err := psql.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", sql, err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// PID returns the process id of the last run's postmaster.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.Pid
}

func (s *Server) logFile() string { return s.path("") + ".log" }

// Log returns the output of all runs of the server.
func (s *Server) Log() string {
	text, _ := os.ReadFile(s.logFile()) // missing before the first run
	return string(text)
}
