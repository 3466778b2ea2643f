// Package redistest starts real Redis servers for tests: a single one, a master with a replica and
// sentinels, or a cluster.
//
// Every server has a free loopback port and a folder of its own, and ends with its test. On Linux
// it also ends with the test binary, however that ends.
//
// The methods that inject faults report errors by the test's Errorf, so any goroutine may call
// them.
package redistest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// EnvRequire names an environment variable. If it is "1", a missing program such as redis-server
// fails the test. Otherwise the test is skipped.
const EnvRequire = "TIMINGWHEEL_REQUIRE_REDIS"

// startTimeout bounds how long servers take to become ready, and to end. Only an overloaded machine
// needs that much.
const startTimeout = 60 * time.Second

// ClientTimeout bounds how long clients wait for a running server, which may stand still for
// seconds on an overloaded machine. The system reports a server that has ended at once.
const ClientTimeout = time.Minute

// calm is the time without an answer after which servers take another one for down, unless a server
// was just killed. It is long, so that no server takes over from one that stands still on an
// overloaded machine.
const calm = time.Minute

// Require skips or fails the test if there is no redis-server on PATH: see [EnvRequire].
func Require(t testing.TB) {
	t.Helper()
	requireProgram(t, "redis-server")
}

// requireProgram returns the path of a program, or skips or fails the test.
func requireProgram(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	switch {
	case err == nil && canSignal:
		return path
	case err == nil:
		t.Skipf("redistest: processes cannot be stopped and continued on this system")
	case os.Getenv(EnvRequire) == "1":
		t.Fatalf("redistest: %v, and %s=1 asks for it", err, EnvRequire)
	default:
		t.Skipf("redistest: %v", err)
	}
	return ""
}

// Options are the options of [Start]. The zero value is a server that keeps nothing on disk.
type Options struct {
	// AppendOnly makes the server keep an append-only file, which [Server.Restart] reads.
	AppendOnly bool

	// AppendFsync is "always", "everysec" or "no". Empty: the server's default, which is
	// "everysec".
	AppendFsync string

	// MaxMemory is the limit in bytes above which the server refuses writes (noeviction). 0: no
	// limit.
	MaxMemory int64

	// Clock is the server's wall clock. Nil: the clock of the machine.
	Clock *Clock

	// ExtraArgs are further arguments of the server, such as "--hz", "100". They override the other
	// fields.
	ExtraArgs []string
}

// tail returns up to n lines from the end of a log.
func tail(log string, n int) string {
	lines := strings.Split(strings.TrimRight(log, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// fatal is an error that does not go away by waiting.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// eventually calls ready until it returns nil or a [fatal] error, or the time is over. It returns
// the last error.
func eventually(timeout time.Duration, ready func() error) error {
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
