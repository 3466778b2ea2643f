// Package pgtest starts PostgreSQL servers for tests, with standbys.
//
// Every server has a free loopback port and its own data directory, and ends with its test. A
// server of [Shared] ends with the test binary. On Linux all servers end with the test binary,
// however the binary ends, and their files are removed.
//
// The methods that inject faults report errors with the test's Errorf, so they may be called from
// any goroutine.
package pgtest

import (
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/timingwheel-go/timingwheel/durable/internal/redistest/proctest"
)

// EnvRequire is the name of an environment variable. If it is "1", missing programs fail the test.
// Otherwise the test is skipped.
const EnvRequire = "TIMINGWHEEL_REQUIRE_POSTGRES"

// EnvPrograms is the name of an environment variable with the folder of PostgreSQL's programs. By
// default the initdb in PATH determines them, or the newest below /usr/lib/postgresql.
const EnvPrograms = "TIMINGWHEEL_POSTGRES"

// Require skips or fails the test if PostgreSQL is not installed: see [EnvRequire].
func Require(t testing.TB) {
	t.Helper()
	_, err := Programs()
	switch {
	case err == nil && proctest.CanSignal:
	case err == nil:
		t.Skipf("pgtest: processes cannot be stopped and continued on this system")
	case os.Getenv(EnvRequire) == "1":
		t.Fatalf("pgtest: %v, and %s=1 requires it", err, EnvRequire)
	default:
		t.Skipf("pgtest: %v", err)
	}
}

// Programs returns the folder of the programs of PostgreSQL.
func Programs() (string, error) {
	initdb := filepath.Join(os.Getenv(EnvPrograms), "initdb")
	path, err := exec.LookPath(initdb)
	if err != nil && initdb == "initdb" {
		// Debian has the servers outside PATH.
		if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb"); len(found) > 0 {
			path, err = slices.MaxFunc(found, func(a, b string) int { return int(version(a) - version(b)) }), nil
		}
	}
	if err != nil {
		return "", err
	}
	path, err = filepath.EvalSymlinks(path) // the other programs are next to the file
	return filepath.Dir(path), err
}

// version returns the main version in a path such as /usr/lib/postgresql/15/bin/initdb.
func version(path string) float64 {
	v, _ := strconv.ParseFloat(filepath.Base(filepath.Dir(filepath.Dir(path))), 64)
	return v
}

// home is the folder of this test binary's servers.
type home struct {
	programs   string
	dir        string
	attributes *syscall.SysProcAttr // of the programs; nil means as this process
	reaper     io.Closer            // referenced here, because its finalizer would close it
}

// template is the name of the data directory that new servers copy, because initdb takes seconds.
const template = "template"

var openHome = sync.OnceValues(func() (*home, error) {
	h := &home{}
	var err error
	if h.programs, err = Programs(); err != nil {
		return nil, err
	}
	if h.dir, err = os.MkdirTemp("", "pgtest"); err != nil {
		return nil, err
	}
	if h.reaper, err = removeAtEnd(h.dir); err != nil {
		return nil, err
	}
	if h.attributes, err = HandOver(h.dir); err != nil {
		return nil, err
	}
	return h, h.run(h.program("initdb"), "-D", template, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
})

// removeAtEnd removes a folder after this process has ended, however it ends. Servers may still
// write files meanwhile.
func removeAtEnd(dir string) (io.Closer, error) {
	const script = `trap '' INT TERM HUP QUIT; cat; for i in 1 2 3 4 5 6 7 8 9; do rm -rf "$0" && break; sleep 1; done`
	cmd := exec.Command("sh", "-c", script, dir)
	end, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	return end, cmd.Start()
}

// program returns the path of a program of PostgreSQL.
func (h *home) program(name string) string { return filepath.Join(h.programs, name) }

// command returns a command that runs in h.dir.
func (h *home) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = h.dir, append(os.Environ(), "LC_ALL=C")
	if h.attributes != nil {
		attributes := *h.attributes
		cmd.SysProcAttr = &attributes
	}
	return cmd
}

func (h *home) run(program string, args ...string) error {
	out, err := h.command(program, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", program, err, out)
	}
	return nil
}

// Options configures [Start].
type Options struct {
	// Settings are settings of postgresql.conf, which override this package's.
	Settings map[string]string

	// Durable makes the server write like one whose data survives a power failure. By default it
	// omits fsync. A killed server keeps what it committed in both cases.
	Durable bool
}

// settings returns the lines to append to postgresql.conf.
func (o Options) settings() string {
	settings := map[string]string{
		"max_connections": "200", "shared_buffers": "32MB",
		"wal_retrieve_retry_interval": "100ms", // of standbys, whose primary restarts
	}
	if !o.Durable {
		settings["fsync"], settings["full_page_writes"] = "off", "off"
	}
	maps.Copy(settings, o.Settings)
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&lines, "%s = '%s'\n", name, strings.ReplaceAll(settings[name], "'", "''"))
	}
	return lines.String()
}

// Start starts a server and returns when it accepts connections.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	Require(t)
	s, err := start(o)
	if err != nil {
		t.Fatalf("pgtest: start a server: %v", err)
	}
	endWith(t, s)
	return s
}

var startShared = sync.OnceValues(func() (*Server, error) { return start(Options{}) })

// Shared returns the server that the tests of this test binary share. It has the default options.
// Its faults panic.
func Shared(t testing.TB) *Server {
	t.Helper()
	Require(t)
	s, err := startShared()
	if err != nil {
		t.Fatalf("pgtest: start the shared server: %v", err)
	}
	return s
}

func start(o Options) (*Server, error) {
	h, err := openHome()
	if err != nil {
		return nil, err
	}
	return h.launch(func(s *Server) error {
		if err := h.run("cp", "-Rp", template, s.name); err != nil {
			return err
		}
		return appendTo(s.path("postgresql.conf"), o.settings())
	})
}
