package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/timingwheel-go/timingwheel/durable/internal/redistest/proctest"
)

// Server is a Redis server or a sentinel. Its methods are safe for concurrent use.
type Server struct {
	t       testing.TB
	program string
	dir     string
	config  string
	args    []string
	env     []string
	port    *proctest.Port
	control *redis.Client

	mu   sync.Mutex
	proc *proctest.Process // the last run
}

// Start starts a server and returns when it answers.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	var env []string
	if o.Clock != nil {
		env = o.Clock.environment()
	}
	return start(t, "redis-server", o.settings(), o.ExtraArgs, env...)
}

// settings returns the lines of the configuration file.
func (o Options) settings() []string {
	lines := []string{"save \"\"", "repl-diskless-sync-delay 0", "maxmemory " + strconv.FormatInt(o.MaxMemory, 10), "maxmemory-policy noeviction"}
	if o.AppendOnly {
		lines = append(lines, "appendonly yes")
	}
	if o.AppendFsync != "" {
		lines = append(lines, "appendfsync "+o.AppendFsync)
	}
	return lines
}

// maxPorts is the maximum number of ports to try for a server. A second attempt is rare: another
// process must take the port between the check and the server's start.
const maxPorts = 10

// start starts a Redis program with lines of configuration, arguments and additions to the
// environment.
func start(t testing.TB, program string, settings, args []string, env ...string) *Server {
	t.Helper()
	s := &Server{t: t, program: requireProgram(t, program), dir: t.TempDir(), args: args, env: env}
	s.config = filepath.Join(s.dir, "redis.conf")
	t.Cleanup(s.end)
	for range maxPorts {
		err := s.startOnNewPort(settings)
		if err == nil {
			return s
		}
		if !errors.Is(err, errAddressInUse) {
			t.Fatalf("redistest: start %s: %v\n%s", program, err, proctest.Tail(s.Log(), 20))
		}
	}
	t.Fatalf("redistest: start %s: other processes took %d ports after they were reserved", program, maxPorts)
	return nil
}

func (s *Server) startOnNewPort(settings []string) error {
	p, err := proctest.ReservePort()
	if err != nil {
		return err
	}
	if s.port != nil {
		s.port.Release()
		_ = s.control.Close()
	}
	s.port = p
	s.control = redis.NewClient(controlOptions(s.Addr()))
	lines := append([]string{"bind 127.0.0.1", "protected-mode no", "port " + strconv.Itoa(p.Number), "dir " + strconv.Quote(s.dir)}, settings...)
	if err := os.WriteFile(s.config, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run()
}

// controlOptions returns options for this package's own clients: two connections and no retries.
func controlOptions(addr string) *redis.Options {
	o := ClientOptions(addr)
	o.MaxRetries, o.DialerRetries, o.PoolSize = -1, 1, 2
	o.Protocol, o.DisableIdentity, o.ContextTimeoutEnabled = 2, true, true
	return o
}

// errAddressInUse is the error if another process has the port.
var errAddressInUse = errors.New("address in use")

// run starts the server and waits until it answers; s.mu is held.
func (s *Server) run() (err error) {
	logged := len(s.Log())
	cmd := exec.Command(s.program, slices.Concat([]string{s.config}, s.args)...)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), s.env...)
	if s.proc, err = proctest.Start(cmd, s.logFile(), os.Kill); err != nil {
		return err
	}
	return proctest.Eventually(startTimeout, func() error {
		if !s.proc.Ended() {
			return s.ping()
		}
		if strings.Contains(s.Log()[logged:], "Address already in use") {
			return proctest.Fatal(errAddressInUse)
		}
		return proctest.Fatal(fmt.Errorf("process %d ended unexpectedly", s.proc.Pid))
	})
}

// ping returns nil if the server answers and is the process that was started.
func (s *Server) ping() error {
	const timeout = 5 * time.Second // another process on the port may never answer
	conn, err := net.DialTimeout("tcp", s.Addr(), timeout)
	if err != nil {
		return err // dialed separately, because the client would log each failure
	}
	conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	control := s.control.WithTimeout(timeout)
	info, err := control.Info(ctx, "server").Result()
	if err != nil {
		return err
	}
	if !strings.Contains(info, fmt.Sprintf("process_id:%d\r\n", s.proc.Pid)) {
		return errors.New("another server answers on the port")
	}
	return control.Ping(ctx).Err() // an error while the server reads its files
}

// Addr returns the address, "127.0.0.1:port", which does not change on a restart.
func (s *Server) Addr() string { return proctest.Loopback(s.port.Number) }

// Dir returns the server's directory.
func (s *Server) Dir() string { return s.dir }

// PID returns the process id of the last run.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.Pid
}

// ClientOptions returns options for a client of the server at addr, with timeouts of
// [ClientTimeout], and with small buffers because tests open many connections.
func ClientOptions(addr string) *redis.Options {
	return &redis.Options{
		Addr: addr, DialTimeout: ClientTimeout, ReadTimeout: ClientTimeout, WriteTimeout: ClientTimeout,
		ReadBufferSize: 4 << 10, WriteBufferSize: 4 << 10,
	}
}

// Client returns a new client. It is closed when the test ends.
func (s *Server) Client(t testing.TB) *redis.Client {
	t.Helper()
	c := redis.NewClient(ClientOptions(s.Addr()))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (s *Server) logFile() string { return filepath.Join(s.dir, "server.log") }

// Log returns the output of all runs of the server.
func (s *Server) Log() string {
	text, _ := os.ReadFile(s.logFile()) // missing before the first run
	return string(text)
}
