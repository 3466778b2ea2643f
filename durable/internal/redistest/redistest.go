// Package redistest starts real Redis servers for tests: one alone, a master with a replica and sentinels, or a cluster.
//
// Every server has a free loopback port and a folder of its own, and ends with its test, be it that the test fails. On
// Linux it ends with the test binary too, however that ends.
//
// The methods that inject faults report what goes wrong through the test's Errorf, so that they may be called from any goroutine.
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

// EnvRequire names the environment variable that makes a missing program, such as redis-server, a failure where it is "1".
// Without it the test is skipped.
const EnvRequire = "TIMINGWHEEL_REQUIRE_REDIS"

// startTimeout is how long servers have to become ready, and to end. It is long, as it is used up on an overloaded machine only.
const startTimeout = 60 * time.Second

// ClientTimeout is how long clients wait for a server that is there: one may stand still for seconds on an overloaded machine. Nobody waits for
// one that has ended, as the system says so at once.
const ClientTimeout = time.Minute

// calm is how long a server must not answer until others hold it to be down, unless one has just been killed. It is long, so that none takes over
// from a server that stands still on an overloaded machine.
const calm = time.Minute

// Require skips the test where there is no redis-server on PATH, or fails it: see [EnvRequire].
func Require(t testing.TB) {
	t.Helper()
	requireProgram(t, "redis-server")
}

// requireProgram returns the path of a program that tests need.
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

// Options are those of [Start]. The zero value is a server that keeps nothing on disk.
type Options struct {
	// AppendOnly says whether the server keeps an append-only file, from which a [Server.Restart] reads.
	AppendOnly bool

	// AppendFsync is "always", "everysec" or "no". Empty: the server's default, which is "everysec".
	AppendFsync string

	// MaxMemory is the memory limit in bytes, above which writes are refused (noeviction). 0: there is none.
	MaxMemory int64

	// Clock is the server's wall clock. Nil: that of the machine.
	Clock *Clock

	// ExtraArgs are further arguments of the server, such as "--hz", "100". They win over those that the fields stand for.
	ExtraArgs []string
}

// tail is the end of a log, up to n lines.
func tail(log string, n int) string {
	lines := strings.Split(strings.TrimRight(log, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// fatal is an error that waiting does not mend.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// eventually calls ready until it returns nil or a [fatal] error, or the time is over, and returns its last error.
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
